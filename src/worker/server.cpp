#include "worker/server.h"

#include <ggml.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace kvasir {

namespace {

constexpr std::chrono::seconds kTick{1};
// Connection::close() flushes for at most 2 s.
constexpr std::chrono::seconds kFlush{4};

}  // namespace

Server::Server(ServerOptions options) : options_(std::move(options)), timer_(io_) {}

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options) {
    std::unique_ptr<Server> server(new Server(std::move(options)));
    ConnectionOptions connection;
    // A backbone that asks and does not read may make us keep its window of answers, no more.
    connection.send_queue_limit = server->options_.window * server->options_.payload_limit + kControlPayloadLimit;
    Server* self = server.get();
    Result<std::unique_ptr<Listener>> listener = Listener::create(
        server->io_, server->options_.listen, server->options_.identity,
        [self](const NodeId& id) {
            const bool admitted = self->options_.admitted.contains(id);
            if (!admitted && self->refusals_.admit(to_hex(id))) {
                spdlog::warn("backbone {}: not admitted; to admit it: --admit {}", to_hex(id), to_hex(id));
            }
            return admitted;
        },
        [self](ConnectionPtr accepted) { self->on_connection(std::move(accepted)); }, connection);
    if (!listener) return fail(listener.error());
    server->listener_ = std::move(*listener);
    return server;
}

Server::~Server() {
    if (listener_) listener_->stop();
    io_.stop();
    for (std::thread& thread : threads_)
        thread.join();
    if (batcher_) batcher_->stop();
}

Status Server::serve(PieceStore store) {
    Result<std::unique_ptr<Batcher>> batcher = Batcher::create(options_.threads, options_.limits);
    if (!batcher) return fail(batcher.error());
    store_ = std::move(store);
    batcher_ = std::move(*batcher);
    context_.store = &*store_;
    context_.batcher = batcher_.get();
    context_.refusals = &refusals_;
    context_.identity = options_.identity;
    context_.build = fmt::format("kvasir {} (ggml {})", KVASIR_VERSION, ggml_version());
    context_.threads = static_cast<std::uint32_t>(options_.threads);
    context_.window = options_.window;
    context_.payload_limit = options_.payload_limit;
    context_.timing = options_.timing;
    context_.session_count = [this] { return session_count(); };
    tick();
    for (int i = 0; i < options_.io_threads; ++i)
        threads_.emplace_back([this] { run_io(); });
    return {};
}

void Server::run_io() {
    while (true) {
        try {
            io_.run();
            return;
        } catch (const std::exception& error) {  // no memory for a frame, most likely; its connection has lost it
            spdlog::error("a connection failed: {}", error.what());
        }
    }
}

void Server::on_connection(ConnectionPtr connection) {
    auto session = std::make_shared<Session>(std::move(connection), context_);
    {
        std::scoped_lock lock(mutex_);
        if (draining_ || sessions_.size() >= options_.sessions) {
            spdlog::warn("backbone {}: refused: {}", session->name(), draining_ ? "draining" : "too many connections");
            return;
        }
        sessions_.insert(session);
    }
    session->start([this](const std::shared_ptr<Session>& ended) { on_end(ended); });
}

void Server::on_end(const std::shared_ptr<Session>& session) {
    std::scoped_lock lock(mutex_);
    sessions_.erase(session);
    changed_.notify_all();
}

void Server::tick() {
    timer_.expires_after(kTick);
    timer_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        const auto now = Session::Clock::now();
        for (const auto& session : sessions())
            session->tick(now);
        tick();
    });
}

std::vector<std::shared_ptr<Session>> Server::sessions() const {
    std::scoped_lock lock(mutex_);
    return {sessions_.begin(), sessions_.end()};
}

std::uint32_t Server::session_count() const {
    std::scoped_lock lock(mutex_);
    return static_cast<std::uint32_t>(sessions_.size());
}

bool Server::drain(std::chrono::milliseconds deadline) {
    {
        std::scoped_lock lock(mutex_);
        draining_ = true;
    }
    listener_->stop();
    for (const auto& session : sessions())
        session->drain();
    const bool finished = !batcher_ || batcher_->wait_idle(deadline);
    for (const auto& session : sessions())
        session->close({ErrorKind::unavailable, "the worker has drained"});
    std::unique_lock lock(mutex_);
    const bool closed = changed_.wait_for(lock, kFlush, [this] { return sessions_.empty(); });
    return finished && closed;
}

ServerStats Server::stats() const {
    ServerStats stats;
    if (batcher_) stats = {batcher_->stats(), batcher_->waiting(), 0};
    stats.sessions = session_count();
    return stats;
}

}  // namespace kvasir
