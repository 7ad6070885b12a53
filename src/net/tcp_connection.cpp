// How a connection runs: one read handler at a time ("turn") reads and delivers frames; writes happen on whatever
// thread calls send(), and on an io thread when the socket is writable again. One mutex guards the channel (a TLS
// connection is one state machine for both directions) and the socket object; it is never held while a handler runs.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <deque>
#include <mutex>
#include <utility>

#include "net/frame_reader.h"
#include "net/tcp.h"
#include "wire/messages.h"

namespace kvasir {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

// After so many reads a connection lets others have the thread.
constexpr int kReadsPerTurn = 256;

// A frame on its way out.
struct Outgoing {
    std::array<std::byte, kFrameHeaderBytes> header{};
    ByteVector payload;
    std::size_t sent = 0;

    std::size_t size() const { return header.size() + payload.size(); }
    ByteSpan head_left() const { return ByteSpan(header).subspan(std::min(sent, header.size())); }
    ByteSpan body_left() const { return ByteSpan(payload).subspan(sent - std::min(sent, header.size())); }
};

class TcpConnection final : public Connection, public std::enable_shared_from_this<TcpConnection> {
  public:
    TcpConnection(Established established, const ConnectionOptions& options)
        : options_(options),
          socket_(std::move(established.socket)),
          channel_(std::move(established.channel)),
          reader_(!channel_->secure()),
          watch_(socket_.get_executor()),
          peer_(channel_->peer()) {
        boost::system::error_code error;
        Tcp::endpoint remote = socket_.remote_endpoint(error);
        peer_address_ = error ? "a closed socket" : endpoint_text(remote);
    }

    void start(FrameHandler on_frame, CloseHandler on_close) override {
        on_frame_ = std::move(on_frame);
        on_close_ = std::move(on_close);
        std::lock_guard lock(mutex_);
        read_progress_ = steady_clock::now();
        if (state_ == State::open) watch_in(options_.stall / 4);
        asio::post(socket_.get_executor(), [turn = Turn(shared_from_this())]() mutable { pump(std::move(turn)); });
    }

    bool send(Frame frame) override {
        Outgoing outgoing = encode_frame(std::move(frame));
        std::lock_guard lock(mutex_);
        if (state_ != State::open || write_error_) return false;
        if (queued_bytes_ + outgoing.size() > options_.send_queue_limit) return false;
        enqueue(std::move(outgoing));
        return true;
    }

    void close(Error reason) override {
        std::lock_guard lock(mutex_);
        begin_close(std::move(reason));
    }

    void set_payload_limit(std::uint64_t limit) override {
        std::lock_guard lock(mutex_);
        reader_.set_limit(limit);
    }

    std::optional<NodeId> peer() const override { return peer_; }
    std::string peer_address() const override { return peer_address_; }
    std::uint64_t bytes_sent() const override { return sent_.load(std::memory_order_relaxed); }
    std::uint64_t bytes_received() const override { return received_.load(std::memory_order_relaxed); }

  private:
    enum class State {
        open,
        closing,  // sends what is queued, drops what comes
        ended,    // reason_ is set; the turn will call on_close
    };
    enum class Step { again, frame, waiting, ended };

    // The right and duty to read, handed from one read handler to the next. Where the io_context goes and takes the
    // pending handler along, the user's handlers, which may hold this connection, must go as well.
    class Turn {
      public:
        explicit Turn(std::shared_ptr<TcpConnection> connection) : connection_(std::move(connection)) {}
        ~Turn() {
            if (connection_) connection_->abandon();
        }
        Turn(Turn&&) noexcept = default;
        Turn& operator=(Turn&&) = delete;
        TcpConnection* operator->() const { return connection_.get(); }

      private:
        std::shared_ptr<TcpConnection> connection_;
    };

    // Reads and delivers until the socket has no more.
    static void pump(Turn turn) {
        for (int reads = 0; reads < kReadsPerTurn; ++reads) {
            Frame frame;
            switch (turn->read(turn, frame)) {
                case Step::again:
                    break;
                case Step::frame:
                    turn->on_frame_(std::move(frame));
                    break;
                case Step::waiting:
                    return;
                case Step::ended:
                    return finish(std::move(turn));
            }
        }
        auto executor = turn->socket_.get_executor();
        asio::post(executor, [turn = std::move(turn)]() mutable { pump(std::move(turn)); });
    }

    // One read. `waiting`: the turn went into a pending operation.
    Step read(Turn& turn, Frame& frame) {
        std::lock_guard lock(mutex_);
        if (state_ == State::ended) return Step::ended;
        if (state_ == State::closing) return discard(turn);
        IoResult got = channel_->read(reader_.space());
        switch (got.state) {
            case IoState::done:
                received_.fetch_add(got.bytes, std::memory_order_relaxed);
                read_progress_ = steady_clock::now();
                return take(got.bytes, frame);
            case IoState::want_read:
                return wait(turn, Tcp::socket::wait_read, pump);
            case IoState::want_write:
                return wait(turn, Tcp::socket::wait_write, pump);
            case IoState::closed:
            case IoState::failed:
                break;
        }
        end(why_ended(got.state));
        return Step::ended;
    }

    Step take(std::size_t count, Frame& frame) {
        Result<std::optional<Frame>> complete = reader_.advance(count);
        if (!complete) {
            // The peer may be a node of another make, whose author wants to know.
            WireError told{WireErrorCode::bad_request, complete.error().message};
            enqueue(encode_frame({FrameType::error, 0, encode(told)}));
            begin_close(complete.error());
            return Step::again;
        }
        if (!*complete) return Step::again;
        frame = std::move(**complete);
        return Step::frame;
    }

    // While closing: what arrives is dropped, unread by TLS.
    Step discard(Turn& turn) {
        ssize_t count = receive_and_drop();
        if (count > 0) return Step::again;
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return wait(turn, Tcp::socket::wait_read, pump);
        end(closed_by_peer());
        return Step::ended;
    }

    ssize_t receive_and_drop() {
        std::array<std::byte, 16 << 10> nowhere;
        return ::recv(socket_.native_handle(), nowhere.data(), nowhere.size(), 0);
    }

    Step wait(Turn& turn, Tcp::socket::wait_type what, void (*next)(Turn)) {
        socket_.async_wait(what, [turn = std::move(turn), next](boost::system::error_code /*the state tells*/) mutable {
            next(std::move(turn));
        });
        return Step::waiting;
    }

    // The last step of the last turn: on_close, and waiting a little for the peer to close too, because closing a
    // socket with unread bytes would make the kernel drop what the peer has not received yet.
    static void finish(Turn turn) {
        bool linger = false;
        Error reason;
        {
            std::lock_guard lock(turn->mutex_);
            linger = turn->linger_;
            reason = *turn->reason_;
            if (!linger) turn->close_socket();
        }
        CloseHandler on_close = std::exchange(turn->on_close_, nullptr);
        turn->on_frame_ = nullptr;
        if (on_close) on_close(reason);
        on_close = nullptr;
        if (linger) drain(std::move(turn));
    }

    static void drain(Turn turn) {
        TcpConnection& self = *turn.operator->();
        std::lock_guard lock(self.mutex_);
        for (int reads = 0; self.socket_.is_open(); ++reads) {
            ssize_t count = self.receive_and_drop();
            bool later = count < 0 && (errno == EAGAIN || errno == EINTR);
            if (later || reads == kReadsPerTurn) {
                self.wait(turn, Tcp::socket::wait_read, drain);
                return;
            }
            if (count <= 0) self.close_socket();
        }
    }

    Outgoing encode_frame(Frame frame) const {
        FrameHeader header{frame.type, !channel_->secure(), frame.request, frame.payload.size(), 0};
        if (header.checksummed) header.payload_checksum = payload_checksum(frame.payload);
        return {encode_header(header), std::move(frame.payload), 0};
    }

    // The rest with mutex_ held.

    Error why_ended(IoState state) const {
        Error why = write_error_ && state == IoState::closed ? *write_error_ : channel_->error();
        // A listener with TLS hangs up on what is no TLS without a word.
        if (!channel_->secure() && bytes_received() == 0) why.message += " before it said anything; does it want TLS?";
        return why;
    }

    void enqueue(Outgoing outgoing) {
        queued_bytes_ += outgoing.size();
        queue_.push_back(std::move(outgoing));
        flush();
    }

    // Sends what the socket takes.
    void flush() {
        if (write_waiting_ || write_error_ || state_ == State::ended) return;
        IoState state = IoState::done;
        while (state == IoState::done && !queue_.empty())
            state = write_front();
        if (state == IoState::done) state = channel_->flush();
        switch (state) {
            case IoState::done:
                if (state_ == State::closing) end_politely();
                return;
            case IoState::want_read:
                return wait_to_write(Tcp::socket::wait_read);
            case IoState::want_write:
                return wait_to_write(Tcp::socket::wait_write);
            case IoState::closed:
            case IoState::failed:
                return fail_writing();
        }
    }

    IoState write_front() {
        Outgoing& front = queue_.front();
        IoResult put = channel_->write(front.head_left(), front.body_left());
        sent_.fetch_add(put.bytes, std::memory_order_relaxed);
        queued_bytes_ -= put.bytes;
        front.sent += put.bytes;
        if (front.sent == front.size()) queue_.pop_front();
        return put.state;
    }

    void wait_to_write(Tcp::socket::wait_type what) {
        write_waiting_ = true;
        write_progress_ = steady_clock::now();
        socket_.async_wait(what, [self = shared_from_this()](boost::system::error_code /*the state tells*/) {
            std::lock_guard lock(self->mutex_);
            self->write_waiting_ = false;
            self->flush();
        });
    }

    // What the peer said last, an alert or an error frame, may still be there to read, and tells more than a broken
    // pipe: only the reading end ends the connection.
    void fail_writing() {
        write_error_ = channel_->error();
        drop_queue();
        if (state_ == State::closing) return end(*write_error_);
        boost::system::error_code ignored;
        socket_.shutdown(Tcp::socket::shutdown_both, ignored);
    }

    void begin_close(Error reason) {
        if (state_ != State::open) return;
        state_ = State::closing;
        reason_ = std::move(reason);
        close_deadline_ = steady_clock::now() + options_.flush;
        watch_in(options_.flush);
        flush();
    }

    // Everything is with the kernel.
    void end_politely() {
        boost::system::error_code ignored;
        channel_->finish();
        socket_.shutdown(Tcp::socket::shutdown_send, ignored);
        linger_ = true;
        end(*reason_);
    }

    void end(Error reason) {
        if (state_ == State::ended) return;
        state_ = State::ended;
        if (!reason_) reason_ = std::move(reason);
        drop_queue();
        boost::system::error_code ignored;
        socket_.cancel(ignored);  // wakes the turn
    }

    void drop_queue() {
        queue_.clear();
        queued_bytes_ = 0;
    }

    void close_socket() {
        watch_.cancel();
        boost::system::error_code ignored;
        socket_.close(ignored);
    }

    // One timer looks after stalls while open, and after the deadline of closing then. It keeps nothing alive.
    void watch_in(std::chrono::milliseconds delay) {
        watch_.expires_after(delay);
        watch_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
            if (error) return;
            if (auto self = weak.lock()) self->watch();
        });
    }

    void watch() {
        std::lock_guard lock(mutex_);
        auto now = steady_clock::now();
        if (state_ != State::open) {
            if (now < close_deadline_) return;
            linger_ = false;
            end(*reason_);
            return close_socket();
        }
        if (reader_.in_frame() && now - read_progress_ >= options_.stall) {
            return end(
                {ErrorKind::unavailable, fmt::format("the peer sent {} bytes of a frame of {} and no more for {} ms",
                                                     reader_.filled(), reader_.announced(), options_.stall.count())});
        }
        if (write_waiting_ && now - write_progress_ >= options_.stall) {
            return end({ErrorKind::unavailable, fmt::format("the peer has taken none of {} waiting bytes for {} ms",
                                                            queued_bytes_, options_.stall.count())});
        }
        watch_in(options_.stall / 4);
    }

    // The io_context is going; the socket is no longer to be touched.
    void abandon() {
        on_frame_ = nullptr;
        on_close_ = nullptr;
        std::lock_guard lock(mutex_);
        if (state_ == State::open) reason_ = Error{ErrorKind::unavailable, "the program is ending"};
        state_ = State::ended;
        drop_queue();
    }

    const ConnectionOptions options_;
    std::mutex mutex_;
    Tcp::socket socket_;
    std::unique_ptr<Channel> channel_;
    FrameReader reader_;
    asio::steady_timer watch_;
    const std::optional<NodeId> peer_;
    std::string peer_address_;
    std::atomic<std::uint64_t> sent_{0};
    std::atomic<std::uint64_t> received_{0};

    // The turn's alone, from start() on.
    FrameHandler on_frame_;
    CloseHandler on_close_;

    // Guarded by mutex_.
    State state_ = State::open;
    std::optional<Error> reason_;
    bool linger_ = false;
    steady_clock::time_point close_deadline_;
    steady_clock::time_point read_progress_;
    steady_clock::time_point write_progress_;
    std::deque<Outgoing> queue_;
    std::uint64_t queued_bytes_ = 0;
    bool write_waiting_ = false;
    std::optional<Error> write_error_;
};

}  // namespace

ConnectionPtr make_connection(Established established, const ConnectionOptions& options) {
    return std::make_shared<TcpConnection>(std::move(established), options);
}

}  // namespace kvasir
