#include "net/identity.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/paths.h"

namespace kvasir::cli {
namespace {

struct Flags {
    std::string file = default_identity_path().string();
    bool renew = false;
    bool json = false;
};

// Replaces nothing but an identity: a mistyped path must not cost another file.
Result<Identity> make_new(const std::string& file) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) {
        Result<Identity> old = Identity::load(file);
        if (!old) return fail(old.error().within("--new replaces an identity only"));
    }
    Result<Identity> identity = Identity::generate();
    if (!identity) return identity;
    if (Status saved = identity->save(file); !saved) return fail(saved.error());
    return identity;
}

Result<int> run(const Flags& flags) {
    if (flags.file.empty()) return fail(ErrorKind::usage, "--file needs a path");
    if (Status good = check_key_path(flags.file); !good) return fail(good.error());
    std::error_code ignored;
    const bool made = flags.renew || !std::filesystem::exists(flags.file, ignored);
    Result<Identity> identity = flags.renew ? make_new(flags.file) : Identity::load_or_create(flags.file);
    if (!identity) return fail(identity.error());
    std::string id = to_hex(identity->id());
    if (flags.json) {
        fmt::print("{}\n", nlohmann::json{{"id", id}, {"file", flags.file}, {"made", made}}.dump(2));
    } else {
        fmt::print("id    {}\nfile  {}\n{}", id, flags.file, made ? "made  just now\n" : "");
    }
    return 0;
}

constexpr const char* kFooter =
    "The id is the SHA-256 of the node's public key. Other nodes name it to reach or admit this one; the file holds\n"
    "the private key and stays here.\n"
    "\nExamples:\n"
    "  kvasir identity                       this node's id; makes one the first time\n"
    "  kvasir identity --file worker.pem     another node's on the same machine\n"
    "  kvasir identity --json                for scripts\n"
    "  kvasir identity --new                 a new key in place of the old one: tell everybody who names the old id";

}  // namespace

void add_identity(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("identity", "Print this node's id, making its key where there is none");
    command->add_option("--file", flags->file, "The key file (PEM, readable by its owner alone)")
        ->capture_default_str()
        ->type_name("PATH");
    command->add_flag("--new", flags->renew, "Make a new key, replacing the one in the file");
    command->add_flag("--json", flags->json, "Print JSON");
    command->footer(kFooter);
    command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
