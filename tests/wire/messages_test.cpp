#include "wire/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace kvasir {
namespace {

using testing::HasSubstr;

// Random but valid messages; the seed is fixed.
class Maker {
  public:
    std::uint64_t number(std::uint64_t low, std::uint64_t high) {
        return std::uniform_int_distribution<std::uint64_t>(low, high)(random_);
    }
    template <class T>
    T any() {
        return static_cast<T>(random_());
    }
    std::string text(std::size_t limit) {
        std::string text(number(0, limit), ' ');
        for (char& c : text)
            c = static_cast<char>(number(0x20, 0x7E));
        return text;
    }
    Digest digest() {
        Digest digest{};
        for (std::byte& byte : digest)
            byte = any<std::byte>();
        return digest;
    }
    std::vector<Piece> pieces() {
        std::vector<Piece> pieces(number(0, 40));
        for (Piece& piece : pieces) {
            piece.layer = static_cast<std::uint32_t>(number(0, 100));
            piece.first = static_cast<std::uint32_t>(number(0, 300));
            piece.count = static_cast<std::uint32_t>(number(1, 300));
        }
        return pieces;
    }
    // Rows of any bits: what a row means is no concern of these messages.
    ByteVector bytes(std::size_t count) {
        ByteVector values(count);
        for (std::byte& value : values)
            value = any<std::byte>();
        return values;
    }
    // A number of columns that rows of this encoding can have.
    std::uint32_t width(RowEncoding encoding) {
        const std::uint64_t block = encoding == RowEncoding::q8x256 ? 256 : encoding == RowEncoding::q8x32 ? 32 : 1;
        return static_cast<std::uint32_t>(block * number(1, std::max<std::uint64_t>(3, 300 / block)));
    }
    Hello hello() {
        Hello hello;
        hello.build = text(256);
        for (std::uint64_t i = number(0, 5); i > 0; --i)
            hello.arithmetics.push_back(text(256));
        hello.model_id = digest();
        hello.payload_limit = number(1, kPayloadLimit);
        return hello;
    }
    Welcome welcome() {
        Welcome welcome;
        welcome.build = text(256);
        welcome.arithmetic = text(256);
        welcome.model_id = digest();
        welcome.epoch = number(1, ~std::uint64_t{0});
        welcome.pieces = pieces();
        welcome.payload_limit = number(1, kPayloadLimit);
        welcome.window = static_cast<std::uint32_t>(number(1, 1000));
        welcome.threads = any<std::uint32_t>();
        return welcome;
    }

  private:
    std::mt19937_64 random_{20240601};
};

Recipe some_recipe() {
    Recipe recipe;
    recipe.activation = Activation::swiglu_oai;
    recipe.gate_bias = true;
    recipe.up_bias = true;
    recipe.down_bias = true;
    recipe.alpha = 1.702F;
    recipe.limit = 7.0F;
    return recipe;
}

constexpr std::array kActivationEncodings = {RowEncoding::f32, RowEncoding::q8x256, RowEncoding::q8x32};
constexpr std::array kResultEncodings = {RowEncoding::f32, RowEncoding::i16x256};

// A compute message and the memory behind it.
struct OwnedCompute {
    ByteVector rows;
    std::vector<Pair> pairs;
    Compute message;

    OwnedCompute(Maker& make, std::uint32_t hidden, std::uint32_t row_count, std::uint32_t pair_count,
                 RowEncoding encoding = RowEncoding::f32) {
        rows = make.bytes(row_bytes(encoding, hidden) * row_count);
        for (std::uint32_t i = 0; i < pair_count; ++i) {
            pairs.push_back({static_cast<std::uint32_t>(make.number(0, row_count - 1)),
                             static_cast<std::uint32_t>(make.number(0, 511))});
        }
        message.epoch = make.any<std::uint64_t>();
        message.layer = static_cast<std::uint32_t>(make.number(0, 1000));
        message.hidden = hidden;
        message.recipe = some_recipe();
        message.encoding = encoding;
        message.rows = rows;
        message.pairs = pairs;
    }
};

template <class T>
void put(ByteVector& payload, std::size_t offset, T value) {
    ASSERT_LE(offset + sizeof(T), payload.size());
    std::memcpy(payload.data() + offset, &value, sizeof(T));
}

template <class T>
std::string refusal(const Result<T>& decoded) {
    return decoded ? "accepted" : decoded.error().message;
}

// Every prefix of the payload, and the payload with one byte more, is refused.
template <class Decode>
void expect_exact_length(const ByteVector& payload, Decode decode) {
    ASSERT_TRUE(decode(payload).has_value());
    for (std::size_t length = 0; length < payload.size(); ++length) {
        // A copy of its own: memory checkers see a read past its end.
        ByteVector prefix(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(length));
        EXPECT_FALSE(decode(prefix).has_value()) << length << " of " << payload.size() << " bytes";
    }
    ByteVector longer = payload;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer).has_value());
}

// A decoder may accept a damaged payload or refuse it, but must do so in bounds and with a reason.
template <class Decode>
void expect_survives_damage(const ByteVector& payload, Decode decode) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 2000; ++i) {
        ByteVector damaged = payload;
        for (std::uint64_t hits = 1 + random() % 4; hits > 0; --hits) {
            damaged[random() % damaged.size()] = static_cast<std::byte>(random());
        }
        auto decoded = decode(damaged);
        EXPECT_TRUE(decoded || !decoded.error().message.empty());
    }
}

TEST(MessagesTest, HelloComesBack) {
    Maker make;
    for (int i = 0; i < 200; ++i) {
        Hello sent = make.hello();
        Result<Hello> got = decode_hello(encode(sent));
        ASSERT_TRUE(got.has_value()) << got.error().message;
        EXPECT_EQ(got->oldest_version, sent.oldest_version);
        EXPECT_EQ(got->newest_version, sent.newest_version);
        EXPECT_EQ(got->build, sent.build);
        EXPECT_EQ(got->arithmetics, sent.arithmetics);
        EXPECT_EQ(got->model_id, sent.model_id);
        EXPECT_EQ(got->payload_limit, sent.payload_limit);
    }
}

TEST(MessagesTest, WelcomeComesBack) {
    Maker make;
    for (int i = 0; i < 200; ++i) {
        Welcome sent = make.welcome();
        Result<Welcome> got = decode_welcome(encode(sent));
        ASSERT_TRUE(got.has_value()) << got.error().message;
        EXPECT_EQ(got->build, sent.build);
        EXPECT_EQ(got->arithmetic, sent.arithmetic);
        EXPECT_EQ(got->model_id, sent.model_id);
        EXPECT_EQ(got->epoch, sent.epoch);
        EXPECT_EQ(got->pieces, sent.pieces);
        EXPECT_EQ(got->payload_limit, sent.payload_limit);
        EXPECT_EQ(got->window, sent.window);
        EXPECT_EQ(got->threads, sent.threads);
    }
}

TEST(MessagesTest, ComputeComesBackBitForBit) {
    Maker make;
    for (int i = 0; i < 100; ++i) {
        const RowEncoding encoding = kActivationEncodings[make.number(0, kActivationEncodings.size() - 1)];
        OwnedCompute sent(make, make.width(encoding), static_cast<std::uint32_t>(make.number(1, 9)),
                          static_cast<std::uint32_t>(make.number(1, 40)), encoding);
        ByteVector payload = encode(sent.message);
        Result<Compute> got = decode_compute(payload);
        ASSERT_TRUE(got.has_value()) << got.error().message;
        EXPECT_EQ(got->epoch, sent.message.epoch);
        EXPECT_EQ(got->layer, sent.message.layer);
        EXPECT_EQ(got->hidden, sent.message.hidden);
        EXPECT_EQ(got->recipe, sent.message.recipe);
        EXPECT_TRUE(std::equal(got->pairs.begin(), got->pairs.end(), sent.pairs.begin(), sent.pairs.end()));
        EXPECT_EQ(got->encoding, encoding);
        EXPECT_TRUE(std::ranges::equal(got->rows, sent.rows));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got->rows.data()) % alignof(float), 0U);
    }
}

TEST(MessagesTest, ResultComesBackBitForBit) {
    Maker make;
    for (int i = 0; i < 100; ++i) {
        ComputeResult sent;
        sent.encoding = kResultEncodings[make.number(0, kResultEncodings.size() - 1)];
        sent.hidden = make.width(sent.encoding);
        sent.queued_us = make.any<std::uint32_t>();
        sent.compute_us = make.any<std::uint32_t>();
        const ByteVector rows = make.bytes(row_bytes(sent.encoding, sent.hidden) * make.number(0, 9));
        sent.rows = rows;
        ByteVector payload = encode(sent);
        Result<ComputeResult> got = decode_result(payload);
        ASSERT_TRUE(got.has_value()) << got.error().message;
        EXPECT_EQ(got->hidden, sent.hidden);
        EXPECT_EQ(got->queued_us, sent.queued_us);
        EXPECT_EQ(got->compute_us, sent.compute_us);
        EXPECT_EQ(got->encoding, sent.encoding);
        EXPECT_TRUE(std::ranges::equal(got->rows, rows));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got->rows.data()) % alignof(float), 0U);
    }
}

TEST(MessagesTest, ResultBufferIsTheEncodedResult) {
    Maker make;
    for (RowEncoding encoding : kResultEncodings) {
        const ByteVector rows = make.bytes(3 * row_bytes(encoding, 17));
        ResultBuffer buffer = make_result_buffer(3, 17, encoding);
        ASSERT_EQ(buffer.rows.size(), rows.size());
        std::ranges::copy(rows, buffer.rows.begin());
        set_result_times(buffer, 12, 345);
        ComputeResult same;
        same.hidden = 17;
        same.encoding = encoding;
        same.queued_us = 12;
        same.compute_us = 345;
        same.rows = rows;
        EXPECT_EQ(buffer.payload, encode(same));
    }
}

TEST(MessagesTest, SmallMessagesComeBack) {
    Maker make;
    for (int i = 0; i < 200; ++i) {
        WireError error{static_cast<WireErrorCode>(make.number(0, 65'535)), make.text(2048)};
        Result<WireError> same_error = decode_error(encode(error));
        ASSERT_TRUE(same_error.has_value());
        EXPECT_EQ(same_error->code, error.code);
        EXPECT_EQ(same_error->text, error.text);

        Pong pong{make.any<std::uint32_t>(), make.any<std::uint32_t>()};
        Result<Pong> same_pong = decode_pong(encode(pong));
        ASSERT_TRUE(same_pong.has_value());
        EXPECT_EQ(same_pong->queued, pong.queued);
        EXPECT_EQ(same_pong->sessions, pong.sessions);

        Update update{make.number(1, ~std::uint64_t{0}), make.pieces()};
        Result<Update> same_update = decode_update(encode(update));
        ASSERT_TRUE(same_update.has_value());
        EXPECT_EQ(same_update->epoch, update.epoch);
        EXPECT_EQ(same_update->pieces, update.pieces);
    }
}

TEST(MessagesTest, EveryTruncationIsRefused) {
    Maker make;
    expect_exact_length(encode(make.hello()), decode_hello);
    expect_exact_length(encode(make.welcome()), decode_welcome);
    OwnedCompute compute(make, 5, 3, 7);
    expect_exact_length(encode(compute.message), decode_compute);
    OwnedCompute narrow(make, 32, 2, 3, RowEncoding::q8x32);
    expect_exact_length(encode(narrow.message), decode_compute);
    for (RowEncoding encoding : kResultEncodings) {
        const ByteVector rows = make.bytes(3 * row_bytes(encoding, 4));
        ComputeResult result;
        result.hidden = 4;
        result.encoding = encoding;
        result.rows = rows;
        expect_exact_length(encode(result), decode_result);
    }
    expect_exact_length(encode(WireError{WireErrorCode::epoch, "text"}), decode_error);
    expect_exact_length(encode(Pong{1, 2}), decode_pong);
    expect_exact_length(encode(Update{3, {{1, 2, 3}, {4, 5, 6}}}), decode_update);
}

TEST(MessagesTest, DamageIsSurvived) {
    Maker make;
    expect_survives_damage(encode(make.hello()), decode_hello);
    expect_survives_damage(encode(make.welcome()), decode_welcome);
    for (RowEncoding encoding : kActivationEncodings) {
        OwnedCompute compute(make, encoding == RowEncoding::f32 ? 5 : 256, 3, 7, encoding);
        expect_survives_damage(encode(compute.message), [](const ByteVector& payload) {
            Result<Compute> decoded = decode_compute(payload);
            if (!decoded) return decoded;
            // Whatever is accepted can be indexed without further checks.
            std::size_t count = decoded->rows.size() / row_bytes(decoded->encoding, decoded->hidden);
            for (const Pair& pair : decoded->pairs)
                EXPECT_LT(pair.row, count);
            return decoded;
        });
    }
    expect_survives_damage(encode(Update{3, make.pieces()}), decode_update);
}

TEST(MessagesTest, ComputeChecksEveryCountAndIndex) {
    Maker make;
    OwnedCompute compute(make, 5, 3, 7);
    const ByteVector good = encode(compute.message);
    auto with = [&](std::size_t offset, std::uint32_t value) {
        ByteVector bad = good;
        put(bad, offset, value);
        return refusal(decode_compute(bad));
    };
    EXPECT_THAT(with(8, 2'000'000), HasSubstr("layer 2000000"));
    EXPECT_THAT(with(12, 0), HasSubstr("0 columns"));
    EXPECT_THAT(with(12, 6), HasSubstr("bytes"));
    EXPECT_THAT(with(12, 0xFFFFFFFF), HasSubstr("columns"));
    EXPECT_THAT(with(32, 0), HasSubstr("0 rows"));
    EXPECT_THAT(with(32, 4), HasSubstr("4 rows of 5 columns"));
    EXPECT_THAT(with(32, 0xFFFFFFFF), HasSubstr("4294967295 rows"));
    EXPECT_THAT(with(36, 0), HasSubstr("0 pairs"));
    EXPECT_THAT(with(36, 8), HasSubstr("8 pairs"));
    EXPECT_THAT(with(36, 0xFFFFFFFF), HasSubstr("4294967295 pairs"));
    EXPECT_THAT(with(40, 1), HasSubstr("encoding 1 has no rows of 5 columns"));
    EXPECT_THAT(with(40, 2), HasSubstr("encoding 2 has no rows of 5 columns"));
    EXPECT_THAT(with(40, 3), HasSubstr("encoding 3 is unknown")) << "that is for results";
    EXPECT_THAT(with(40, 4), HasSubstr("encoding 4 is unknown"));
    EXPECT_THAT(with(44, 1), HasSubstr("reserved"));
    std::size_t pairs = good.size() - 7 * sizeof(Pair);
    EXPECT_THAT(with(pairs, 3), HasSubstr("row 3"));
    EXPECT_THAT(with(pairs + 4, 5'000'000), HasSubstr("expert 5000000"));
    EXPECT_NE(with(16, 0xFFFFFFFE), "accepted");  // no such activation
}

TEST(MessagesTest, ComputesRowsAddUpInTheirEncoding) {
    Maker make;
    for (RowEncoding encoding : {RowEncoding::q8x256, RowEncoding::q8x32}) {
        OwnedCompute compute(make, 512, 3, 7, encoding);
        const ByteVector good = encode(compute.message);
        EXPECT_EQ(good.size(), 48 + 3 * row_bytes(encoding, 512) + 7 * sizeof(Pair));
        auto with = [&](std::size_t offset, std::uint32_t value) {
            ByteVector bad = good;
            put(bad, offset, value);
            return refusal(decode_compute(bad));
        };
        EXPECT_THAT(with(12, 768), HasSubstr("3 rows of 768 columns"));
        EXPECT_THAT(with(12, 511), HasSubstr("no rows of 511 columns"));
        EXPECT_THAT(with(32, 2), HasSubstr("2 rows of 512 columns"));
        EXPECT_THAT(with(36, 8), HasSubstr("8 pairs need"));
        for (std::uint32_t other : {0, 1, 2}) {  // bytes of one encoding are none of another
            if (other != static_cast<std::uint32_t>(encoding)) {
                EXPECT_THAT(with(40, other), HasSubstr("bytes"));
            }
        }
    }
}

TEST(MessagesTest, ComputeWhoseAnswerFitsNoFrameIsRefused) {
    // 1 row of 1 MiB columns, 300 pairs: 4 MiB ask for 1.2 GiB.
    Maker make;
    const ByteVector row(sizeof(float) << 20);
    std::vector<Pair> pairs(300);
    Compute compute;
    compute.epoch = 1;
    compute.hidden = 1 << 20;
    compute.recipe = some_recipe();
    compute.rows = row;
    compute.pairs = pairs;
    EXPECT_THAT(refusal(decode_compute(encode(compute))), HasSubstr("would not fit a frame"));
}

TEST(MessagesTest, ResultChecksItsCounts) {
    const ByteVector rows(12 * sizeof(float));
    ComputeResult result;
    result.hidden = 4;
    result.rows = rows;
    const ByteVector good = encode(result);
    auto with = [&](std::size_t offset, std::uint32_t value) {
        ByteVector bad = good;
        put(bad, offset, value);
        return refusal(decode_result(bad));
    };
    EXPECT_THAT(with(0, 0), HasSubstr("0 columns"));
    EXPECT_THAT(with(0, 0x80000000), HasSubstr("columns"));
    EXPECT_THAT(with(4, 2), HasSubstr("2 rows"));
    EXPECT_THAT(with(4, 0xFFFFFFFF), HasSubstr("4294967295 rows"));
    EXPECT_THAT(with(16, 9), HasSubstr("encoding 9"));
    EXPECT_THAT(with(16, 1), HasSubstr("encoding 1 is unknown")) << "that is for activations";
    EXPECT_THAT(with(16, 2), HasSubstr("encoding 2 is unknown"));
    EXPECT_THAT(with(16, 3), HasSubstr("3 rows of 4 columns need 30 bytes, 48 are there"));
    EXPECT_THAT(with(28, 9), HasSubstr("reserved"));
}

TEST(MessagesTest, ResultsRowsAddUpInTheirEncoding) {
    const ByteVector rows(2 * row_bytes(RowEncoding::i16x256, 257));  // two exponents each
    ComputeResult result;
    result.hidden = 257;
    result.encoding = RowEncoding::i16x256;
    result.rows = rows;
    const ByteVector good = encode(result);
    EXPECT_EQ(good.size(), 32 + 2 * (2 * 257 + 2 * 2));
    ASSERT_TRUE(decode_result(good));
    auto with = [&](std::size_t offset, std::uint32_t value) {
        ByteVector bad = good;
        put(bad, offset, value);
        return refusal(decode_result(bad));
    };
    EXPECT_THAT(with(0, 256), HasSubstr("2 rows of 256 columns need 1028 bytes, 1036 are there"));
    EXPECT_THAT(with(0, 258), HasSubstr("1040 bytes"));
    EXPECT_THAT(with(4, 3), HasSubstr("3 rows"));
    EXPECT_THAT(with(16, 0), HasSubstr("2056 bytes"));
}

TEST(MessagesTest, HelloChecksItsFields) {
    Maker make;
    Hello hello = make.hello();
    hello.payload_limit = 0;
    EXPECT_THAT(refusal(decode_hello(encode(hello))), HasSubstr("payload limit of 0"));
    hello.payload_limit = kPayloadLimit + 1;
    EXPECT_THAT(refusal(decode_hello(encode(hello))), HasSubstr("payload limit"));
    hello.payload_limit = 1;
    hello.oldest_version = 3;
    hello.newest_version = 2;
    EXPECT_THAT(refusal(decode_hello(encode(hello))), HasSubstr("versions 3 to 2"));
    hello = make.hello();
    hello.arithmetics.assign(65, "ggml-cpu");
    EXPECT_THAT(refusal(decode_hello(encode(hello))), HasSubstr("65 arithmetics"));
}

TEST(MessagesTest, HelloOfAnotherVersionGivesItsVersions) {
    Hello hello;
    hello.oldest_version = 7;
    hello.newest_version = 9;
    ByteVector payload = encode(hello);
    payload.resize(5);  // what follows may be anything
    Result<Hello> got = decode_hello(payload);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_EQ(got->oldest_version, 7);
    EXPECT_EQ(got->newest_version, 9);
}

TEST(MessagesTest, HelloOfANewerPeerMayHoldMore) {
    Maker make;
    Hello hello = make.hello();
    hello.newest_version = 2;
    ByteVector payload = encode(hello);
    payload.push_back(std::byte{1});
    Result<Hello> got = decode_hello(payload);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_EQ(got->build, hello.build);
}

TEST(MessagesTest, WelcomeAndUpdateCheckTheirFields) {
    Maker make;
    auto refused = [&](auto change) {
        Welcome welcome = make.welcome();
        change(welcome);
        return refusal(decode_welcome(encode(welcome)));
    };
    EXPECT_THAT(refused([](Welcome& w) { w.version = 2; }), HasSubstr("version 2"));
    EXPECT_THAT(refused([](Welcome& w) { w.epoch = 0; }), HasSubstr("epoch"));
    EXPECT_THAT(refused([](Welcome& w) { w.window = 0; }), HasSubstr("window"));
    EXPECT_THAT(refused([](Welcome& w) { w.payload_limit = kPayloadLimit + 1; }), HasSubstr("payload limit"));
    EXPECT_THAT(refused([](Welcome& w) { w.pieces = {{1, 0, 0}}; }), HasSubstr("0 experts"));
    EXPECT_THAT(refused([](Welcome& w) { w.pieces = {{1, 0xFFFFFFFF, 2}}; }), HasSubstr("from 4294967295"));
    EXPECT_THAT(refused([](Welcome& w) { w.pieces = {{2'000'000, 0, 2}}; }), HasSubstr("layer 2000000"));
    EXPECT_THAT(refusal(decode_update(encode(Update{0, {}}))), HasSubstr("epoch"));

    ByteVector update = encode(Update{1, {{1, 2, 3}}});
    put(update, 8, std::uint32_t{2});
    EXPECT_THAT(refusal(decode_update(update)), HasSubstr("announces 2 pieces, but 12 bytes"));
    put(update, 8, std::uint32_t{0xFFFFFFFF});
    EXPECT_THAT(refusal(decode_update(update)), HasSubstr("announces 4294967295 pieces"));
}

TEST(MessagesTest, TextCannotWriteIntoALog) {
    Result<WireError> cleaned = decode_error(encode(WireError{WireErrorCode::internal, "a\nb\x1b[31mc"}));
    ASSERT_TRUE(cleaned.has_value());
    EXPECT_EQ(cleaned->text, "a b [31mc");
    ByteVector payload = encode(WireError{WireErrorCode::internal, "ab"});
    put(payload, 4, '\n');
    EXPECT_THAT(refusal(decode_error(payload)), HasSubstr("control characters"));
    Result<WireError> cut = decode_error(encode(WireError{WireErrorCode::internal, std::string(100'000, 'x')}));
    ASSERT_TRUE(cut.has_value());
    EXPECT_EQ(cut->text, std::string(2048, 'x'));
}

TEST(MessagesTest, EveryErrorCodeHasAName) {
    for (std::uint16_t code = 1; code <= 12; ++code) {
        EXPECT_THAT(error_code_name(static_cast<WireErrorCode>(code)), testing::Not(HasSubstr("unknown"))) << code;
    }
    EXPECT_THAT(error_code_name(static_cast<WireErrorCode>(999)), HasSubstr("unknown"));
}

}  // namespace
}  // namespace kvasir
