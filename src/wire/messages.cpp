#include "wire/messages.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr std::uint64_t kNameLimit = 256;         // bytes of a build or arithmetic name
constexpr std::uint64_t kTextLimit = 2048;        // bytes of an error's text
constexpr std::uint64_t kArithmeticsLimit = 64;   // entries in a hello
constexpr std::uint64_t kIndexLimit = 1'000'000;  // layers and experts; as in gguf/piece.h
constexpr std::uint64_t kHiddenLimit = 1 << 20;
constexpr std::size_t kPieceBytes = 12;
constexpr std::size_t kComputeHeaderBytes = 48;
constexpr std::size_t kResultHeaderBytes = 32;
constexpr std::size_t kResultTimesOffset = 8;

// What text may hold is decided on both ends: an encoder cleans and cuts, a decoder refuses, so that a peer cannot
// write lines of its own into a log or a terminal.
bool is_control(char c) {
    auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
}

void write_text(ByteWriter& writer, std::string_view text, std::uint64_t limit) {
    std::string clean(text.substr(0, limit));
    std::replace_if(clean.begin(), clean.end(), is_control, ' ');
    writer.write_string<std::uint16_t>(clean);
}

Result<std::string> read_text(ByteReader& reader, std::uint64_t limit, std::string_view what) {
    std::string_view text = reader.read_string<std::uint16_t>(limit);
    if (reader.failed()) return fail(ErrorKind::invalid, "{} is cut short or longer than {} bytes", what, limit);
    if (std::any_of(text.begin(), text.end(), is_control)) {
        return fail(ErrorKind::invalid, "{} holds control characters", what);
    }
    return std::string(text);
}

void write_digest(ByteWriter& writer, const Digest& digest) {
    writer.append(digest);
}

Digest read_digest(ByteReader& reader) {
    Digest digest{};
    ByteSpan raw = reader.take(digest.size());
    std::copy(raw.begin(), raw.end(), digest.begin());
    return digest;
}

void write_zeros(ByteWriter& writer, std::size_t count) {
    writer.buffer().resize(writer.size() + count);
}

bool read_zeros(ByteReader& reader, std::size_t count) {
    ByteSpan raw = reader.take(count);
    return std::all_of(raw.begin(), raw.end(), [](std::byte b) { return b == std::byte{0}; });
}

void write_pieces(ByteWriter& writer, const std::vector<Piece>& pieces) {
    writer.write(static_cast<std::uint32_t>(pieces.size()));
    for (const Piece& piece : pieces) {
        writer.write(piece.layer);
        writer.write(piece.first);
        writer.write(piece.count);
    }
}

Result<std::vector<Piece>> read_pieces(ByteReader& reader) {
    auto count = reader.read<std::uint32_t>();
    if (reader.failed() || std::uint64_t{count} * kPieceBytes > reader.remaining()) {
        return fail(ErrorKind::invalid, "it announces {} pieces, but {} bytes are left", count, reader.remaining());
    }
    std::vector<Piece> pieces(count);
    for (Piece& piece : pieces) {
        piece.layer = reader.read<std::uint32_t>();
        piece.first = reader.read<std::uint32_t>();
        piece.count = reader.read<std::uint32_t>();
        if (piece.count == 0 || piece.layer > kIndexLimit || std::uint64_t{piece.first} + piece.count > kIndexLimit) {
            return fail(ErrorKind::invalid, "a piece of layer {} holds {} experts from {}", piece.layer, piece.count,
                        piece.first);
        }
    }
    return pieces;
}

Status check_limit(std::uint64_t limit) {
    if (limit == 0 || limit > kPayloadLimit) {
        return fail(ErrorKind::invalid, "its payload limit of {} bytes is not between 1 and {}", limit, kPayloadLimit);
    }
    return {};
}

Status check_end(const ByteReader& reader) {
    if (reader.failed()) return fail(ErrorKind::invalid, "it is cut short");
    if (!reader.finished()) return fail(ErrorKind::invalid, "{} bytes too many at its end", reader.remaining());
    return {};
}

// The spans that compute and result decoders hand out alias the payload.
Status check_aligned(ByteSpan payload) {
    if (reinterpret_cast<std::uintptr_t>(payload.data()) % alignof(float) != 0) {
        return fail(ErrorKind::internal, "the payload's memory is not aligned to 4 bytes");
    }
    return {};
}

template <class T>
std::span<const T> view(ByteSpan bytes) {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// The two kinds of rows have one encoding in common.
bool is_for_activations(RowEncoding encoding) {
    return encoding != RowEncoding::i16x256;
}
bool is_for_results(RowEncoding encoding) {
    return encoding == RowEncoding::f32 || encoding == RowEncoding::i16x256;
}

Status check_rows_header(std::uint32_t hidden, std::uint8_t encoding, bool (*suits)(RowEncoding), bool zeros) {
    if (hidden == 0 || hidden > kHiddenLimit) return fail(ErrorKind::invalid, "its rows have {} columns", hidden);
    if (encoding > kLastRowEncoding || !suits(static_cast<RowEncoding>(encoding))) {
        return fail(ErrorKind::unsupported, "its row encoding {} is unknown", encoding);
    }
    if (row_bytes(static_cast<RowEncoding>(encoding), hidden) == 0) {
        return fail(ErrorKind::invalid, "its row encoding {} has no rows of {} columns", encoding, hidden);
    }
    if (!zeros) return fail(ErrorKind::invalid, "its reserved bytes are not 0");
    return {};
}

std::uint32_t row_count(ByteSpan rows, RowEncoding encoding, std::uint32_t hidden) {
    const std::size_t size = row_bytes(encoding, hidden);
    return size == 0 ? 0 : static_cast<std::uint32_t>(rows.size() / size);
}

void write_result_header(ByteWriter& writer, std::uint32_t hidden, std::uint32_t rows, RowEncoding encoding,
                         std::uint32_t queued_us, std::uint32_t compute_us) {
    writer.write(hidden);
    writer.write(rows);
    writer.write(queued_us);
    writer.write(compute_us);
    writer.write(static_cast<std::uint8_t>(encoding));
    write_zeros(writer, kResultHeaderBytes - writer.size());
}

tl::unexpected<Error> in_message(const char* name, const Error& error) {
    return fail(error.within(name));
}

}  // namespace

const char* error_code_name(WireErrorCode code) {
    switch (code) {
        case WireErrorCode::bad_request:
            return "bad request";
        case WireErrorCode::version:
            return "no common version";
        case WireErrorCode::arithmetic:
            return "no common arithmetic";
        case WireErrorCode::model:
            return "another model";
        case WireErrorCode::epoch:
            return "pieces changed";
        case WireErrorCode::not_held:
            return "not held";
        case WireErrorCode::recipe:
            return "recipe not supported";
        case WireErrorCode::too_large:
            return "too large";
        case WireErrorCode::overloaded:
            return "overloaded";
        case WireErrorCode::draining:
            return "draining";
        case WireErrorCode::not_admitted:
            return "not admitted";
        case WireErrorCode::internal:
            return "internal error";
    }
    return "unknown error code";
}

ByteVector encode(const Hello& message) {
    ByteWriter writer;
    writer.write(message.oldest_version);
    writer.write(message.newest_version);
    writer.write(std::uint32_t{0});
    writer.write(message.payload_limit);
    write_digest(writer, message.model_id);
    write_text(writer, message.build, kNameLimit);
    writer.write(static_cast<std::uint16_t>(message.arithmetics.size()));
    for (const std::string& name : message.arithmetics)
        write_text(writer, name, kNameLimit);
    return std::move(writer.buffer());
}

Result<Hello> decode_hello(ByteSpan payload) {
    ByteReader reader(payload);
    Hello hello;
    hello.oldest_version = reader.read<std::uint16_t>();
    hello.newest_version = reader.read<std::uint16_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "hello: it is cut short");
    if (hello.oldest_version > hello.newest_version) {
        return fail(ErrorKind::invalid, "hello: it speaks versions {} to {}", hello.oldest_version,
                    hello.newest_version);
    }
    // What follows has this layout only where both ends speak this version.
    if (kProtocolVersion < hello.oldest_version || kProtocolVersion > hello.newest_version) return hello;
    if (!read_zeros(reader, 4)) return fail(ErrorKind::invalid, "hello: its reserved bytes are not 0");
    hello.payload_limit = reader.read<std::uint64_t>();
    hello.model_id = read_digest(reader);
    if (reader.failed()) return fail(ErrorKind::invalid, "hello: it is cut short");
    if (Status ok = check_limit(hello.payload_limit); !ok) return in_message("hello", ok.error());
    Result<std::string> build = read_text(reader, kNameLimit, "the build's name");
    if (!build) return in_message("hello", build.error());
    hello.build = std::move(*build);
    auto count = reader.read<std::uint16_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "hello: it is cut short");
    if (count > kArithmeticsLimit) {
        return fail(ErrorKind::invalid, "hello: {} arithmetics; the limit is {}", count, kArithmeticsLimit);
    }
    for (std::uint16_t i = 0; i < count; ++i) {
        Result<std::string> name = read_text(reader, kNameLimit, "an arithmetic's name");
        if (!name) return in_message("hello", name.error());
        hello.arithmetics.push_back(std::move(*name));
    }
    // A newer peer may append fields that this version doesn't know.
    if (hello.newest_version > kProtocolVersion) return hello;
    if (Status ok = check_end(reader); !ok) return in_message("hello", ok.error());
    return hello;
}

ByteVector encode(const Welcome& message) {
    ByteWriter writer;
    writer.write(message.version);
    writer.write(std::uint16_t{0});
    writer.write(message.window);
    writer.write(message.threads);
    writer.write(std::uint32_t{0});
    writer.write(message.epoch);
    writer.write(message.payload_limit);
    write_digest(writer, message.model_id);
    write_text(writer, message.build, kNameLimit);
    write_text(writer, message.arithmetic, kNameLimit);
    write_pieces(writer, message.pieces);
    return std::move(writer.buffer());
}

Result<Welcome> decode_welcome(ByteSpan payload) {
    ByteReader reader(payload);
    Welcome welcome;
    welcome.version = reader.read<std::uint16_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "welcome: it is cut short");
    if (welcome.version != kProtocolVersion) {
        return fail(ErrorKind::unsupported, "welcome: version {} was not offered", welcome.version);
    }
    bool zeros = read_zeros(reader, 2);
    welcome.window = reader.read<std::uint32_t>();
    welcome.threads = reader.read<std::uint32_t>();
    zeros = read_zeros(reader, 4) && zeros;
    welcome.epoch = reader.read<std::uint64_t>();
    welcome.payload_limit = reader.read<std::uint64_t>();
    welcome.model_id = read_digest(reader);
    if (reader.failed()) return fail(ErrorKind::invalid, "welcome: it is cut short");
    if (!zeros) return fail(ErrorKind::invalid, "welcome: its reserved bytes are not 0");
    if (welcome.epoch == 0) return fail(ErrorKind::invalid, "welcome: its epoch is 0");
    if (welcome.window == 0) return fail(ErrorKind::invalid, "welcome: its window is 0");
    if (Status ok = check_limit(welcome.payload_limit); !ok) return in_message("welcome", ok.error());
    Result<std::string> build = read_text(reader, kNameLimit, "the build's name");
    if (!build) return in_message("welcome", build.error());
    welcome.build = std::move(*build);
    Result<std::string> arithmetic = read_text(reader, kNameLimit, "the arithmetic's name");
    if (!arithmetic) return in_message("welcome", arithmetic.error());
    welcome.arithmetic = std::move(*arithmetic);
    Result<std::vector<Piece>> pieces = read_pieces(reader);
    if (!pieces) return in_message("welcome", pieces.error());
    welcome.pieces = std::move(*pieces);
    if (Status ok = check_end(reader); !ok) return in_message("welcome", ok.error());
    return welcome;
}

ByteVector encode(const Compute& message) {
    ByteWriter writer;
    writer.buffer().reserve(kComputeHeaderBytes + message.rows.size() + message.pairs.size_bytes());
    writer.write(message.epoch);
    writer.write(message.layer);
    writer.write(message.hidden);
    write_recipe(writer, message.recipe);
    writer.write(row_count(message.rows, message.encoding, message.hidden));
    writer.write(static_cast<std::uint32_t>(message.pairs.size()));
    writer.write(static_cast<std::uint8_t>(message.encoding));
    write_zeros(writer, kComputeHeaderBytes - writer.size());
    writer.append(message.rows);
    writer.append(std::as_bytes(message.pairs));
    return std::move(writer.buffer());
}

Result<Compute> decode_compute(ByteSpan payload) {
    if (Status ok = check_aligned(payload); !ok) return in_message("compute", ok.error());
    if (payload.size() < kComputeHeaderBytes) return fail(ErrorKind::invalid, "compute: it is cut short");
    ByteReader reader(payload);
    Compute compute;
    compute.epoch = reader.read<std::uint64_t>();
    compute.layer = reader.read<std::uint32_t>();
    compute.hidden = reader.read<std::uint32_t>();
    Result<Recipe> recipe = read_recipe(reader);
    if (!recipe) return in_message("compute", recipe.error());
    compute.recipe = *recipe;
    std::uint64_t rows = reader.read<std::uint32_t>();
    std::uint64_t pairs = reader.read<std::uint32_t>();
    auto encoding = reader.read<std::uint8_t>();
    bool zeros = read_zeros(reader, kComputeHeaderBytes - reader.position());
    if (Status ok = check_rows_header(compute.hidden, encoding, is_for_activations, zeros); !ok)
        return in_message("compute", ok.error());
    compute.encoding = static_cast<RowEncoding>(encoding);
    if (compute.layer > kIndexLimit) return fail(ErrorKind::invalid, "compute: layer {}", compute.layer);
    if (rows == 0 || pairs == 0) return fail(ErrorKind::invalid, "compute: {} rows, {} pairs", rows, pairs);

    const std::uint64_t size = row_bytes(compute.encoding, compute.hidden);
    if (rows * size + pairs * sizeof(Pair) != reader.remaining()) {
        return fail(ErrorKind::invalid, "compute: {} rows of {} columns and {} pairs need {} bytes, {} are there", rows,
                    compute.hidden, pairs, rows * size + pairs * sizeof(Pair), reader.remaining());
    }
    // A few bytes of pairs must not ask for an answer that no frame can carry.
    if (pairs * compute.hidden * sizeof(float) > kPayloadLimit - kResultHeaderBytes) {
        return fail(ErrorKind::invalid, "compute: the answer to {} pairs of {} columns would not fit a frame", pairs,
                    compute.hidden);
    }
    compute.rows = reader.take(rows * size);
    compute.pairs = view<Pair>(reader.take(pairs * sizeof(Pair)));
    for (const Pair& pair : compute.pairs) {
        if (pair.row >= rows || pair.expert >= kIndexLimit) {
            return fail(ErrorKind::invalid, "compute: pair (row {}, expert {}) with {} rows", pair.row, pair.expert,
                        rows);
        }
    }
    return compute;
}

ByteVector encode(const ComputeResult& message) {
    ByteWriter writer;
    writer.buffer().reserve(kResultHeaderBytes + message.rows.size());
    write_result_header(writer, message.hidden, row_count(message.rows, message.encoding, message.hidden),
                        message.encoding, message.queued_us, message.compute_us);
    writer.append(message.rows);
    return std::move(writer.buffer());
}

Result<ComputeResult> decode_result(ByteSpan payload) {
    if (Status ok = check_aligned(payload); !ok) return in_message("result", ok.error());
    if (payload.size() < kResultHeaderBytes) return fail(ErrorKind::invalid, "result: it is cut short");
    ByteReader reader(payload);
    ComputeResult result;
    result.hidden = reader.read<std::uint32_t>();
    std::uint64_t rows = reader.read<std::uint32_t>();
    result.queued_us = reader.read<std::uint32_t>();
    result.compute_us = reader.read<std::uint32_t>();
    auto encoding = reader.read<std::uint8_t>();
    bool zeros = read_zeros(reader, kResultHeaderBytes - reader.position());
    if (Status ok = check_rows_header(result.hidden, encoding, is_for_results, zeros); !ok)
        return in_message("result", ok.error());
    result.encoding = static_cast<RowEncoding>(encoding);
    std::uint64_t bytes = rows * row_bytes(result.encoding, result.hidden);
    if (bytes != reader.remaining()) {
        return fail(ErrorKind::invalid, "result: {} rows of {} columns need {} bytes, {} are there", rows,
                    result.hidden, bytes, reader.remaining());
    }
    result.rows = reader.take(bytes);
    return result;
}

ResultBuffer make_result_buffer(std::uint32_t pairs, std::uint32_t hidden, RowEncoding encoding) {
    ByteWriter writer;
    std::size_t bytes = pairs * row_bytes(encoding, hidden);
    writer.buffer().reserve(kResultHeaderBytes + bytes);
    write_result_header(writer, hidden, pairs, encoding, 0, 0);
    write_zeros(writer, bytes);
    ResultBuffer buffer;
    buffer.payload = std::move(writer.buffer());
    buffer.rows = std::span(buffer.payload).subspan(kResultHeaderBytes);
    return buffer;
}

void set_result_times(ResultBuffer& buffer, std::uint32_t queued_us, std::uint32_t compute_us) {
    std::array<std::uint32_t, 2> times = {queued_us, compute_us};
    std::memcpy(buffer.payload.data() + kResultTimesOffset, times.data(), sizeof(times));
}

ByteVector encode(const WireError& message) {
    ByteWriter writer;
    writer.write(static_cast<std::uint16_t>(message.code));
    write_text(writer, message.text, kTextLimit);
    return std::move(writer.buffer());
}

Result<WireError> decode_error(ByteSpan payload) {
    ByteReader reader(payload);
    WireError error;
    // Any code is taken: a newer peer's code is still an error, with its text.
    error.code = static_cast<WireErrorCode>(reader.read<std::uint16_t>());
    if (reader.failed()) return fail(ErrorKind::invalid, "error: it is cut short");
    Result<std::string> text = read_text(reader, kTextLimit, "its text");
    if (!text) return in_message("error", text.error());
    error.text = std::move(*text);
    if (Status ok = check_end(reader); !ok) return in_message("error", ok.error());
    return error;
}

ByteVector encode(const Pong& message) {
    ByteWriter writer;
    writer.write(message.queued);
    writer.write(message.sessions);
    return std::move(writer.buffer());
}

Result<Pong> decode_pong(ByteSpan payload) {
    ByteReader reader(payload);
    Pong pong;
    pong.queued = reader.read<std::uint32_t>();
    pong.sessions = reader.read<std::uint32_t>();
    if (Status ok = check_end(reader); !ok) return in_message("pong", ok.error());
    return pong;
}

ByteVector encode(const Update& message) {
    ByteWriter writer;
    writer.write(message.epoch);
    write_pieces(writer, message.pieces);
    return std::move(writer.buffer());
}

Result<Update> decode_update(ByteSpan payload) {
    ByteReader reader(payload);
    Update update;
    update.epoch = reader.read<std::uint64_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "update: it is cut short");
    if (update.epoch == 0) return fail(ErrorKind::invalid, "update: its epoch is 0");
    Result<std::vector<Piece>> pieces = read_pieces(reader);
    if (!pieces) return in_message("update", pieces.error());
    update.pieces = std::move(*pieces);
    if (Status ok = check_end(reader); !ok) return in_message("update", ok.error());
    return update;
}

}  // namespace kvasir
