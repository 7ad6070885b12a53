#include "backbone/open_backbone.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/temp_directory.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseBackboneOptions, ReadsEveryKey) {
    Result<BackboneOptions> options = parse_backbone_options(
        R"({"model": "m.gguf", "manifest": "/abs/m.json", "identity": "id.pem", "workers": ["a:1#x", "b:2"],
            "deadline_ms": 150, "insecure_loopback": true})",
        "/base");
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(options->model, "/base/m.gguf");
    EXPECT_EQ(options->manifest, "/abs/m.json");
    EXPECT_EQ(options->identity, "/base/id.pem");
    EXPECT_THAT(options->workers, ElementsAre("a:1#x", "b:2"));
    EXPECT_EQ(options->deadline, std::chrono::milliseconds(150));
    EXPECT_TRUE(options->insecure_loopback);
}

TEST(ParseBackboneOptions, LeavesDefaultsWhereAKeyIsAbsent) {
    Result<BackboneOptions> options = parse_backbone_options(R"({"model": "m.gguf"})", "/base");
    ASSERT_TRUE(options);
    EXPECT_TRUE(options->manifest.empty());
    EXPECT_TRUE(options->identity.empty());
    EXPECT_THAT(options->workers, IsEmpty());
    EXPECT_FALSE(options->insecure_loopback);
}

TEST(ParseBackboneOptions, TakesAnArithmeticByItsShortName) {
    for (Arithmetic arithmetic : known_arithmetics()) {
        Result<BackboneOptions> options = parse_backbone_options(
            fmt::format(R"({{"model": "m.gguf", "arithmetic": "{}"}})", short_name(arithmetic)), "/base");
        ASSERT_TRUE(options);
        EXPECT_EQ(options->arithmetic, arithmetic);
    }
}

TEST(ParseBackboneOptions, RefusesByName) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", "not a JSON object"},
        {"[]", "not a JSON object"},
        {R"({"model": "m")", "not a JSON object"},
        {"{}", "\"model\" is missing"},
        {R"({"model": 3})", "\"model\" has the wrong type"},
        {R"({"model": "m", "workers": "a:1"})", "\"workers\" has the wrong type"},
        {R"({"model": "m", "workers": [1]})", "\"workers\" has the wrong type"},
        {R"({"model": "m", "deadline_ms": 0})", "\"deadline_ms\" is 0"},
        {R"({"model": "m", "deadline_ms": -5})", "\"deadline_ms\" is"},
        {R"({"model": "m", "arithmetic": 1})", "\"arithmetic\" has the wrong type"},
        {R"({"model": "m", "arithmetic": "fast"})", "\"arithmetic\": 'fast' is no arithmetic"},
        {R"({"model": "m", "wokers": []})", "unknown key \"wokers\""},
    };
    for (const auto& [text, reason] : cases) {
        SCOPED_TRACE(text);
        Result<BackboneOptions> options = parse_backbone_options(text, "/");
        ASSERT_FALSE(options);
        EXPECT_EQ(options.error().kind, ErrorKind::usage);
        EXPECT_THAT(options.error().message, HasSubstr(reason));
    }
}

class WorkersFileTest : public ::testing::Test {
  protected:
    Result<std::vector<std::string>> read(std::string_view text) {
        std::filesystem::path path = directory_.path() / "workers";
        EXPECT_TRUE(write_text_file(path, text));
        return read_workers_file(path);
    }
    TempDirectory directory_ = TempDirectory::create("kvasir-test").value();
};

TEST_F(WorkersFileTest, TakesOneWorkerPerLineAndSkipsComments) {
    Result<std::vector<std::string>> workers = read("# ours\n\n  a:1#00ff  \n#b:2\nc:3#11 # the cellar\n");
    ASSERT_TRUE(workers) << workers.error().message;
    EXPECT_THAT(*workers, ElementsAre("a:1#00ff", "c:3#11"));
}

TEST_F(WorkersFileTest, RefusesTwoOnALine) {
    Result<std::vector<std::string>> workers = read("a:1 b:2\n");
    ASSERT_FALSE(workers);
    EXPECT_THAT(workers.error().message, HasSubstr("'b:2' follows 'a:1'"));
}

BackboneOptions without_workers(const char* model) {
    BackboneOptions options;
    options.model = model;
    return options;
}

TEST(OpenBackbone, NamesAMissingModel) {
    Result<Backbone> backbone = open_backbone(without_workers("/nowhere/m.gguf"));
    ASSERT_FALSE(backbone);
    EXPECT_THAT(backbone.error().message, HasSubstr("/nowhere/m.gguf"));
}

TEST(OpenBackbone, NeedsNoManifestWithoutWorkers) {
    Result<Backbone> backbone = open_backbone(without_workers(KVASIR_MODELS "/kvasir-tales-q4_k_m.gguf"));
    ASSERT_TRUE(backbone) << backbone.error().message;
    EXPECT_EQ(backbone->config.dispatcher, nullptr);
    EXPECT_FALSE(backbone->id);
    EXPECT_FALSE(backbone->map.layers.empty());
}

class OpenBackboneTest : public ::testing::Test {
  protected:
    OpenBackboneTest() {
        std::filesystem::create_symlink(KVASIR_MODELS "/kvasir-tales-q4_k_m.gguf", model_);
        options_.model = model_;
        options_.workers = {"127.0.0.1:9"};
        options_.insecure_loopback = true;
    }
    Manifest published() const {
        GgufModel model = GgufModel::open(model_).value();
        PublishOptions quietly;
        quietly.quiet = true;
        return publish(model, map_experts(model).value(), quietly).value().manifest;
    }
    TempDirectory directory_ = TempDirectory::create("kvasir-test").value();
    std::filesystem::path model_ = directory_.path() / "model.gguf";
    BackboneOptions options_;
};

TEST_F(OpenBackboneTest, AsksForAManifestWhereThereAreWorkers) {
    Result<Backbone> backbone = open_backbone(options_);
    ASSERT_FALSE(backbone);
    EXPECT_EQ(backbone.error().kind, ErrorKind::usage);
    EXPECT_THAT(backbone.error().message, HasSubstr("kvasir publish"));
}

TEST_F(OpenBackboneTest, FindsTheManifestBesideTheModel) {
    Manifest manifest = published();
    ASSERT_TRUE(write_text_file(manifest_path(model_), to_json(manifest)));
    Result<Backbone> backbone = open_backbone(options_);
    ASSERT_TRUE(backbone) << backbone.error().message;
    EXPECT_NE(backbone->config.dispatcher, nullptr);
    EXPECT_EQ(*backbone->model_id, manifest.model_id());
    EXPECT_FALSE(backbone->id) << "no connection uses TLS";
}

TEST_F(OpenBackboneTest, RefusesAManifestOfOtherBytes) {
    Manifest manifest = published();
    manifest.layers.back().tensors.back().slabs.front()[0] ^= std::byte{1};
    ASSERT_TRUE(write_text_file(manifest_path(model_), to_json(manifest)));
    Result<Backbone> backbone = open_backbone(options_);
    ASSERT_FALSE(backbone);
    EXPECT_EQ(backbone.error().kind, ErrorKind::invalid);
    EXPECT_THAT(backbone.error().message, HasSubstr("expert 0"));
}

TEST_F(OpenBackboneTest, RefusesAWorkerWithoutIdUnlessAllowed) {
    ASSERT_TRUE(write_text_file(manifest_path(model_), to_json(published())));
    options_.insecure_loopback = false;
    EXPECT_FALSE(open_backbone(options_));
}

}  // namespace
}  // namespace kvasir
