#include "worker/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace kvasir {

namespace {

// A result frame's payload beyond its rows, generously.
constexpr std::uint64_t kResultOverhead = 256;

// What decoding asks for: a token or two.
constexpr std::size_t kPromptPairs = 16;

template <class... Args>
tl::unexpected<WireError> refusal(WireErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    return tl::unexpected<WireError>(WireError{code, fmt::format(format, std::forward<Args>(args)...)});
}

// For the log, of what the throttle has kept back.
std::string and_before(std::uint64_t count) {
    return count > 0 ? fmt::format(" (and {} before it)", count) : "";
}

std::optional<Arithmetic> first_known(std::span<const std::string> names) {
    for (const std::string& name : names) {
        if (const std::optional<Arithmetic> known = find_arithmetic(name)) return known;
    }
    return std::nullopt;
}

std::vector<std::string> wire_names() {
    std::vector<std::string> names;
    for (Arithmetic arithmetic : known_arithmetics())
        names.push_back(wire_name(arithmetic));
    return names;
}

std::string without_port(const std::string& address) {
    return address.substr(0, address.rfind(':'));
}

const char* sender_error(FrameType type) {
    switch (type) {
        case FrameType::welcome:
        case FrameType::result:
        case FrameType::drain:
        case FrameType::update:
        case FrameType::attest:
            return "a frame that only a worker sends";
        default:
            return "a frame of a type this worker does not know";
    }
}

}  // namespace

Session::Session(ConnectionPtr connection, const SessionContext& context)
    : connection_(std::move(connection)),
      context_(context),
      name_(connection_->peer() ? to_hex(*connection_->peer()) : connection_->peer_address()),
      source_(connection_->peer() ? name_ : without_port(name_)) {}

void Session::start(std::function<void(const std::shared_ptr<Session>&)> on_end) {
    on_end_ = std::move(on_end);
    connection_->start([self = shared_from_this()](Frame&& frame) { self->on_frame(std::move(frame)); },
                       [self = shared_from_this()](const Error& reason) { self->on_close(reason); });
}

void Session::tick(Clock::time_point now) {
    const std::uint64_t bytes = connection_->bytes_received();
    bool ping = false;
    std::string end;
    {
        std::scoped_lock lock(mutex_);
        if (ended_) return;
        if (bytes != bytes_seen_) {
            bytes_seen_ = bytes;
            last_sign_ = now;
        }
        const Clock::duration silent = now - last_sign_;
        if (!greeted_ && now - opened_ > context_.timing.hello) {
            end = "no HELLO in time";
        } else if (silent > context_.timing.dead) {
            end = "no sign of life";
        } else if (greeted_ && silent > context_.timing.idle && now - last_ping_ > context_.timing.idle) {
            last_ping_ = now;
            ping = true;
        }
    }
    if (!end.empty()) close({ErrorKind::unavailable, end});
    if (ping) connection_->send({FrameType::ping, 0, {}});
    if (const auto signs = signer()) attest(signs->flush());
}

void Session::drain() {
    {
        std::scoped_lock lock(mutex_);
        draining_ = true;
        if (!greeted_) return;
    }
    connection_->send({FrameType::drain, 0, {}});
}

void Session::close(Error reason) {
    if (const auto signs = signer()) attest(signs->flush());
    connection_->close(std::move(reason));
}

void Session::on_close(const Error& reason) {
    std::unordered_map<std::uint64_t, JobPtr> abandoned;
    {
        std::scoped_lock lock(mutex_);
        ended_ = true;
        abandoned.swap(pending_);
    }
    for (const auto& [request, job] : abandoned)
        context_.batcher->cancel(job.get());
    if (greeted_) {
        spdlog::info("backbone {}: gone: {}", name_, reason.message);
    } else if (auto kept_back = context_.refusals->admit(source_)) {
        spdlog::warn("{}: gone before HELLO: {}{}", name_, reason.message, and_before(*kept_back));
    }
    auto on_end = std::exchange(on_end_, nullptr);
    if (on_end) on_end(shared_from_this());
}

void Session::on_frame(Frame&& frame) {
    switch (frame.type) {
        case FrameType::hello:
            return on_hello(frame);
        case FrameType::compute:
            return on_compute(std::move(frame));
        case FrameType::cancel:
            return on_cancel(frame.request);
        case FrameType::ping:
            connection_->send(
                {FrameType::pong, frame.request, encode(Pong{context_.batcher->waiting(), context_.session_count()})});
            return;
        case FrameType::pong:
            return;  // a sign of life, which its bytes were already
        case FrameType::error: {
            Result<WireError> error = decode_error(frame.payload);
            if (error && context_.refusals->admit(source_)) spdlog::warn("backbone {}: says: {}", name_, error->text);
            return;
        }
        default:
            return refuse(frame.request, {WireErrorCode::bad_request, sender_error(frame.type)});
    }
}

void Session::on_hello(const Frame& frame) {
    bool draining = false;
    bool greeted = false;
    {
        std::scoped_lock lock(mutex_);
        draining = draining_;
        greeted = greeted_;
    }
    if (draining) return refuse(0, {WireErrorCode::draining, "this worker is finishing"});
    if (greeted) return refuse(0, {WireErrorCode::bad_request, "a second HELLO"});
    Result<Hello> hello = decode_hello(frame.payload);
    if (!hello) return refuse(0, {WireErrorCode::bad_request, hello.error().message});
    if (hello->oldest_version > kProtocolVersion || hello->newest_version < kProtocolVersion) {
        return refuse(
            0, {WireErrorCode::version, fmt::format("protocol version: this worker speaks {}, the backbone {} to {}",
                                                    kProtocolVersion, hello->oldest_version, hello->newest_version)});
    }
    const std::optional<Arithmetic> arithmetic = first_known(hello->arithmetics);
    if (!arithmetic) {
        return refuse(0, {WireErrorCode::arithmetic,
                          fmt::format("arithmetic: this worker computes in {}, the backbone accepts {}",
                                      fmt::join(wire_names(), " and "), fmt::join(hello->arithmetics, ", "))});
    }
    if (hello->model_id != context_.store->model_id()) {
        return refuse(0,
                      {WireErrorCode::model, fmt::format("model id: this worker holds {}, the backbone runs {}",
                                                         to_hex(context_.store->model_id()), to_hex(hello->model_id))});
    }
    {
        std::scoped_lock lock(mutex_);
        greeted_ = true;
        arithmetic_ = *arithmetic;
        if (const auto backbone = connection_->peer(); backbone && context_.identity) {
            signer_ = std::make_shared<AnswerSigner>(
                context_.identity, AttestationContext{hello->model_id, *backbone, wire_name(*arithmetic)});
        }
        result_limit_ = std::min(hello->payload_limit, context_.payload_limit + kResultOverhead);
    }
    connection_->set_payload_limit(context_.payload_limit);
    Welcome welcome;
    welcome.build = context_.build;
    welcome.arithmetic = wire_name(*arithmetic);
    welcome.model_id = context_.store->model_id();
    welcome.epoch = context_.store->epoch();
    welcome.pieces = context_.store->pieces();
    welcome.payload_limit = context_.payload_limit;
    welcome.window = context_.window;
    welcome.threads = context_.threads;
    connection_->send({FrameType::welcome, frame.request, encode(welcome)});
    spdlog::info("backbone {}: serving it in {} ({}, from {})", name_, short_name(*arithmetic), hello->build,
                 connection_->peer_address());
}

// An error of no request (id 0) ends the connection.
void Session::refuse(std::uint64_t request, const WireError& error) {
    if (auto kept_back = context_.refusals->admit(source_)) {
        spdlog::warn("backbone {}: request refused ({}): {}{}", name_, error_code_name(error.code), error.text,
                     and_before(*kept_back));
    }
    connection_->send({FrameType::error, request, encode(error)});
    if (request == 0) connection_->close({ErrorKind::invalid, fmt::format("refused: {}", error.text)});
}

void Session::on_cancel(std::uint64_t request) {
    JobPtr job;
    {
        std::scoped_lock lock(mutex_);
        auto found = pending_.find(request);
        if (found == pending_.end()) return;  // answered already
        job = std::move(found->second);
        pending_.erase(found);
    }
    context_.batcher->cancel(job.get());
}

void Session::on_compute(Frame&& frame) {
    const std::uint64_t request = frame.request;
    auto job = make_job(std::move(frame));
    if (!job) return refuse(request, job.error());
    submit(request, std::move(*job));
}

tl::expected<JobPtr, WireError> Session::make_job(Frame&& frame) {
    std::uint64_t result_limit = 0;
    auto job = std::make_shared<Job>();
    {
        std::scoped_lock lock(mutex_);
        if (!greeted_) return refusal(WireErrorCode::bad_request, "COMPUTE before HELLO");
        if (draining_) return refusal(WireErrorCode::draining, "this worker is finishing");
        if (frame.request == 0 || pending_.contains(frame.request)) {
            return refusal(WireErrorCode::bad_request, "request id {} is 0 or in use", frame.request);
        }
        if (pending_.size() >= context_.window) {
            return refusal(WireErrorCode::overloaded, "{} requests are unanswered, the window is {}", pending_.size(),
                           context_.window);
        }
        result_limit = result_limit_;
        job->arithmetic = arithmetic_;
    }
    job->payload = std::move(frame.payload);
    Result<Compute> compute = decode_compute(job->payload);
    if (!compute) {
        const bool recipe = compute.error().kind == ErrorKind::unsupported;
        return refusal(recipe ? WireErrorCode::recipe : WireErrorCode::bad_request, "{}", compute.error().message);
    }
    job->compute = *compute;
    if (compute->epoch != context_.store->epoch()) {
        return refusal(WireErrorCode::epoch, "epoch {}: the pieces are those of epoch {}", compute->epoch,
                       context_.store->epoch());
    }
    if (compute->pairs.empty()) return refusal(WireErrorCode::bad_request, "no pairs");
    const std::size_t result_row = row_bytes(output_encoding(job->arithmetic), compute->hidden);
    if (compute->pairs.size() * result_row + kResultOverhead > result_limit) {
        return refusal(WireErrorCode::too_large, "{} rows of {} do not fit the answer's limit of {} bytes",
                       compute->pairs.size(), compute->hidden, result_limit);
    }
    if (auto placed = place_pairs(*job); !placed) return tl::unexpected<WireError>(placed.error());
    return job;
}

// Finds each pair's piece, and asks of every piece in question whether the recipe suits it.
tl::expected<void, WireError> Session::place_pairs(Job& job) const {
    const Compute& compute = job.compute;
    const PieceStore& store = *context_.store;
    if (!store.holds_layer(compute.layer))
        return refusal(WireErrorCode::not_held, "layer {} is not held", compute.layer);
    const std::size_t row_count = compute.rows.size() / row_bytes(compute.encoding, compute.hidden);
    for (std::size_t i = 0; i < compute.pairs.size(); ++i) {
        const Pair& pair = compute.pairs[i];
        if (pair.row >= row_count) return refusal(WireErrorCode::bad_request, "row {} of {}", pair.row, row_count);
        const std::optional<PieceStore::Place> place = store.find(compute.layer, pair.expert);
        if (!place) {
            return refusal(WireErrorCode::not_held, "layer {}: expert {} is not held", compute.layer, pair.expert);
        }
        auto part = std::ranges::find(job.parts, place->held, &JobPart::held);
        if (part == job.parts.end()) part = job.parts.insert(part, JobPart{place->held, {}, {}});
        part->pairs.push_back({pair.row, place->local});
        part->places.push_back(static_cast<std::uint32_t>(i));
    }
    for (const JobPart& part : job.parts) {
        if (part.held->weights.hidden != compute.hidden) {
            return refusal(WireErrorCode::bad_request, "rows of {}, layer {} has {} columns", compute.hidden,
                           compute.layer, part.held->weights.hidden);
        }
        if (Status suits = check_recipe(job.arithmetic, compute.recipe, part.held->weights); !suits) {
            return refusal(WireErrorCode::recipe, "layer {}: {}", compute.layer, suits.error().message);
        }
        if (compute.encoding != input_encoding(job.arithmetic, part.held->weights)) {
            return refusal(WireErrorCode::bad_request, "layer {}: row encoding {} is not what its weights take in {}",
                           compute.layer, static_cast<int>(compute.encoding), short_name(job.arithmetic));
        }
    }
    return {};
}

void Session::submit(std::uint64_t request, JobPtr job) {
    // The job must not keep itself alive; a session that ended has no use for the answer.
    job->done = [weak = weak_from_this(), request, raw = job.get()](Result<ResultBuffer> result) {
        if (auto self = weak.lock()) self->answer(request, raw, std::move(result));
    };
    {
        std::scoped_lock lock(mutex_);
        if (ended_) return;
        pending_.emplace(request, job);
    }
    // With nobody to share a batch with, a small request is answered soonest by the thread that read it. A large one
    // would keep that thread from its other duties, pings among them.
    const bool alone = job->compute.pairs.size() <= kPromptPairs && context_.session_count() == 1;
    if (alone && context_.batcher->compute_now(job)) return;
    const Job* raw = job.get();
    Status accepted = context_.batcher->submit(std::move(job));
    if (!accepted) answer(request, raw, fail(accepted.error()));
}

// `job` tells an answer that is still wanted from one whose request id was cancelled and used again.
void Session::answer(std::uint64_t request, const Job* job, Result<ResultBuffer> result) {
    bool draining = false;
    JobPtr answered;
    {
        std::scoped_lock lock(mutex_);
        auto found = pending_.find(request);
        if (found == pending_.end() || found->second.get() != job) return;
        answered = std::move(found->second);
        pending_.erase(found);
        draining = draining_;
    }
    if (result) return send_result(request, *answered, std::move(result->payload), result->rows);
    WireErrorCode code = WireErrorCode::internal;
    if (result.error().kind == ErrorKind::unavailable)
        code = draining ? WireErrorCode::draining : WireErrorCode::overloaded;
    refuse(request, {code, result.error().message});
}

// The attestation follows the answer: one that came first would be of nothing.
void Session::send_result(std::uint64_t request, const Job& job, ByteVector payload, ByteSpan rows) {
    const std::shared_ptr<AnswerSigner> signs = signer();
    std::vector<Digest> digests;
    if (signs) digests = digest_answers(job.compute, output_encoding(job.arithmetic), rows);
    if (!connection_->send({FrameType::result, request, std::move(payload)})) {
        return connection_->close({ErrorKind::unavailable, "the backbone does not take its answers"});
    }
    if (signs) attest(signs->add(request, std::move(digests), Clock::now()));
}

void Session::attest(std::vector<ByteVector> payloads) {
    for (ByteVector& payload : payloads)
        connection_->send({FrameType::attest, 0, std::move(payload)});
}

std::shared_ptr<AnswerSigner> Session::signer() {
    std::scoped_lock lock(mutex_);
    return signer_;
}

}  // namespace kvasir
