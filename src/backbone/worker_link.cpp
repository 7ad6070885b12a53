#include "backbone/worker_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "expert/layer_weights.h"

namespace kvasir {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

// What a request or result needs besides its rows and pairs, generously.
constexpr std::uint64_t kMessageOverhead = 4096;
constexpr std::uint32_t kMostStrikes = 16;
constexpr std::size_t kMostLate = 16;

double seconds(steady_clock::duration time) {
    return duration<double>(time).count();
}

steady_clock::duration from_seconds(double time) {
    return duration_cast<steady_clock::duration>(duration<double>(time));
}

// first * 2^(times - 1), at most `longest`.
double backed_off(std::chrono::milliseconds first, std::chrono::milliseconds longest, std::uint32_t times) {
    double grown = duration<double>(first).count() * static_cast<double>(1ULL << std::min(times, 32U)) / 2;
    return std::min(grown, duration<double>(longest).count());
}

// Trying again soon won't help: one of the two sides is configured wrongly.
bool is_refusal(ErrorKind kind) {
    return kind == ErrorKind::mismatch || kind == ErrorKind::unsupported || kind == ErrorKind::usage;
}

bool is_refusal(WireErrorCode code) {
    return code == WireErrorCode::version || code == WireErrorCode::arithmetic || code == WireErrorCode::model ||
           code == WireErrorCode::not_admitted;
}

}  // namespace

WorkerLink::WorkerLink(boost::asio::io_context& context, LinkConfig config, std::shared_ptr<ProbeShapes> shapes,
                       std::function<void()> changed)
    : context_(context),
      config_(std::move(config)),
      name_(config_.endpoint.address.text()),
      shapes_(std::move(shapes)),
      changed_(std::move(changed)),
      random_(static_cast<std::uint32_t>(steady_clock::now().time_since_epoch().count())) {}

// ---- the connection ------------------------------------------------------------------------------------------------

void WorkerLink::tick(SteadyTime now) {
    Aftermath after;
    std::unique_lock lock(mutex_);
    switch (phase_) {
        case Phase::idle: {
            if (now < retry_at_) break;
            phase_ = Phase::connecting;
            std::uint64_t generation = ++generation_;
            lock.unlock();
            connect(context_, config_.endpoint.address, config_.endpoint.id ? config_.identity : nullptr,
                    config_.endpoint.id, config_.timing.connect,
                    [self = shared_from_this(), generation](Result<ConnectionPtr> result) {
                        self->connected(generation, std::move(result));
                    });
            return;
        }
        case Phase::handshake:
            if (now < handshake_until_) break;
            lose({ErrorKind::unavailable, "no answer to HELLO"}, false, after);
            break;
        case Phase::up:
            watch_liveness(now, after);
            if (phase_ == Phase::up) demand_signatures(now, after);
            if (phase_ == Phase::up && !draining_) probe_or_serve(now);
            announce(after);
            break;
        case Phase::connecting:
        case Phase::stopped:
            break;
    }
    lock.unlock();
    finish(after);
}

void WorkerLink::connected(std::uint64_t generation, Result<ConnectionPtr> result) {
    Aftermath after;
    std::unique_lock lock(mutex_);
    if (generation != generation_ || phase_ != Phase::connecting) {
        lock.unlock();
        if (result) (*result)->close({ErrorKind::unavailable, "no longer wanted"});
        return;
    }
    if (!result) {
        lose(result.error(), is_refusal(result.error().kind), after);
        lock.unlock();
        finish(after);
        return;
    }
    ConnectionPtr connection = *result;
    connection_ = connection;
    phase_ = Phase::handshake;
    handshake_until_ = steady_clock::now() + config_.timing.connect;
    lock.unlock();
    connection->start(
        [self = shared_from_this(), generation](Frame&& frame) { self->on_frame(generation, std::move(frame)); },
        [self = shared_from_this(), generation](const Error& error) { self->on_close(generation, error); });
    connection->send({FrameType::hello, 0, encode_hello()});
}

ByteVector WorkerLink::encode_hello() const {
    Hello hello;
    hello.build = "kvasir " KVASIR_VERSION;
    hello.arithmetics = {wire_name(config_.arithmetic)};
    hello.model_id = config_.model_id;
    hello.payload_limit = kPayloadLimit;
    return encode(hello);
}

void WorkerLink::on_close(std::uint64_t generation, const Error& error) {
    Aftermath after;
    {
        std::scoped_lock lock(mutex_);
        if (generation != generation_) return;
        bool refused = phase_ == Phase::handshake && is_refusal(error.kind);
        lose(error, refused, after);
    }
    finish(after);
}

void WorkerLink::lose(const Error& reason, bool refused, Aftermath& after) {
    SteadyTime now = steady_clock::now();
    if (phase_ == Phase::up && !draining_) {
        ++failures_;
        set_aside(reason.message, now);
    }
    if (connection_) {
        earlier_sent_ += connection_->bytes_sent();
        earlier_received_ += connection_->bytes_received();
    }
    after.to_close = std::exchange(connection_, nullptr);
    after.reason = reason;
    for (auto& [id, request] : requests_)
        after.failed.push_back(std::move(request));
    requests_.clear();
    late_.clear();
    for (auto& [id, open] : unsigned_)
        after.unproven.push_back(std::move(open));
    unsigned_.clear();
    unsigned_seen_ = 0;
    pairs_in_flight_ = 0;
    probe_.reset();
    pieces_.clear();
    draining_ = false;
    pinged_.reset();
    ++generation_;
    if (phase_ != Phase::stopped) phase_ = Phase::idle;
    refused_ = refused;
    lost_in_a_row_ = std::min(lost_in_a_row_ + 1, 32U);
    double wait = refused
                      ? seconds(config_.timing.refused_retry)
                      : backed_off(config_.timing.reconnect_first, config_.timing.reconnect_longest, lost_in_a_row_);
    retry_at_ = now + from_seconds(jitter(wait));
    reason_ = reason.message;
    announce(after);
    after.changed = true;  // its pieces are gone, whatever its state was
}

void WorkerLink::stop() {
    Aftermath after;
    {
        std::scoped_lock lock(mutex_);
        phase_ = Phase::stopped;
        lose({ErrorKind::unavailable, "the backbone stops"}, false, after);
        after.changed = false;
    }
    finish(after);
}

void WorkerLink::finish(Aftermath& after) {
    for (Unsigned& open : after.unproven)
        submit(std::move(open), nullptr);
    // Whoever learns of a failure must find the new state of things.
    if (after.changed) changed_();
    for (const Request& request : after.failed) {
        if (request.handler) request.handler->failed(request.ticket);
    }
    if (after.to_close) after.to_close->close(after.reason);
}

void WorkerLink::watch_liveness(SteadyTime now, Aftermath& after) {
    std::uint64_t bytes = connection_->bytes_received();
    if (bytes != seen_bytes_) {
        seen_bytes_ = bytes;
        last_sign_ = now;
        pinged_.reset();
    }
    if (pinged_ && now - *pinged_ > config_.timing.ping_deadline) {
        lose({ErrorKind::unavailable, "no answer to a ping"}, false, after);
    } else if (!pinged_ && now - last_sign_ > config_.timing.ping_interval) {
        pinged_ = now;
        connection_->send({FrameType::ping, 0, {}});
    }
}

// ---- frames --------------------------------------------------------------------------------------------------------

void WorkerLink::on_frame(std::uint64_t generation, Frame&& frame) {
    Aftermath after;
    if (frame.type == FrameType::result) {
        handle_result(generation, frame, after);
        finish(after);
        return;
    }
    {
        std::scoped_lock lock(mutex_);
        if (generation != generation_) return;
        bool greeting = frame.type == FrameType::welcome || frame.type == FrameType::error;
        if (phase_ == Phase::handshake && !greeting) {
            lose({ErrorKind::invalid, "sent another frame before WELCOME"}, false, after);
        } else {
            switch (frame.type) {
                case FrameType::welcome:
                    handle_welcome(frame, after);
                    break;
                case FrameType::error:
                    handle_error(frame, after);
                    break;
                case FrameType::update:
                    handle_update(frame, after);
                    break;
                case FrameType::attest:
                    handle_attestation(frame, after);
                    break;
                case FrameType::drain:
                    draining_ = true;
                    reason_ = "finishes what it has, takes nothing new";
                    break;
                case FrameType::ping:
                    connection_->send({FrameType::pong, frame.request, encode(Pong{})});
                    break;
                case FrameType::pong:
                    break;  // a sign of life, which the bytes were already
                default:
                    lose({ErrorKind::invalid, "sent a frame that only a backbone sends"}, false, after);
            }
        }
        announce(after);
    }
    finish(after);
}

Status WorkerLink::check_welcome(const Welcome& welcome) const {
    if (welcome.arithmetic != wire_name(config_.arithmetic)) {
        return fail(ErrorKind::unsupported, "computes in '{}', this backbone needs '{}'", welcome.arithmetic,
                    wire_name(config_.arithmetic));
    }
    if (welcome.model_id != config_.model_id) {
        return fail(ErrorKind::mismatch, "serves model {}, this backbone runs {}", to_hex(welcome.model_id),
                    to_hex(config_.model_id));
    }
    return {};
}

void WorkerLink::handle_welcome(const Frame& frame, Aftermath& after) {
    if (phase_ != Phase::handshake) return lose({ErrorKind::invalid, "sent a second WELCOME"}, false, after);
    Result<Welcome> welcome = decode_welcome(frame.payload);
    if (!welcome) return lose(welcome.error().within("its WELCOME"), is_refusal(welcome.error().kind), after);
    if (Status checked = check_welcome(*welcome); !checked) {
        return lose(checked.error(), is_refusal(checked.error().kind), after);
    }
    SteadyTime now = steady_clock::now();
    phase_ = Phase::up;
    refused_ = false;
    draining_ = false;
    epoch_ = welcome->epoch;
    pieces_ = normalized(std::move(welcome->pieces));
    their_limit_ = std::min(welcome->payload_limit, kPayloadLimit);
    our_limit_ = kControlPayloadLimit;
    window_ = welcome->window;
    seen_bytes_ = connection_->bytes_received();
    last_sign_ = now;
    if (!on_probation_) reason_.clear();
    after.changed = true;
}

void WorkerLink::handle_update(const Frame& frame, Aftermath& after) {
    Result<Update> update = decode_update(frame.payload);
    if (!update) return lose(update.error().within("its UPDATE"), false, after);
    epoch_ = update->epoch;
    pieces_ = normalized(std::move(update->pieces));
    after.changed = true;
}

void WorkerLink::handle_error(const Frame& frame, Aftermath& after) {
    SteadyTime now = steady_clock::now();
    Result<WireError> error = decode_error(frame.payload);
    if (!error) return lose(error.error().within("its ERROR"), false, after);
    std::string text = fmt::format("answered '{}': {}", error_code_name(error->code), error->text);
    if (frame.request == 0) {
        bool refused = phase_ == Phase::handshake && is_refusal(error->code);
        return lose({ErrorKind::unavailable, std::move(text)}, refused, after);
    }
    std::optional<Request> request = take_request(frame.request);
    if (!request) return;  // late: cancelled meanwhile
    bool pieces_changed = request->epoch != epoch_;
    switch (error->code) {
        case WireErrorCode::draining:
            draining_ = true;
            reason_ = "finishes what it has, takes nothing new";
            break;
        case WireErrorCode::recipe:
            ++failures_;
            drop_layer(request->layer);
            spdlog::warn("worker {}: layer {} is computed elsewhere: {}", name_, request->layer, text);
            after.changed = true;
            break;
        case WireErrorCode::epoch:
        case WireErrorCode::not_held:
            if (pieces_changed) break;
            [[fallthrough]];
        default:
            ++failures_;
            set_aside(std::move(text), now);
    }
    after.failed.push_back(std::move(*request));
}

void WorkerLink::handle_result(std::uint64_t generation, const Frame& frame, Aftermath& after) {
    SteadyTime now = steady_clock::now();
    std::optional<Request> request;
    std::optional<Request> late_request;
    bool probe = false;
    {
        std::scoped_lock lock(mutex_);
        if (generation != generation_) return;
        probe = probe_ == frame.request;
        request = take_request(frame.request);
        if (auto late = late_.find(frame.request); !request && late != late_.end()) {
            late_request = std::move(late->second);
            late_.erase(late);
        }
    }
    if (late_request) {
        Result<Answer> answer = read_answer(frame, *late_request);
        if (answer) {
            fill_samples(late_request->samples, answer->encoded);
            audit(generation, frame.request, std::move(late_request->samples), false);
        }
    }
    if (!request) return;  // late or made up: of no use

    Result<Answer> answer = read_answer(frame, *request);
    if (answer) fill_samples(request->samples, answer->encoded);
    const bool trusted = answer && trusted_now(request->samples);
    {
        std::scoped_lock lock(mutex_);
        if (answer) {
            good_answer(*request, probe, answer->compute, now);
            if (!trusted) doubt(now);
            announce(after);
        } else if (generation == generation_) {
            lose(answer.error().within("its RESULT"), false, after);
        }
    }
    if (answer) audit(generation, frame.request, std::move(request->samples), !trusted);
    if (!request->handler) return;
    if (trusted) {
        request->handler->answered(request->ticket, answer->rows, answer->compute);
    } else {
        request->handler->failed(request->ticket);
    }
}

Result<WorkerLink::Answer> WorkerLink::read_answer(const Frame& frame, const Request& request) const {
    Result<ComputeResult> result = decode_result(frame.payload);
    if (!result) return fail(result.error());
    const RowEncoding encoding = output_encoding(config_.arithmetic);
    if (result->encoding != encoding) return fail(ErrorKind::invalid, "rows in another encoding than was agreed");
    if (result->hidden != request.hidden) {
        return fail(ErrorKind::invalid, "rows of {} values, {} were asked for", result->hidden, request.hidden);
    }
    const std::size_t values = std::size_t{request.pairs} * request.hidden;
    if (result->rows.size() != request.pairs * row_bytes(encoding, request.hidden)) {
        return fail(ErrorKind::invalid, "{} bytes of rows, {} rows of {} values were asked for", result->rows.size(),
                    request.pairs, request.hidden);
    }
    Answer answer;
    answer.compute = result->compute_us * 1e-6;
    answer.encoded = result->rows;
    if (encoding == RowEncoding::f32) {
        answer.rows = {reinterpret_cast<const float*>(result->rows.data()), values};
        return answer;
    }
    answer.decoded.resize(values);
    Status decoded = decode_results(encoding, request.hidden, result->rows, answer.decoded);
    if (!decoded) return fail(decoded.error());
    answer.rows = answer.decoded;
    return answer;
}

// ---- requests ------------------------------------------------------------------------------------------------------

std::optional<Quote> WorkerLink::quote(std::uint32_t pairs, bool unmeasured) const {
    std::scoped_lock lock(mutex_);
    if (!usable() || (!unmeasured && !latency_.measured())) return std::nullopt;
    LatencyModel::Line line = latency_.line(pairs);
    return Quote{0, epoch_, line, line.per_pair * static_cast<double>(pairs_in_flight_)};
}

std::uint32_t WorkerLink::largest_request(const ExpertCall& call) const {
    std::scoped_lock lock(mutex_);
    const std::uint64_t larger = std::max(call.row_size(), row_bytes(output_encoding(config_.arithmetic), call.hidden));
    const std::uint64_t per_pair = larger + sizeof(Pair);
    std::uint64_t room = their_limit_ > kMessageOverhead ? their_limit_ - kMessageOverhead : 0;
    return static_cast<std::uint32_t>(room / per_pair);
}

std::optional<WorkerLink::Asked> WorkerLink::ask(const Compute& compute, std::shared_ptr<ReplyHandler> handler,
                                                 std::uint32_t ticket) {
    auto pairs = static_cast<std::uint32_t>(compute.pairs.size());
    Frame frame{FrameType::compute, 0, encode(compute)};
    std::vector<Sample> samples = draw_samples(compute, share_to_audit());
    ConnectionPtr connection;
    Asked asked;
    {
        std::scoped_lock lock(mutex_);
        if (!usable() || compute.epoch != epoch_ || frame.payload.size() > their_limit_) return std::nullopt;
        std::uint64_t expected =
            pairs * row_bytes(output_encoding(config_.arithmetic), compute.hidden) + kMessageOverhead;
        if (expected > our_limit_) {
            our_limit_ = expected;
            connection_->set_payload_limit(expected);
        }
        SteadyTime now = steady_clock::now();
        double deadline =
            latency_.deadline(pairs, seconds(config_.timing.shortest_deadline), seconds(config_.deadline));
        asked.deadline = now + from_seconds(deadline);
        asked.expected = latency_.measured() ? now + from_seconds(latency_.estimate(pairs)) : asked.deadline;
        asked.id = enter({std::move(handler), ticket, pairs, compute.hidden, epoch_, compute.layer, now, asked.deadline,
                          std::move(samples)});
        connection = connection_;
    }
    frame.request = asked.id;
    if (connection->send(std::move(frame))) return asked;
    std::scoped_lock lock(mutex_);
    // If it is gone already, the connection's end has reported it as failed: then it counts as sent.
    return take_request(asked.id) ? std::nullopt : std::optional(asked);
}

std::uint64_t WorkerLink::enter(Request request) {
    std::uint64_t id = next_id_++;
    pairs_in_flight_ += request.pairs;
    requests_.emplace(id, std::move(request));
    return id;
}

std::optional<WorkerLink::Request> WorkerLink::take_request(std::uint64_t id) {
    auto found = requests_.find(id);
    if (found == requests_.end()) return std::nullopt;
    Request request = std::move(found->second);
    requests_.erase(found);
    pairs_in_flight_ -= request.pairs;
    if (probe_ == id) probe_.reset();
    return request;
}

void WorkerLink::forget(std::uint64_t id) {
    if (connection_) connection_->send({FrameType::cancel, id, {}});
}

void WorkerLink::missed(std::uint64_t id) {
    Aftermath after;
    {
        std::scoped_lock lock(mutex_);
        auto found = requests_.find(id);
        if (found == requests_.end()) return;
        ++failures_;
        SteadyTime now = steady_clock::now();
        const Request& request = found->second;
        // Requests that were under way together miss together: one reason to be set aside.
        if (request.sent > last_strike_) {
            latency_.missed(request.pairs, seconds(now - request.sent));
            set_aside("does not answer in time", now);
        }
        announce(after);
    }
    finish(after);
}

void WorkerLink::cancel(std::uint64_t id) {
    std::scoped_lock lock(mutex_);
    std::optional<Request> request = take_request(id);
    if (!request) return;
    forget(id);
    if (request->samples.empty()) return;
    // Most workers heed a CANCEL and never answer.
    if (late_.size() >= kMostLate) late_.erase(late_.begin());
    request->handler = nullptr;
    late_.emplace(id, std::move(*request));
}

void WorkerLink::used(std::uint64_t pairs) {
    std::scoped_lock lock(mutex_);
    pairs_used_ += pairs;
}

// ---- trust ---------------------------------------------------------------------------------------------------------

bool WorkerLink::usable() const {
    return phase_ == Phase::up && !draining_ && !on_probation_ && !doubted_ && requests_.size() < window_;
}

void WorkerLink::set_aside(std::string reason, SteadyTime now) {
    on_probation_ = true;
    strikes_ = std::min(strikes_ + 1, kMostStrikes);
    last_strike_ = now;
    double wait = backed_off(config_.timing.set_aside_first, config_.timing.set_aside_longest, strikes_);
    probe_at_ = now + from_seconds(jitter(wait));
    reason_ = std::move(reason);
}

void WorkerLink::good_answer(const Request& request, bool probe, double compute, SteadyTime now) {
    double latency = seconds(now - request.sent);
    latency_.record(request.pairs, latency, compute);
    last_answer_ = now;
    lost_in_a_row_ = 0;
    if (probe && on_probation_ && !doubted_) {
        double deadline =
            latency_.deadline(request.pairs, seconds(config_.timing.shortest_deadline), seconds(config_.deadline));
        if (latency > deadline) return set_aside("answers too slowly", now);
        on_probation_ = false;
        reason_.clear();
    }
    if (strikes_ > 0 && !on_probation_ && now - last_strike_ > config_.timing.forgiven_after) {
        --strikes_;
        last_strike_ = now;
    }
}

void WorkerLink::probe_or_serve(SteadyTime now) {
    if (probe_) {
        if (now < requests_.at(*probe_).deadline) return;
        std::uint64_t id = *probe_;
        take_request(id);
        forget(id);
        ++failures_;
        return set_aside("does not answer in time", now);
    }
    if (doubted_ || (on_probation_ && now < probe_at_)) return;
    // Nobody asks it, perhaps because it was slow: is it still?
    bool forgotten = requests_.empty() && now - last_answer_ > config_.timing.refresh;
    std::uint64_t calls = shapes_->calls();
    if (!on_probation_ && (!forgotten || calls == calls_at_probe_)) return;
    std::optional<Probe> probe = shapes_->find(pieces_);
    if (probe) {
        calls_at_probe_ = calls;
        send_probe(*probe, now);
    } else if (on_probation_) {
        // No call of what it holds was ever seen, so nothing can be asked; the next call's deadline guards it.
        on_probation_ = false;
        reason_.clear();
    }
}

void WorkerLink::send_probe(const Probe& probe, SteadyTime now) {
    const ByteVector row(row_bytes(probe.encoding, probe.hidden));  // zeros, in every encoding
    Pair pair{0, probe.expert};
    Compute compute;
    compute.epoch = epoch_;
    compute.layer = probe.layer;
    compute.hidden = probe.hidden;
    compute.recipe = probe.recipe;
    compute.pairs = std::span(&pair, 1);
    compute.encoding = probe.encoding;
    compute.rows = row;
    // Nobody waits for it, so it has all the time there is: what it takes is worth knowing.
    probe_ = enter({nullptr, 0, 1, probe.hidden, epoch_, probe.layer, now, now + config_.deadline, {}});
    connection_->send({FrameType::compute, *probe_, encode(compute)});
}

void WorkerLink::drop_layer(std::uint32_t layer) {
    std::erase_if(pieces_, [layer](const Piece& piece) { return piece.layer == layer; });
}

double WorkerLink::jitter(double time) {
    return time * std::uniform_real_distribution<double>(0.75, 1.25)(random_);
}

}  // namespace kvasir
