// Real workers in this process, on loopback, with TLS: what the tests of verification dispatch to.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backbone/open_backbone.h"
#include "base/result.h"
#include "worker/server.h"

namespace kvasir {

// Publishes `model`, cuts it into two overlapping slices that leave one expert of each layer to nobody, and serves
// each by a worker of its own.
class LocalSwarm {
  public:
    static Result<std::unique_ptr<LocalSwarm>> start(const std::filesystem::path& model);
    // A dispatcher to the workers, all of them serving, and the manifest.
    Result<BackendConfig> connect(Arithmetic arithmetic = Arithmetic::portable);
    // Its connections are torn down at once, and its port is closed.
    void end_worker(std::size_t index) { servers_.at(index).reset(); }

  private:
    LocalSwarm() = default;
    Status publish_model();
    Status add_worker(const Identity& backbone, const std::string& name, double from, double to);

    std::filesystem::path model_;
    std::vector<std::unique_ptr<Server>> servers_;
    std::vector<std::string> endpoints_;
};

}  // namespace kvasir
