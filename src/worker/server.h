// A worker's server: its port, its sessions, its batcher.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "net/connection.h"
#include "net/identity.h"
#include "worker/batcher.h"
#include "worker/log_throttle.h"
#include "worker/piece_store.h"
#include "worker/session.h"

namespace kvasir {

struct ServerOptions {
    Address listen;
    std::shared_ptr<const Identity> identity;  // null: no TLS, loopback only
    std::set<NodeId> admitted;                 // with TLS: who may connect
    int threads = 1;                           // to compute with
    int io_threads = 1;
    std::uint32_t window = 8;
    std::uint64_t payload_limit = kDefaultPayloadLimit;
    std::size_t sessions = 256;
    SessionTiming timing;
    BatcherLimits limits;
};

struct ServerStats {
    BatcherStats computed;
    std::uint32_t waiting = 0;
    std::uint32_t sessions = 0;
};

// Its members may be called from any one thread; stats() from all.
class Server {
  public:
    // Takes the port. Backbones may connect at once; they are answered after serve().
    static Result<std::unique_ptr<Server>> bind(ServerOptions options);
    // Ends everything at once.
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    Address local_address() const { return listener_->local_address(); }
    // Starts serving these pieces, in the background. Call once.
    Status serve(PieceStore store);
    // Tells all backbones, takes nothing new, finishes what was taken (at most for `deadline`), closes all connections.
    // True if everything was finished.
    bool drain(std::chrono::milliseconds deadline);
    ServerStats stats() const;
    // After serve().
    const PieceStore& store() const { return *store_; }

  private:
    explicit Server(ServerOptions options);
    void run_io();
    void on_connection(ConnectionPtr connection);
    void on_end(const std::shared_ptr<Session>& session);
    void tick();
    std::vector<std::shared_ptr<Session>> sessions() const;
    std::uint32_t session_count() const;

    const ServerOptions options_;
    boost::asio::io_context io_;
    boost::asio::steady_timer timer_;
    std::optional<PieceStore> store_;
    std::unique_ptr<Batcher> batcher_;
    LogThrottle refusals_;
    SessionContext context_;
    std::unique_ptr<Listener> listener_;
    std::vector<std::thread> threads_;

    mutable std::mutex mutex_;  // guards the rest
    std::condition_variable changed_;
    std::set<std::shared_ptr<Session>> sessions_;
    bool draining_ = false;
};

}  // namespace kvasir
