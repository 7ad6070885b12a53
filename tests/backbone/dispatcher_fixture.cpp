#include "backbone/dispatcher_fixture.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <utility>

#include "expert/layer_weights.h"
#include "net/signature.h"

namespace kvasir::test {

using std::chrono::milliseconds;

Digest test_model() {
    Digest id{};
    id[0] = std::byte{42};
    return id;
}

void fake_expert(std::uint32_t layer, std::uint32_t expert, std::span<const float> row, std::span<float> out) {
    for (std::size_t i = 0; i < row.size(); ++i) {
        out[i] = row[i] * static_cast<float>(expert + 3) + static_cast<float>(layer + 1);
    }
}

void fake_output(Arithmetic arithmetic, std::uint32_t layer, std::uint32_t expert, std::span<const float> row,
                 std::span<float> out) {
    fake_expert(layer, expert, row, out);
    const RowEncoding encoding = output_encoding(arithmetic);
    ByteVector encoded(row_bytes(encoding, out.size()));
    encode_rows(encoding, out.size(), out, encoded);
    if (!decode_results(encoding, out.size(), encoded, out)) std::abort();
}

namespace {

std::span<const float> floats(ByteSpan rows) {
    return {reinterpret_cast<const float*>(rows.data()), rows.size() / sizeof(float)};
}

}  // namespace

TestCall TestCall::make(std::uint32_t layer, std::uint32_t rows, const std::vector<std::uint32_t>& experts) {
    TestCall call;
    call.layer = layer;
    for (std::uint32_t i = 0; i < rows * kHidden; ++i)
        call.rows.push_back(0.1F * static_cast<float>(i + layer));
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t expert : experts)
            call.pairs.push_back({row, expert});
    }
    call.out.assign(call.pairs.size() * kHidden, -1.0F);
    return call;
}

ExpertCall TestCall::call() {
    Recipe recipe;
    recipe.activation = Activation::silu;
    return {layer, kHidden, recipe, RowEncoding::f32, std::as_bytes(std::span(rows)), pairs, out};
}

::testing::AssertionResult TestCall::correct() const {
    std::vector<float> expected(kHidden);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        std::span<const float> row = std::span(rows).subspan(pairs[i].row * kHidden, kHidden);
        fake_output(arithmetic, layer, pairs[i].expert, row, expected);
        if (!std::equal(expected.begin(), expected.end(), out.begin() + static_cast<std::ptrdiff_t>(i * kHidden))) {
            return ::testing::AssertionFailure()
                   << "pair " << i << " (row " << pairs[i].row << ", expert " << pairs[i].expert << ") is wrong";
        }
    }
    return ::testing::AssertionSuccess();
}

Status FakeLocal::compute(const ExpertCall& call, std::span<const Pair> asked, std::span<float> out) {
    if (fails) return fail(ErrorKind::io, "the disk is gone");
    if (takes.count() > 0) std::this_thread::sleep_for(takes);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        fake_output(arithmetic, call.layer, asked[i].expert,
                    floats(call.rows).subspan(asked[i].row * call.hidden, call.hidden),
                    out.subspan(i * call.hidden, call.hidden));
    }
    pairs += asked.size();
    return {};
}

// ---- FakeWorker ----------------------------------------------------------------------------------------------------

FakeWorker::FakeWorker(Options options) : options_(std::move(options)), pieces_(options_.pieces) {
    if (options_.tls) {
        identity_ = std::make_shared<const Identity>(*Identity::generate());
        other_identity_ = std::make_shared<const Identity>(*Identity::generate());
    }
    listener_ = *Listener::create(context_, {"127.0.0.1", 0}, identity_, options_.admit,
                                  [this](ConnectionPtr connection) { accept(std::move(connection)); });
    thread_ = std::jthread([this] {
        auto work = boost::asio::make_work_guard(context_);
        context_.run();
    });
}

FakeWorker::~FakeWorker() {
    listener_->stop();
    context_.stop();
    thread_.join();
}

WorkerEndpoint FakeWorker::endpoint() const {
    WorkerEndpoint endpoint{{"127.0.0.1", listener_->local_address().port}, std::nullopt};
    if (identity_) endpoint.id = identity_->id();
    return endpoint;
}

void FakeWorker::behave(Fault fault) {
    behave([fault] { return fault; });
}

void FakeWorker::behave(std::function<Fault()> next) {
    std::scoped_lock lock(mutex_);
    next_fault_ = std::move(next);
}

void FakeWorker::update(std::vector<Piece> pieces) {
    std::scoped_lock lock(mutex_);
    pieces_ = std::move(pieces);
    ++epoch_;
    for (const auto& weak : open_) {
        if (auto connection = weak.lock()) connection->send({FrameType::update, 0, encode(Update{epoch_, pieces_})});
    }
}

void FakeWorker::drop_connections() {
    std::scoped_lock lock(mutex_);
    for (const auto& weak : open_) {
        if (auto connection = weak.lock()) connection->close({ErrorKind::unavailable, "dropped"});
    }
    open_.clear();
}

std::vector<FakeWorker::Seen> FakeWorker::seen() const {
    std::scoped_lock lock(mutex_);
    return seen_;
}

void FakeWorker::accept(ConnectionPtr connection) {
    ++connections_;
    std::weak_ptr<Connection> weak = connection;
    {
        std::scoped_lock lock(mutex_);
        open_.push_back(weak);
        unanswered_ = 0;
    }
    connection->start([this, weak](Frame&& frame) { on_frame(weak, std::move(frame)); }, [](const Error&) {});
}

void FakeWorker::on_frame(const std::weak_ptr<Connection>& weak, Frame&& frame) {
    ConnectionPtr connection = weak.lock();
    if (!connection) return;
    switch (frame.type) {
        case FrameType::hello:
            if (!decode_hello(frame.payload)) broken_rules_ = true;
            welcome(*connection);
            break;
        case FrameType::compute:
            compute(*connection, connection, frame);
            break;
        case FrameType::ping:
            connection->send({FrameType::pong, frame.request, encode(Pong{})});
            break;
        case FrameType::cancel: {
            ++cancels_;
            std::scoped_lock lock(mutex_);
            unanswered_ -= std::min(unanswered_, 1U);
            break;
        }
        default:
            broken_rules_ = true;
    }
}

void FakeWorker::welcome(Connection& connection) {
    if (options_.refusal) {
        connection.send({FrameType::error, 0, encode(WireError{*options_.refusal, "not you"})});
        connection.close({ErrorKind::unavailable, "refused"});
        return;
    }
    Welcome message;
    message.build = "fake";
    message.arithmetic = options_.arithmetic;
    message.model_id = options_.model_id;
    message.payload_limit = options_.payload_limit;
    message.window = options_.window;
    message.threads = 1;
    connection.set_payload_limit(options_.payload_limit);
    std::scoped_lock lock(mutex_);
    message.epoch = epoch_;
    message.pieces = pieces_;
    connection.send({FrameType::welcome, 0, encode(message)});
}

void FakeWorker::compute(Connection& connection, const ConnectionPtr& keep, const Frame& frame) {
    Result<Compute> request = decode_compute(frame.payload);
    if (!request) {
        broken_rules_ = true;
        return;
    }
    auto error = [&](WireErrorCode code, const char* text) {
        connection.send({FrameType::error, frame.request, encode(WireError{code, text})});
    };
    Fault fault = Fault::none;
    bool held = true;
    bool current = true;
    {
        std::scoped_lock lock(mutex_);
        most_unanswered_ = std::max(most_unanswered_.load(), ++unanswered_);
        seen_.push_back({request->layer, request->rows.size() / row_bytes(request->encoding, request->hidden),
                         request->pairs.size()});
        fault = next_fault_();
        for (const Pair& pair : request->pairs) {
            held = held && std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
                       return piece.layer == request->layer && piece.contains(pair.expert);
                   });
        }
        current = request->epoch == epoch_;
        if (fault == Fault::epoch_change) {
            ++epoch_;
            connection.send({FrameType::update, 0, encode(Update{epoch_, pieces_})});
            current = false;
        }
        if (fault != Fault::silent && fault != Fault::late) --unanswered_;
    }
    if (!current) return error(WireErrorCode::epoch, "the pieces have changed");
    if (!held) {
        broken_rules_ = true;
        return error(WireErrorCode::not_held, "not mine");
    }

    std::uint32_t hidden = request->hidden + (fault == Fault::wrong_hidden ? 4 : 0);
    auto pairs = static_cast<std::uint32_t>(request->pairs.size() - (fault == Fault::wrong_count ? 1 : 0));
    const bool portable = find_arithmetic(options_.arithmetic) == Arithmetic::portable;
    const bool rounded = portable != (fault == Fault::other_encoding);
    const RowEncoding encoding = rounded ? RowEncoding::i16x256 : RowEncoding::f32;
    const std::size_t size = row_bytes(encoding, hidden);
    ResultBuffer buffer = make_result_buffer(pairs, hidden, encoding);
    std::vector<float> output(hidden);
    for (std::uint32_t i = 0; i < pairs; ++i) {
        const Pair& pair = request->pairs[i];
        fake_expert(request->layer, pair.expert,
                    floats(request->rows).subspan(pair.row * request->hidden, request->hidden),
                    std::span(output).first(request->hidden));
        if (lies_) output[0] += 1000;
        encode_rows(encoding, hidden, output, buffer.rows.subspan(i * size, size));
    }
    if (fault == Fault::bad_exponent && rounded) {
        constexpr std::int16_t kExponent = 200;
        std::memcpy(buffer.rows.data() + buffer.rows.size() - size, &kExponent, sizeof kExponent);
    }
    set_result_times(buffer, 1, 1);
    std::vector<Frame> signatures;
    if (pairs == request->pairs.size() && hidden == request->hidden) {
        signatures = attest(connection, frame.request, *request, encoding, buffer.rows);
    }
    const auto send_signed = [&](Frame result) {
        if (options_.signing == Signing::before && !signatures.empty()) std::swap(result, signatures.front());
        connection.send(std::move(result));
        for (Frame& signature : signatures)
            connection.send(std::move(signature));
    };
    Frame answer{FrameType::result, frame.request, std::move(buffer.payload)};
    switch (fault) {
        case Fault::silent:
            break;
        case Fault::late:
            signatures.insert(signatures.begin(), std::move(answer));
            answer_later(keep, std::move(signatures));
            break;
        case Fault::error:
            error(options_.error_code, "as you asked");
            break;
        case Fault::close:
            connection.close({ErrorKind::unavailable, "as you asked"});
            break;
        case Fault::garbage:
            answer.payload.assign(answer.payload.size(), std::byte{0xA5});
            connection.send(std::move(answer));
            break;
        case Fault::duplicate:
            connection.send(answer);
            send_signed(std::move(answer));
            break;
        case Fault::unknown_id:
            connection.send({FrameType::result, answer.request + 1000, answer.payload});
            send_signed(std::move(answer));
            break;
        case Fault::drain:
            connection.send({FrameType::drain, 0, {}});
            send_signed(std::move(answer));
            connection.close({ErrorKind::unavailable, "drained"});
            break;
        default:
            send_signed(std::move(answer));
    }
}

// The ATTEST frames of one answer.
std::vector<Frame> FakeWorker::attest(const Connection& connection, std::uint64_t request, const Compute& compute,
                                      RowEncoding encoding, ByteSpan rows) const {
    const Signing signing = options_.signing;
    const std::optional<NodeId> backbone = connection.peer();
    if (!identity_ || !backbone || signing == Signing::never) return {};
    if (signing == Signing::garbage) return {{FrameType::attest, 0, ByteVector(200, std::byte{0xA5})}};
    AttestedAnswers answers{request, 0, {}};
    const std::size_t question_size = row_bytes(compute.encoding, compute.hidden);
    const std::size_t answer_size = row_bytes(encoding, compute.hidden);
    for (std::size_t i = 0; i < compute.pairs.size(); ++i) {
        const Pair& pair = compute.pairs[i];
        const AnswerTerms terms{compute.layer, pair.expert, compute.hidden, compute.recipe, compute.encoding, encoding};
        const ByteSpan answer = rows.subspan(i * answer_size, answer_size);
        ByteVector signed_answer(answer.begin(), answer.end());
        if (signing == Signing::other_answer) signed_answer.back() ^= std::byte{1};
        answers.digests.push_back(
            answer_digest(terms, sha256(compute.rows.subspan(pair.row * question_size, question_size)), signed_answer));
    }
    std::vector<AttestedAnswers> all = {answers};
    if (signing == Signing::unknown_requests) all = {{request + 1'000'000, 0, answers.digests}, answers, {1, 7, {{}}}};
    const Identity& identity = signing == Signing::other_key ? *other_identity_ : *identity_;
    ByteVector payload = encode_unsigned(public_key(identity), all);
    const AttestationContext context{options_.model_id, *backbone, options_.arithmetic};
    Signature signature = sign(identity, attested_text(context, payload));
    if (signing == Signing::bad_signature) signature[3] ^= std::byte{1};
    payload.insert(payload.end(), signature.begin(), signature.end());
    return std::vector<Frame>(signing == Signing::twice ? 2 : 1, Frame{FrameType::attest, 0, payload});
}

void FakeWorker::answer_later(const ConnectionPtr& connection, std::vector<Frame> frames) {
    auto timer = std::make_shared<boost::asio::steady_timer>(context_, options_.lateness);
    timer->async_wait([this, timer, weak = std::weak_ptr(connection), frames](boost::system::error_code error) {
        ConnectionPtr still = weak.lock();
        if (error || !still) return;
        {
            std::scoped_lock lock(mutex_);
            unanswered_ -= std::min(unanswered_, 1U);
        }
        for (const Frame& frame : frames)
            still->send(frame);
    });
}

// ---- RawWorker -----------------------------------------------------------------------------------------------------

namespace {

bool read_all(int socket, std::span<std::byte> into) {
    while (!into.empty()) {
        ssize_t got = ::recv(socket, into.data(), into.size(), 0);
        if (got <= 0) return false;
        into = into.subspan(static_cast<std::size_t>(got));
    }
    return true;
}

}  // namespace

bool write_all(int socket, ByteSpan bytes) {
    while (!bytes.empty()) {
        ssize_t put = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return true;
}

ByteVector frame_bytes(FrameType type, std::uint64_t request, const ByteVector& payload) {
    auto header = encode_header({type, true, request, payload.size(), payload_checksum(payload)});
    ByteVector bytes(header.size() + payload.size());
    std::copy(header.begin(), header.end(), bytes.begin());
    std::copy(payload.begin(), payload.end(), bytes.begin() + kFrameHeaderBytes);
    return bytes;
}

std::optional<Frame> read_frame(int socket) {
    std::array<std::byte, kFrameHeaderBytes> bytes{};
    if (!read_all(socket, bytes)) return std::nullopt;
    Result<FrameHeader> header = decode_header(bytes, kPayloadLimit);
    if (!header) return std::nullopt;
    Frame frame{header->type, header->request, ByteVector(header->payload_length)};
    if (!read_all(socket, frame.payload)) return std::nullopt;
    return frame;
}

RawWorker::RawWorker(std::function<void(int)> after_hello) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listening_, generic, size) != 0 || ::listen(listening_, 16) != 0) std::abort();
    ::getsockname(listening_, generic, &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this, after_hello = std::move(after_hello)](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            pollfd waiting{listening_, POLLIN, 0};
            if (::poll(&waiting, 1, 20) <= 0) continue;
            int socket = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
            if (socket < 0) continue;
            if (read_frame(socket)) after_hello(socket);
            ::close(socket);
        }
    });
}

RawWorker::~RawWorker() {
    thread_.request_stop();
    thread_.join();
    ::close(listening_);
}

WorkerEndpoint RawWorker::endpoint() const {
    return {{"127.0.0.1", port_}, std::nullopt};
}

// ---- the dispatcher ------------------------------------------------------------------------------------------------

SwarmConfig test_config(const std::vector<const FakeWorker*>& workers, milliseconds deadline) {
    SwarmConfig config;
    for (const FakeWorker* worker : workers)
        config.workers.push_back(worker->endpoint());
    config.identity = std::make_shared<const Identity>(*Identity::generate());
    config.model_id = test_model();
    config.arithmetic = Arithmetic::ggml_cpu;
    config.deadline = deadline;
    config.timing.connect = milliseconds(10'000);
    config.timing.reconnect_first = milliseconds(10);
    config.timing.reconnect_longest = milliseconds(100);
    config.timing.refused_retry = milliseconds(100);
    config.timing.set_aside_first = milliseconds(10);
    config.timing.set_aside_longest = milliseconds(100);
    config.timing.refresh = milliseconds(20);
    config.timing.shortest_deadline = std::min(deadline, milliseconds(1000));
    return config;
}

std::unique_ptr<Dispatcher> make_dispatcher(SwarmConfig config) {
    auto dispatcher = Dispatcher::create(std::move(config));
    if (!dispatcher) ADD_FAILURE() << dispatcher.error().message;
    return dispatcher ? std::move(*dispatcher) : nullptr;
}

bool eventually(const std::function<bool()>& condition) {
    auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
}

}  // namespace kvasir::test
