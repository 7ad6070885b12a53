// A small swarm of real processes for the end-to-end tests: the bundled model published and sliced in a temporary
// directory, identities, and workers started by hand or all at once.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/temp_directory.h"

namespace kvasir::e2e {

// Generous: it only bounds how long a broken test hangs.
inline constexpr std::chrono::seconds kPatience{120};

// Runs a program to its end and gives what it said.
struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
};
Outcome run(std::vector<std::string> arguments, std::vector<std::string> environment = {},
            std::chrono::seconds patience = kPatience);
// The same with the kvasir program in front of `arguments`.
Outcome kvasir(std::vector<std::string> arguments, std::vector<std::string> environment = {});

struct Worker {
    std::unique_ptr<ChildProcess> process;
    std::string id;
    std::uint16_t port = 0;

    // What a backbone's --worker takes.
    std::string endpoint() const;
    // The same node through another port (a proxy's).
    std::string endpoint_through(std::uint16_t other_port) const;
};

class Cluster {
  public:
    // Copies, publishes and prepares; throws std::runtime_error with the program's words when something fails.
    Cluster();

    std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
    std::filesystem::path model() const { return path("model.gguf"); }
    std::filesystem::path backbone_identity() const { return path("backbone.pem"); }
    const std::string& backbone_id() const { return backbone_id_; }

    // Cuts a slice named `name` and returns its path.
    std::filesystem::path slice(const std::string& name, const std::string& layers, const std::string& experts) const;
    // The node id of the identity file `name`.pem, made if missing.
    std::string identity(const std::string& name) const;
    // Starts a worker and waits until it is ready. `port` 0: any. Further flags in `more`.
    Worker start_worker(const std::string& name, const std::vector<std::filesystem::path>& slices,
                        std::uint16_t port = 0, std::vector<std::string> more = {}) const;
    // The arguments that every backbone needs: identity and workers.
    std::vector<std::string> backbone_arguments(const std::vector<std::string>& endpoints) const;

  private:
    TempDirectory directory_;
    std::string backbone_id_;
};

// A port nobody listens on at the moment.
std::uint16_t free_port();

}  // namespace kvasir::e2e
