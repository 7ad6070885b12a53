#include "gguf/slice.h"

#include <ggml.h>
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "base/child_process.h"
#include "gguf/model_fixture.h"

namespace kvasir {
namespace {

using ::testing::AllOf;
using testing::DirectoryTest;
using ::testing::ElementsAre;
using testing::flip_bit;
using ::testing::HasSubstr;
using testing::OpenModel;
using testing::read_bytes;
using testing::real_model;
using testing::TinyMoe;
using testing::write_bytes;

class SliceTest : public DirectoryTest {
  protected:
    static Result<SliceReport> cut(const OpenModel& model, const Manifest* manifest, std::vector<Piece> pieces,
                                   const std::filesystem::path& out) {
        return write_slice(model.model, model.map, manifest, std::move(pieces), out, true);
    }

    // Every slab of the slice is the model's, byte for byte, and there are exactly `pieces`.
    static void expect_equal(const Slice& slice, const OpenModel& model, const std::vector<Piece>& pieces) {
        MappedFile file = MappedFile::open(slice.model.files().at(0).path).value();
        std::vector<Piece> held;
        for (const SliceLayer& part : slice.layers) {
            held.push_back(part.piece);
            const ExpertLayer& origin = *model.map.find(part.piece.layer);
            EXPECT_EQ(part.model_experts, origin.experts);
            EXPECT_EQ(part.layer.recipe, origin.recipe);
            ASSERT_EQ(part.layer.tensors.size(), origin.tensors.size());
            for (const ExpertTensor& tensor : part.layer.tensors) {
                EXPECT_EQ(tensor.info.offset % 32, 0U);
                for (std::uint32_t i = 0; i < part.piece.count; ++i) {
                    ByteSpan copy = file.bytes().subspan(tensor.slab_offset(i), tensor.slab_bytes);
                    ByteSpan slab = model.slab(part.piece.layer, tensor.role, part.piece.first + i);
                    ASSERT_TRUE(std::ranges::equal(copy, slab)) << tensor.info.name << " expert " << i;
                }
            }
        }
        EXPECT_EQ(held, pieces);
    }
};

TEST_F(SliceTest, HoldsTheModelsBytes) {
    OpenModel model(real_model());
    Manifest manifest = model.publish();
    std::vector<Piece> pieces = {{0, 0, 8}, {0, 10, 1}, {0, 20, 12}, {3, 31, 1}, {5, 0, 32}};
    Result<SliceReport> report = cut(model, &manifest, pieces, path("slice.gguf"));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->verified);
    EXPECT_EQ(report->bytes, std::filesystem::file_size(path("slice.gguf")));
    EXPECT_LT(report->bytes, report->slab_bytes + 64 * 1024) << "little besides weights";

    Result<Slice> slice = open_slice(path("slice.gguf"));
    ASSERT_TRUE(slice) << slice.error().message;
    expect_equal(*slice, model, pieces);
    EXPECT_EQ(slice->model_id, manifest.model_id());
    EXPECT_EQ(slice->architecture, "qwen3moe");
    EXPECT_EQ(slice->name, model.map.name);
    EXPECT_EQ(slice->experts_used, model.map.experts_used);
    EXPECT_EQ(slice->block_count, 6U);
    EXPECT_EQ(slice->layers.at(1).layer.first_expert, 10U);
    EXPECT_EQ(slice->layers.at(1).layer.tensors.at(0).info.name, "blk.0.ffn_gate_exps.weight.1");
    EXPECT_FALSE(slice->model.metadata().contains("tokenizer.ggml.tokens"));
    EXPECT_EQ(check_slice(path("slice.gguf"), &manifest, true).value(), report->slab_bytes);
    EXPECT_THAT(list(), ElementsAre("slice.gguf"));
}

TEST_F(SliceTest, RandomSelectionsAreMergedAndExact) {
    OpenModel model(real_model());
    Manifest manifest = model.publish();
    std::mt19937 random(3);
    for (int round = 0; round < 20; ++round) {
        std::vector<Piece> pieces;
        for (unsigned i = 0, n = 1 + random() % 8; i < n; ++i) {
            std::uint32_t first = random() % 32;
            pieces.push_back({static_cast<std::uint32_t>(random() % 6), first,
                              static_cast<std::uint32_t>(1 + random() % (32 - first))});
        }
        const Manifest* known = round % 2 == 0 ? &manifest : nullptr;
        Result<SliceReport> report = cut(model, known, pieces, path("slice.gguf"));
        ASSERT_TRUE(report) << report.error().message;
        Result<Slice> slice = open_slice(path("slice.gguf"));
        ASSERT_TRUE(slice) << slice.error().message;
        expect_equal(*slice, model, normalized(pieces));
        EXPECT_EQ(slice->model_id.has_value(), known != nullptr);
        EXPECT_TRUE(check_slice(path("slice.gguf"), &manifest, true));
        EXPECT_TRUE(check_slice(path("slice.gguf"), nullptr, true));
    }
}

TEST_F(SliceTest, CutsFromSplitModels) {
    OpenModel model(write_tiny_split());
    Manifest manifest = model.publish();
    ASSERT_TRUE(cut(model, &manifest, {{0, 1, 2}, {1, 3, 1}}, path("slice.gguf")));
    expect_equal(open_slice(path("slice.gguf")).value(), model, {{0, 1, 2}, {1, 3, 1}});
}

TEST_F(SliceTest, KeepsBiasesScalesAndFusedTensors) {
    testing::GgufBuilder builder = testing::tiny_moe_metadata({.architecture = "gpt-oss"});
    for (const char* part : {"gate", "up", "down"}) {
        builder.tensor(fmt::format("blk.0.ffn_{}_exps.weight", part), GGML_TYPE_MXFP4, {64, 64, 4});
        builder.tensor(fmt::format("blk.0.ffn_{}_exps.bias", part), GGML_TYPE_F32, {64, 4});
    }
    builder.tensor("blk.1.ffn_gate_up_exps.weight", GGML_TYPE_F16, {64, 48, 4});
    builder.tensor("blk.1.ffn_up_exps.scale", GGML_TYPE_F32, {4});
    builder.tensor("blk.1.ffn_gate_up_exps.bias", GGML_TYPE_F32, {48, 4});
    builder.tensor("blk.1.ffn_down_exps.weight", GGML_TYPE_F16, {24, 64, 4});
    builder.tensor("blk.1.ffn_down_exps.scale", GGML_TYPE_F32, {4});
    write_bytes(path("model.gguf"), builder.build());
    OpenModel model(path("model.gguf"));
    Manifest manifest = model.publish();
    Result<Manifest> parsed = parse_manifest(to_json(manifest));
    ASSERT_TRUE(parsed) << parsed.error().message;
    std::vector<Piece> pieces = {{0, 0, 1}, {0, 2, 2}, {1, 1, 1}, {1, 3, 1}};
    Result<SliceReport> report = cut(model, &*parsed, pieces, path("slice.gguf"));
    ASSERT_TRUE(report) << report.error().message;
    Result<Slice> slice = open_slice(path("slice.gguf"));
    ASSERT_TRUE(slice) << slice.error().message;
    expect_equal(*slice, model, pieces);
    EXPECT_EQ(slice->layers.at(0).layer.tensors.size(), 6U);
    EXPECT_EQ(slice->layers.at(2).layer.tensors.size(), 5U);
    EXPECT_EQ(slice->layers.at(2).layer.find(Role::up_scale)->slab_bytes, 4U);
}

TEST_F(SliceTest, OpensWithLlamaCppsOwnReader) {
    const std::filesystem::path tool = std::filesystem::path(KVASIR_LLAMA_BIN) / "llama-gguf";
    OpenModel model(real_model());
    Manifest manifest = model.publish();
    ASSERT_TRUE(cut(model, &manifest, {{1, 0, 1}, {1, 5, 3}, {2, 0, 32}}, path("slice.gguf")));
    auto child = ChildProcess::start({{tool.string(), path("slice.gguf").string(), "r", "n"}, {}}).value();
    Result<int> code = child->wait(std::chrono::seconds(60));
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_EQ(*code, 0) << child->stderr_text();
    std::string output = child->stdout_text() + child->stderr_text();
    EXPECT_THAT(output, AllOf(HasSubstr("blk.1.ffn_up_exps.weight.1"), HasSubstr("(256, 256, 32, 1)"),
                              HasSubstr("kvasir.slice.pieces")));
}

TEST_F(SliceTest, FindsAndNamesDamage) {
    OpenModel model(real_model());
    Manifest manifest = model.publish();
    ASSERT_TRUE(cut(model, &manifest, {{2, 4, 4}, {2, 10, 2}}, path("slice.gguf")));
    Slice slice = open_slice(path("slice.gguf")).value();
    const ExpertTensor& tensor = *slice.layers.at(1).layer.find(Role::down);
    flip_bit(path("slice.gguf"), tensor.slab_offset(1) + tensor.slab_bytes - 1);
    for (const Manifest* known : {static_cast<const Manifest*>(nullptr), static_cast<const Manifest*>(&manifest)}) {
        Result<std::uint64_t> checked = check_slice(path("slice.gguf"), known, true);
        ASSERT_FALSE(checked);
        EXPECT_EQ(checked.error().kind, ErrorKind::invalid);
        EXPECT_THAT(checked.error().message, HasSubstr("slice.gguf: blk.2.ffn_down_exps.weight.1, expert 11: damaged"));
    }
}

TEST_F(SliceTest, ComparesWithTheManifest) {
    OpenModel model(write_tiny("tiny.gguf"));
    Manifest manifest = model.publish();
    Manifest other = manifest;
    other.layers.at(0).tensors.at(1).slabs.at(2)[0] ^= std::byte{1};
    ASSERT_TRUE(cut(model, &manifest, {{0, 2, 2}}, path("slice.gguf")));
    Result<std::uint64_t> checked = check_slice(path("slice.gguf"), &other, true);
    ASSERT_FALSE(checked);
    EXPECT_THAT(checked.error().message, HasSubstr("the manifest is of model"));
    // Cut without a manifest: no id, but digests that give it away.
    ASSERT_TRUE(cut(model, nullptr, {{0, 2, 2}}, path("slice.gguf")));
    EXPECT_TRUE(check_slice(path("slice.gguf"), &manifest, true));
    checked = check_slice(path("slice.gguf"), &other, true);
    ASSERT_FALSE(checked);
    EXPECT_THAT(checked.error().message, HasSubstr("blk.0.ffn_up_exps.weight, expert 2: the slice has another digest"));
}

TEST_F(SliceTest, DamagedModelGivesNoSlice) {
    OpenModel model(write_tiny("tiny.gguf"));
    Manifest manifest = model.publish();
    flip_bit(path("tiny.gguf"), model.map.find(1)->find(Role::gate)->slab_offset(3));
    Result<SliceReport> report = cut(model, &manifest, {{1, 2, 2}}, path("slice.gguf"));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::invalid);
    EXPECT_THAT(report.error().message,
                AllOf(HasSubstr("tiny.gguf"), HasSubstr("blk.1.ffn_gate_exps.weight, expert 3")));
    EXPECT_THAT(list(), ElementsAre("tiny.gguf"));
}

TEST_F(SliceTest, RefusesByNameAndWritesNothing) {
    OpenModel model(write_tiny("tiny.gguf"));
    Manifest manifest = model.publish();
    auto refusal = [&](const Manifest* known, std::vector<Piece> pieces, std::string_view out) {
        Result<SliceReport> report = cut(model, known, std::move(pieces), path(out));
        return report ? "accepted" : report.error().message;
    };
    EXPECT_THAT(refusal(nullptr, {{7, 0, 1}}, "x"), HasSubstr("layer 7 does not exist"));
    EXPECT_THAT(refusal(nullptr, {{1, 3, 2}}, "x"), HasSubstr("layer 1 has no experts 3-4: its experts are 0-3"));
    EXPECT_THAT(refusal(nullptr, {{1, 0, 0xFFFFFFFF}, {1, 1, 0xFFFFFFFF}}, "x"), HasSubstr("layer 1 has no experts"));
    EXPECT_THAT(refusal(nullptr, {}, "x"), HasSubstr("0 pieces"));
    EXPECT_THAT(refusal(nullptr, {{0, 0, 1}}, "tiny.gguf"), HasSubstr("is the model itself"));
    EXPECT_THAT(refusal(nullptr, {{0, 0, 1}}, ""), HasSubstr("is a directory"));
    EXPECT_THAT(refusal(nullptr, {{0, 0, 1}}, "no/x"), HasSubstr("does not exist"));
    Manifest other = manifest;
    other.layers.at(0).tensors.at(0).type = 1;
    EXPECT_THAT(refusal(&other, {{0, 0, 1}}, "x"), HasSubstr("the manifest is not this model's"));
    EXPECT_THAT(list(), ElementsAre("tiny.gguf"));

    ASSERT_EQ(refusal(&manifest, {{0, 0, 1}}, "slice.gguf"), "accepted");
    OpenModel slice(path("slice.gguf"));
    Result<SliceReport> again = cut(slice, nullptr, {{0, 0, 1}}, path("again.gguf"));
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("slice.gguf: is a slice itself"));
}

TEST_F(SliceTest, InterruptedAndFailedWritesLeaveNothing) {
    OpenModel model(real_model());
    std::atomic<bool> cancel = true;
    Result<SliceReport> report =
        write_slice(model.model, model.map, nullptr, {{0, 0, 32}}, path("slice.gguf"), true, &cancel);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::unavailable);

    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit small = before;
    small.rlim_cur = 200'000;
    auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    report = cut(model, nullptr, {{0, 0, 32}}, path("slice.gguf"));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::io);
    EXPECT_THAT(list(), ElementsAre());
}

TEST_F(SliceTest, WholeModelIsASliceOfEverything) {
    OpenModel model(write_tiny("tiny.gguf"));
    Result<Slice> slice = open_slice(path("tiny.gguf"));
    ASSERT_TRUE(slice) << slice.error().message;
    expect_equal(*slice, model, {{0, 0, 4}, {1, 0, 4}});
    EXPECT_FALSE(slice->model_id);
    EXPECT_EQ(check_slice(path("tiny.gguf"), nullptr, true).error().kind, ErrorKind::usage);

    Manifest manifest = model.publish();
    std::filesystem::path beside = manifest_path(path("tiny.gguf"));
    ASSERT_TRUE(write_text_file(beside, to_json(manifest)));
    EXPECT_EQ(open_slice(path("tiny.gguf")).value().model_id, manifest.model_id());
    EXPECT_TRUE(check_slice(path("tiny.gguf"), &manifest, true));
    manifest.experts_used = 3;
    ASSERT_TRUE(write_text_file(beside, to_json(manifest)));
    EXPECT_THAT(open_slice(path("tiny.gguf")).error().message, HasSubstr("tiny.gguf.kvasir.json: is not this model's"));
}

// A slice file put together here, key by key (docs/slice-format.md), so that each key can lie.
struct HandMade {
    std::uint32_t version = 1;
    std::string model_id = std::string(64, '0');
    std::vector<std::uint32_t> pieces = {0, 1, 2, 0, 4, 1};
    std::vector<std::uint32_t> experts = {8, 8};
    std::vector<std::uint32_t> geometry = {64, 32, 64, 32};
    std::vector<std::uint32_t> recipe = {0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    std::uint64_t second_count = 1;
    std::size_t digest_digits = 64;
    std::string extra_tensor = {};
    bool leave_out_a_tensor = false;

    ByteVector build() const {
        testing::GgufBuilder builder;
        builder.text("general.architecture", "qwen3moe").u32("kvasir.slice.version", version);
        builder.text("kvasir.slice.model_id", model_id).u32_array("kvasir.slice.pieces", pieces);
        builder.u32_array("kvasir.slice.layer_experts", experts).u32_array("kvasir.slice.geometry", geometry);
        std::vector<std::uint32_t> recipes = recipe;
        recipes.insert(recipes.end(), recipe.begin(), recipe.end());
        builder.u32_array("kvasir.slice.recipes", recipes);
        for (std::uint64_t part = 0; part < 2; ++part) {
            std::uint64_t count = part == 0 ? 2 : second_count;
            for (const char* role : {"gate", "up", "down"}) {
                std::string name = fmt::format("blk.0.ffn_{}_exps.weight{}", role, part == 0 ? "" : ".1");
                builder.text("kvasir.slice.sha256." + name, std::string(digest_digits * count, '0'));
                bool down = std::string_view(role) == "down";
                if (leave_out_a_tensor && down) continue;
                builder.tensor(name, GGML_TYPE_F32, {down ? 32U : 64U, down ? 64U : 32U, count});
            }
        }
        if (!extra_tensor.empty()) builder.tensor(extra_tensor, GGML_TYPE_F32, {4});
        return builder.build();
    }
};

TEST_F(SliceTest, RefusesSlicesThatLie) {
    auto opened = [&](const HandMade& made) {
        write_bytes(path("made.gguf"), made.build());
        Result<Slice> slice = open_slice(path("made.gguf"));
        Result<std::uint64_t> checked = check_slice(path("made.gguf"), nullptr, true);
        EXPECT_FALSE(checked) << "the digests are zeros";
        EXPECT_TRUE(slice || checked.error().message == slice.error().message);
        return slice ? "accepted" : slice.error().message;
    };
    EXPECT_EQ(opened({}), "accepted");
    EXPECT_THAT(check_slice(path("made.gguf"), nullptr, true).error().message, HasSubstr("damaged"));
    EXPECT_THAT(opened({.version = 2}), HasSubstr("slice version 2"));
    EXPECT_THAT(opened({.model_id = "12"}), AllOf(HasSubstr("made.gguf"), HasSubstr("model_id")));
    EXPECT_THAT(opened({.pieces = {}}), HasSubstr("kvasir.slice.pieces"));
    EXPECT_THAT(opened({.pieces = {0, 1}}), HasSubstr("kvasir.slice.pieces"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2}}), HasSubstr("kvasir.slice.layer_experts"));
    EXPECT_THAT(opened({.pieces = {0, 4, 1, 0, 1, 2}}), HasSubstr("not sorted"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 0, 2, 1}}), HasSubstr("not sorted"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 0, 4, 0}}), HasSubstr("no experts"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 0, 8, 1}}), HasSubstr("experts 8 to 8 of 8"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 1, 4, 1}}), HasSubstr("blk.1.ffn_gate_exps.weight is missing"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 0, 4, 4}}), HasSubstr("its shape is not that of 4 experts"));
    EXPECT_THAT(opened({.pieces = {0, 1, 2, 0, 0xFFFFFFFF, 0xFFFFFFFF}}), HasSubstr("of 8"));
    EXPECT_THAT(opened({.experts = {8, 9}}), HasSubstr("two different expert counts"));
    EXPECT_THAT(opened({.geometry = {64, 32, 64}}), HasSubstr("kvasir.slice.geometry"));
    EXPECT_THAT(opened({.geometry = {64, 31, 64, 32}}), HasSubstr("its shape"));
    EXPECT_THAT(opened({.recipe = std::vector<std::uint32_t>(16, 77)}), HasSubstr("recipe"));
    EXPECT_THAT(opened({.recipe = std::vector<std::uint32_t>(16, 0x100)}), HasSubstr("recipe"));
    EXPECT_THAT(opened({.recipe = {0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}), HasSubstr("gate_exps.bias"));
    EXPECT_THAT(opened({.second_count = 2}), HasSubstr("blk.0.ffn_gate_exps.weight.1: its shape"));
    EXPECT_THAT(opened({.digest_digits = 63}), HasSubstr("digests of 2 slabs"));
    EXPECT_THAT(opened({.extra_tensor = "blk.0.ffn_up_exps.weight.2"}), HasSubstr("7 tensors, its pieces have 6"));
    EXPECT_THAT(opened({.leave_out_a_tensor = true}), HasSubstr("blk.0.ffn_down_exps.weight is missing"));
}

TEST_F(SliceTest, RefusesTruncatedFiles) {
    OpenModel model(write_tiny("tiny.gguf"));
    ASSERT_TRUE(cut(model, nullptr, {{0, 0, 4}, {1, 1, 1}}, path("slice.gguf")));
    ByteVector whole = read_bytes(path("slice.gguf"));
    std::mt19937 random(5);
    for (int i = 0; i < 60; ++i) {
        // The last slab may end in padding, without which nothing is lost.
        write_bytes(path("cut.gguf"), ByteSpan(whole).first(random() % (whole.size() - 32)));
        Result<Slice> slice = open_slice(path("cut.gguf"));
        ASSERT_FALSE(slice);
        EXPECT_THAT(slice.error().message, HasSubstr("cut.gguf"));
    }
}

}  // namespace
}  // namespace kvasir
