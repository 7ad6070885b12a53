// libggml-kvasir.so: the backend for stock llama.cpp programs, loaded through GGML_BACKEND_PATH.
//
//   GGML_BACKEND_PATH=/path/libggml-kvasir.so KVASIR_CONFIG=kvasir.json
//       llama-server -m model.gguf --no-repack -ot 'ffn_.*_exps=KVASIR'
//
// -ot is what makes llama-server, llama-completion and their kind look at GGML_BACKEND_PATH at all when they have the
// CPU backend linked in (without it they start without us, and say nothing); llama-bench always looks.
// KVASIR_CONFIG names a JSON file (parse_backbone_options() has its keys); without it there are no workers, and experts
// are computed from the mapped file (M0). With LD_PRELOAD set to this library as well, llama.cpp's loader leaves
// untouched experts on disk (src/cli/lazy_mapping.cpp); --no-warmup then keeps it from touching them all at start.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "backbone/ggml_backend.h"
#include "backbone/open_backbone.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/units.h"
#include "expert/engine.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kLargestConfig = 1 << 20;

Result<BackendConfig> read_config(const char* path) {
    Result<std::string> text = read_text_file(path, kLargestConfig);
    if (!text) return fail(text.error());
    std::filesystem::path directory = std::filesystem::absolute(path).parent_path();
    Result<BackboneOptions> options = parse_backbone_options(*text, directory);
    if (!options) return fail(options.error().within(path));
    Result<Backbone> backbone = open_backbone(*options);
    if (!backbone) return fail(backbone.error().within(path));
    if (backbone->id) {
        fmt::print(stderr, "kvasir: this backbone's node id is {} (workers admit it with --admit)\n",
                   to_hex(*backbone->id));
    }
    return std::move(backbone->config);
}

// The connections' threads must end before the process's libraries do.
std::shared_ptr<Backend>& loaded_backend() {
    static std::shared_ptr<Backend> backend;
    return backend;
}

void close_connections() {
    std::shared_ptr<Dispatcher> dispatcher = loaded_backend()->config()->dispatcher;
    if (dispatcher) {
        SwarmStats stats = dispatcher->stats();
        fmt::print(stderr, "kvasir: {} pairs computed by workers, {} here\n", human_count(stats.pairs_remote),
                   human_count(stats.pairs_local));
    }
    loaded_backend()->configure({});
}

Result<ggml_backend_reg*> load() {
    BackendConfig config;
    if (const char* path = std::getenv("KVASIR_CONFIG"); path != nullptr) {
        log_to_stderr();
        select_exact_kernels();
        Result<BackendConfig> read = read_config(path);
        if (!read) return fail(read.error());
        config = std::move(*read);
    }
    loaded_backend() = std::make_shared<Backend>(std::move(config), BackendUse::fixed);
    if (std::atexit(close_connections) != 0) return fail(ErrorKind::internal, "atexit() failed");
    return make_backend_registration(loaded_backend()).release();
}

}  // namespace
}  // namespace kvasir

extern "C" {

__attribute__((visibility("default"))) int ggml_backend_score() {
    return 1;
}

// Null, after a line on stderr that says why, where the configuration can't be used: the backend is then not there.
__attribute__((visibility("default"))) ggml_backend_reg* ggml_backend_init() {
    try {
        kvasir::Result<ggml_backend_reg*> registration = kvasir::load();
        if (registration) return *registration;
        fmt::print(stderr, "kvasir: error: {}\n", registration.error().message);
    } catch (const std::exception& error) {
        fmt::print(stderr, "kvasir: error: unexpected: {}\n", error.what());
    }
    return nullptr;
}

}  // extern "C"
