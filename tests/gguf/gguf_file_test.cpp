#include "gguf/gguf_file.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_directory.h"
#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

using ::testing::AllOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::tiny_moe;
using testing::write_bytes;

Result<GgufModel> parse(const ByteVector& bytes, GgufLength length = GgufLength::complete) {
    return GgufModel::parse(bytes, bytes.size(), length);
}

// The error of parsing what the builder makes.
Error error_of(const GgufBuilder& builder) {
    Result<GgufModel> model = parse(builder.build(), GgufLength::any);
    EXPECT_FALSE(model.has_value());
    return model ? Error{} : model.error();
}

TEST(GgufFile, ReadsMetadataOfEveryType) {
    GgufBuilder builder;
    builder.text("general.architecture", "tiny").u32("a.u32", 7).f32("a.f32", 0.5F).flag("a.flag", true);
    const std::int64_t negative = -5;
    builder.raw("a.i64", 11, std::as_bytes(std::span(&negative, 1)));
    const std::uint8_t byte = 200;
    builder.raw("a.u8", 0, std::as_bytes(std::span(&byte, 1)));
    builder.f32_array("a.floats", {1.5F, -2.0F}).text_array("a.tokens", {"a", "", "bcd"});
    builder.u32_array("tiny.heads", {2, 8, 4}).u32("tiny.width", 12);
    Result<GgufModel> model = parse(builder.build());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->architecture(), "tiny");
    EXPECT_EQ(model->integer("a.u32"), 7U);
    EXPECT_EQ(model->integer("a.u8"), 200U);
    EXPECT_EQ(model->integer("a.flag"), 1U);
    EXPECT_EQ(model->integer("a.i64"), std::nullopt);
    EXPECT_EQ(model->number("a.i64"), -5.0);
    EXPECT_EQ(model->number("a.f32"), 0.5);
    EXPECT_EQ(model->integer("a.f32"), std::nullopt);
    EXPECT_EQ(model->text("a.u32"), std::nullopt);
    EXPECT_EQ(model->integer("nothing"), std::nullopt);
    const auto& floats = std::get<GgufArray>(model->metadata().at("a.floats"));
    EXPECT_EQ(floats.numbers, (std::vector<double>{1.5, -2.0}));
    const auto& tokens = std::get<GgufArray>(model->metadata().at("a.tokens"));
    EXPECT_EQ(tokens.length, 3U);
    EXPECT_TRUE(tokens.numbers.empty());
    EXPECT_EQ(model->hyperparameter("heads"), 8U);
    EXPECT_EQ(model->hyperparameter("width"), 12U);
    EXPECT_EQ(model->hyperparameter("depth"), std::nullopt);
}

TEST(GgufFile, PlacesTensors) {
    for (const std::uint32_t version : {2U, 3U}) {
        GgufBuilder builder;
        builder.version = version;
        builder.alignment = 64;
        builder.tensor("a", GGML_TYPE_F32, {3}).tensor("b", GGML_TYPE_Q4_K, {512, 2, 3}).tensor("c", GGML_TYPE_F16, {});
        const ByteVector bytes = builder.build();
        Result<GgufModel> model = parse(bytes);
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_TRUE(model->complete());
        const std::uint64_t data = model->files().at(0).data_offset;
        EXPECT_EQ(data, builder.header().size());
        ASSERT_EQ(model->tensors().size(), 3U);
        EXPECT_EQ(model->tensors()[0].offset, data);
        const TensorInfo* b = model->find("b");
        ASSERT_NE(b, nullptr);
        EXPECT_EQ(b->offset, data + 64);
        EXPECT_EQ(b->bytes, 2U * 2 * 3 * 144);
        EXPECT_EQ(b->dimensions, 3);
        EXPECT_EQ(b->shape, (std::array<std::uint64_t, 4>{512, 2, 3, 1}));
        EXPECT_EQ(model->find("c")->bytes, 2U);
        EXPECT_EQ(model->find("d"), nullptr);
    }
}

TEST(GgufFile, NamesTypes) {
    EXPECT_EQ(type_name(GGML_TYPE_Q4_K), "Q4_K");
    EXPECT_EQ(type_name(GGML_TYPE_BF16), "BF16");
    EXPECT_EQ(type_name(4), "type 4");
    EXPECT_EQ(type_name(99), "type 99");
    EXPECT_EQ(type_name(0xffffffffU), "type 4294967295");
}

TEST(GgufFile, EveryTruncationIsAnError) {
    GgufBuilder builder = tiny_moe();
    builder.text_array("tokenizer.ggml.tokens", {"a", "bc"}).f32_array("tokenizer.ggml.scores", {1, 2});
    const ByteVector header = builder.header();
    // The header's last bytes are padding in front of the data section.
    Result<GgufModel> whole = parse(header, GgufLength::header_only);
    ASSERT_TRUE(whole) << whole.error().message;
    std::size_t accepted = 0;
    for (std::size_t size = 0; size < header.size(); ++size) {
        const ByteVector part(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_FALSE(parse(part)) << size;
        if (parse(part, GgufLength::any)) ++accepted;
    }
    EXPECT_LT(accepted, 32U);
}

TEST(GgufFile, ATruncatedModelSaysWhereItEnds) {
    ByteVector bytes = tiny_moe().build();
    const std::size_t full = bytes.size();
    bytes.resize(full - 10);
    Result<GgufModel> model = parse(bytes);
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().kind, ErrorKind::invalid);
    EXPECT_THAT(model.error().message, HasSubstr(fmt::format("truncated: ends at {} of {} bytes", full - 10, full)));
    Result<GgufModel> any = parse(bytes, GgufLength::any);
    ASSERT_TRUE(any);
    EXPECT_FALSE(any->complete());
}

TEST(GgufFile, AHeaderWithoutWeightsIsToldFromATruncatedModel) {
    GgufBuilder builder = tiny_moe();
    builder.flag("kvasir.header_only", true);
    const ByteVector header = builder.header();
    Result<GgufModel> complete = parse(header);
    ASSERT_FALSE(complete);
    EXPECT_THAT(complete.error().message, HasSubstr("only a model's header"));
    Result<GgufModel> only = parse(header, GgufLength::header_only);
    ASSERT_TRUE(only);
    EXPECT_FALSE(only->complete());
}

TEST(GgufFile, RefusesWhatIsNoGguf) {
    const auto error = [](std::string_view text) {
        const ByteSpan bytes = std::as_bytes(std::span(text));
        Result<GgufModel> model = GgufModel::parse(bytes, bytes.size(), GgufLength::any);
        return model ? std::string() : model.error().message;
    };
    EXPECT_THAT(error("PK\x03\x04 a zip file, not a model"),
                HasSubstr("not a GGUF file: it begins with 'PK\\x03\\x04'"));
    EXPECT_THAT(error(""), HasSubstr("not a GGUF file"));
    EXPECT_THAT(error("GGU"), HasSubstr("not a GGUF file"));
    EXPECT_THAT(error(std::string_view("GGUF\0\0\0\x03", 8)), HasSubstr("big-endian"));
    GgufBuilder builder;
    builder.version = 1;
    EXPECT_EQ(error_of(builder).kind, ErrorKind::unsupported);
    builder.version = 4;
    EXPECT_THAT(error_of(builder).message, HasSubstr("version 4"));
}

TEST(GgufFile, RefusesHugeCounts) {
    const ByteVector good = tiny_moe().build();
    for (const std::size_t at : {8U, 16U}) {  // tensors, metadata
        for (const std::uint64_t count : {std::uint64_t{1} << 63U, ~std::uint64_t{0}, std::uint64_t{5'000'000}}) {
            ByteVector bytes = good;
            std::memcpy(bytes.data() + at, &count, sizeof count);
            Result<GgufModel> model = parse(bytes);
            ASSERT_FALSE(model);
            EXPECT_THAT(model.error().message, HasSubstr(fmt::format("byte {}: ", at)));
        }
    }
}

TEST(GgufFile, RefusesHugeArraysAndStrings) {
    ByteWriter array;
    array.write(std::uint32_t{4});
    array.write(std::uint64_t{1} << 62U);
    EXPECT_THAT(error_of(GgufBuilder().raw("k", 9, array.buffer())).message, HasSubstr("the array 'k' claims"));
    ByteWriter strings;
    strings.write(std::uint32_t{8});
    strings.write(std::uint64_t{2});
    strings.write(~std::uint64_t{0});
    strings.write(~std::uint64_t{0});
    EXPECT_THAT(error_of(GgufBuilder().raw("k", 9, strings.buffer())).message, HasSubstr("ends within the array 'k'"));
    ByteWriter text;
    text.write(~std::uint64_t{0});
    EXPECT_THAT(error_of(GgufBuilder().raw("k", 8, text.buffer())).message, HasSubstr("ends within the string 'k'"));
    ByteWriter nested;
    nested.write(std::uint32_t{9});
    nested.write(std::uint64_t{0});
    EXPECT_THAT(error_of(GgufBuilder().raw("k", 9, nested.buffer())).message, HasSubstr("unsupported type 9"));
    EXPECT_THAT(error_of(GgufBuilder().raw("k", 13, nested.buffer())).message, HasSubstr("unknown value type 13"));
}

TEST(GgufFile, RefusesBadNames) {
    EXPECT_THAT(error_of(GgufBuilder().u32("k", 1).u32("k", 2)).message, HasSubstr("'k' occurs twice"));
    EXPECT_THAT(error_of(GgufBuilder().u32("", 1)).message, HasSubstr("a name of 0 bytes"));
    EXPECT_THAT(error_of(GgufBuilder().u32("\x1b[2J", 1)).message, HasSubstr("control characters"));
    EXPECT_THAT(error_of(GgufBuilder().tensor(std::string(1025, 'x'), GGML_TYPE_F32, {1})).message,
                HasSubstr("tensor 0 has a name of 1025 bytes"));
    EXPECT_THAT(error_of(GgufBuilder().tensor("t", GGML_TYPE_F32, {1}).tensor("t", GGML_TYPE_F32, {1})).message,
                HasSubstr("the tensor 't' occurs twice"));
}

TEST(GgufFile, RefusesBadShapes) {
    const std::uint64_t large = std::uint64_t{1} << 62U;
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {1, 1, 1, 1, 1}, 0)).message,
                HasSubstr("5 dimensions"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {4, 0}, 0)).message,
                HasSubstr("dimension 1 is 0"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {large, 4}, 0)).message, HasSubstr("overflows"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {~std::uint64_t{0}}, 0)).message,
                HasSubstr("overflows"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {large, 1}, 0)).message,
                HasSubstr("size in bytes overflows"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_Q4_K, {128, 2}, 0)).message,
                HasSubstr("rows of 128 elements are not whole blocks of 256 (Q4_K)"));
}

TEST(GgufFile, RefusesUnknownTypes) {
    for (const std::uint32_t type : {4U, 31U, 36U, 43U, 1000U, 0xffffffffU}) {
        const Error error = error_of(GgufBuilder().tensor_at("t", type, {256}, 0));
        EXPECT_EQ(error.kind, ErrorKind::unsupported);
        EXPECT_THAT(error.message, HasSubstr(fmt::format("tensor 't' has the unknown type {}", type)));
    }
}

TEST(GgufFile, RefusesBadPlaces) {
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {8}, 16)).message,
                HasSubstr("not a multiple of the alignment 32"));
    const std::uint64_t end = std::uint64_t{1} << 63U;
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {8}, end)).message, HasSubstr("overflows"));
    EXPECT_THAT(error_of(GgufBuilder().tensor_at("t", GGML_TYPE_F32, {8}, end - 32)).message, HasSubstr("overflows"));
    EXPECT_THAT(
        error_of(GgufBuilder().tensor_at("a", GGML_TYPE_F32, {16}, 0).tensor_at("b", GGML_TYPE_F32, {8}, 32)).message,
        HasSubstr("'a' and 'b' overlap"));
    for (const std::uint32_t alignment : {0U, 3U, 48U, 0x80000000U}) {
        EXPECT_THAT(error_of(GgufBuilder().u32("general.alignment", alignment)).message,
                    HasSubstr("general.alignment"));
    }
    EXPECT_THAT(error_of(GgufBuilder().text("general.alignment", "32")).message, HasSubstr("general.alignment"));
}

TEST(GgufFile, FlippedBytesNeverCrash) {
    const ByteVector good = tiny_moe({.layers = 1}).header();
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const std::uint8_t flip : {0x01, 0x80, 0xff}) {
            ByteVector bytes = good;
            bytes[at] ^= std::byte{flip};
            Result<GgufModel> model = parse(bytes, GgufLength::any);
            EXPECT_TRUE(model || !model.error().message.empty());
        }
    }
}

class GgufSplits : public ::testing::Test {
  protected:
    static std::string name(int number, int count) { return fmt::format("m-{:05}-of-{:05}.gguf", number, count); }

    static GgufBuilder split(std::uint32_t number, std::uint32_t count) {
        GgufBuilder builder;
        if (number == 0) builder.text("general.architecture", "tiny").u32("split.tensors.count", 3);
        builder.u32("split.no", number).u32("split.count", count);
        builder.tensor(fmt::format("t{}", number), GGML_TYPE_F32, {number + 1});
        return builder;
    }
    void write_all() {
        for (std::uint32_t i = 0; i < 3; ++i)
            write_bytes(path(i + 1, 3), split(i, 3).build());
    }
    std::filesystem::path path(int number, int count) const { return directory_->path() / name(number, count); }
    std::string error(int number, int count) const {
        Result<GgufModel> model = GgufModel::open(path(number, count));
        return model ? std::string() : model.error().message;
    }

    Result<TempDirectory> directory_ = TempDirectory::create("kvasir-gguf");
};

TEST_F(GgufSplits, AnySplitOpensTheModel) {
    write_all();
    for (int named = 1; named <= 3; ++named) {
        Result<GgufModel> model = GgufModel::open(path(named, 3));
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_EQ(model->architecture(), "tiny");
        ASSERT_EQ(model->files().size(), 3U);
        for (std::uint32_t i = 0; i < 3; ++i) {
            EXPECT_EQ(model->files()[i].path.filename(), name(static_cast<int>(i) + 1, 3));
            const TensorInfo* tensor = model->find(fmt::format("t{}", i));
            ASSERT_NE(tensor, nullptr);
            EXPECT_EQ(tensor->file, i);
            EXPECT_EQ(tensor->bytes, 4U * (i + 1));
            EXPECT_EQ(tensor->offset, model->files()[i].data_offset);
        }
    }
}

TEST_F(GgufSplits, AMissingSplitIsNamed) {
    write_all();
    std::filesystem::remove(path(2, 3));
    EXPECT_THAT(error(1, 3), AllOf(HasSubstr("split 2 of 3"), HasSubstr(name(2, 3))));
    EXPECT_THAT(error(3, 3), HasSubstr("split 2 of 3"));
}

TEST_F(GgufSplits, ARenamedSplitSaysWhatNameItNeeds) {
    write_all();
    std::filesystem::rename(path(2, 3), directory_->path() / "other.gguf");
    Result<GgufModel> model = GgufModel::open(directory_->path() / "other.gguf");
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message, HasSubstr("-00002-of-00003.gguf"));
}

TEST_F(GgufSplits, SplitsThatDoNotBelongTogetherAreRefused) {
    write_all();
    write_bytes(path(2, 3), split(2, 3).build());
    EXPECT_THAT(error(1, 3), HasSubstr("does not say that it is split 2 of 3"));
    write_bytes(path(2, 3), split(1, 3).tensor("t0", GGML_TYPE_F32, {1}).build());
    EXPECT_THAT(error(1, 3), HasSubstr("'t0' is in an earlier split already"));
    write_bytes(path(2, 3), split(1, 3).tensor("more", GGML_TYPE_F32, {1}).build());
    EXPECT_THAT(error(1, 3), HasSubstr("split.tensors.count is 3, but the splits hold 4 tensors"));
    write_bytes(path(1, 3), GgufBuilder().u32("split.no", 7).u32("split.count", 3).build());
    EXPECT_THAT(error(1, 3), HasSubstr("split.no and split.count"));
    ByteVector bytes = split(1, 3).build();
    bytes.resize(bytes.size() - 1);
    write_all();
    write_bytes(path(2, 3), bytes);
    EXPECT_THAT(error(1, 3), AllOf(HasSubstr(name(2, 3)), HasSubstr("truncated")));
}

TEST(GgufFile, ErrorsNameTheFile) {
    Result<TempDirectory> directory = TempDirectory::create("kvasir-gguf");
    ASSERT_TRUE(directory);
    const std::filesystem::path empty = directory->path() / "empty.gguf";
    write_bytes(empty, {});
    Result<GgufModel> model = GgufModel::open(empty);
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message, AllOf(HasSubstr(empty.string()), HasSubstr("not a GGUF file")));
    model = GgufModel::open(directory->path() / "nothing.gguf");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().kind, ErrorKind::io);
    EXPECT_THAT(model.error().message, HasSubstr("nothing.gguf"));
    EXPECT_FALSE(GgufModel::open(directory->path()));
}

TEST(GgufFile, OpensTheBundledModel) {
    Result<GgufModel> model = GgufModel::open(KVASIR_MODELS "/kvasir-tales-q4_k_m.gguf");
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_TRUE(model->complete());
    EXPECT_EQ(model->architecture(), "qwen3moe");
    EXPECT_EQ(model->hyperparameter("block_count"), 6U);
    EXPECT_EQ(model->hyperparameter("expert_count"), 32U);
    const TensorInfo* up = model->find("blk.5.ffn_up_exps.weight");
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->type, static_cast<std::uint32_t>(GGML_TYPE_Q4_K));
    EXPECT_EQ(up->shape[2], 32U);
}

}  // namespace
}  // namespace kvasir
