// A real web server on a loopback port, for the end-to-end tests.
#pragma once

#include <memory>

#include "base/child_process.h"
#include "base/temp_directory.h"

namespace kvasir::e2e {

class Nginx {
  public:
    // Whether there is an nginx to start on this machine.
    static bool available();
    // Serves the files in `root`; throws std::runtime_error with its words when it does not start.
    explicit Nginx(const std::filesystem::path& root);
    ~Nginx();

    std::string url() const;
    // Of all answers so far, from its own access log. It ends for that: nothing is served any more.
    struct Served {
        std::uint64_t requests = 0;
        std::uint64_t body_bytes = 0;
    };
    Served stop_and_count();

  private:
    TempDirectory directory_;
    std::uint16_t port_;
    std::unique_ptr<ChildProcess> process_;
};

}  // namespace kvasir::e2e
