#include "gguf/manifest.h"

#include <nlohmann/json.hpp>
#include <random>

#include "gguf/model_fixture.h"

namespace kvasir {
namespace {

using testing::DirectoryTest;
using ::testing::HasSubstr;
using testing::OpenModel;
using Json = nlohmann::ordered_json;

class ManifestTest : public DirectoryTest {
  protected:
    ManifestTest() : model_(write_tiny("tiny.gguf")), manifest_(model_.publish()) {}

    Json json() const { return Json::parse(to_json(manifest_)); }
    // What parse_manifest() says to the manifest after `change`.
    template <class Change>
    std::string refusal(Change change) const {
        Json changed = json();
        change(changed);
        Result<Manifest> parsed = parse_manifest(changed.dump());
        return parsed ? "accepted" : parsed.error().message;
    }

    OpenModel model_;
    Manifest manifest_;
};

TEST_F(ManifestTest, SurvivesJson) {
    Result<Manifest> parsed = parse_manifest(to_json(manifest_));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->model_id(), manifest_.model_id());
    EXPECT_EQ(to_json(*parsed), to_json(manifest_));
    EXPECT_TRUE(matches(*parsed, model_.map));
    EXPECT_EQ(parsed->files.at(0).name, "tiny.gguf");
    EXPECT_EQ(parsed->layers.at(1).find(Role::down)->offset, model_.map.layers.at(1).find(Role::down)->info.offset);
}

TEST_F(ManifestTest, IdCoversWhatIsComputedAndNotWhereItLies) {
    Digest id = manifest_.model_id();
    Manifest moved = manifest_;
    moved.name = "Another";
    moved.files.at(0) = {"elsewhere.gguf", 1 << 30};
    moved.layers.at(0).tensors.at(0).offset += 4096;
    EXPECT_EQ(moved.model_id(), id);

    auto changed = [&](auto change) {
        Manifest other = manifest_;
        change(other);
        return other.model_id();
    };
    EXPECT_NE(changed([](Manifest& m) { m.architecture += "x"; }), id);
    EXPECT_NE(changed([](Manifest& m) { ++m.experts_used; }), id);
    EXPECT_NE(changed([](Manifest& m) { ++m.layers[0].hidden; }), id);
    EXPECT_NE(changed([](Manifest& m) { m.layers[0].recipe.activation = Activation::gelu; }), id);
    EXPECT_NE(changed([](Manifest& m) { m.layers[1].tensors[2].slabs[3][31] ^= std::byte{1}; }), id);
    EXPECT_NE(changed([](Manifest& m) { std::swap(m.layers[0].tensors[0].slabs, m.layers[0].tensors[1].slabs); }), id);
}

// The documented bytes (docs/manifest.md), assembled here once more.
TEST_F(ManifestTest, IdIsTheDocumentedHash) {
    ByteWriter writer;
    writer.append(std::as_bytes(std::span("kvasir-model-1", 14)));
    writer.write_string<std::uint32_t>("qwen3moe");
    for (std::uint32_t number : {2U, 2U, 2U})
        writer.write(number);  // blocks, experts used, layers
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
        writer.write(layer);
        writer.write(std::uint32_t{4});
        writer.write(std::uint64_t{64});
        writer.write(std::uint64_t{32});
        write_recipe(writer, model_.map.layers[layer].recipe);
        writer.write(std::uint32_t{3});
        for (Role role : {Role::gate, Role::up, Role::down}) {
            writer.write(static_cast<std::uint8_t>(role));
            writer.write(std::uint32_t{8});  // Q8_0
            bool down = role == Role::down;
            for (std::uint64_t extent : {down ? 32ULL : 64ULL, down ? 64ULL : 32ULL, 4ULL, 1ULL})
                writer.write(extent);
            writer.write(std::uint64_t{64 * 32 / 32 * 34});
            writer.write(std::uint32_t{4});
            for (std::uint32_t expert = 0; expert < 4; ++expert) {
                writer.append(sha256(model_.slab(layer, role, expert)));
            }
        }
    }
    EXPECT_EQ(to_hex(manifest_.model_id()), to_hex(sha256(writer.buffer())));
}

TEST_F(ManifestTest, RefusesEveryContradictionByName) {
    auto first = [](Json& j) -> Json& { return j["layers"][0]["tensors"][0]; };
    EXPECT_THAT(refusal([&](Json& j) { first(j)["sha256"][0] = std::string(64, 'a'); }), HasSubstr("damaged"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["sha256"][0] = "xyz"; }), HasSubstr("hex"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["sha256"].erase(0); }), HasSubstr("'sha256' has 3 elements"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["name"] = "blk.0.ffn_up_exps.weight"; }), HasSubstr("recipe wants"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["offset"] = 1 << 30; }), HasSubstr("'offset'"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["offset"] = -1; }), HasSubstr("'offset'"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["slab_bytes"] = j["files"][0]["size"]; }), HasSubstr("ends after"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["file"] = 1; }), HasSubstr("'file' is 1"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["shape"][0] = 63; }), HasSubstr("geometry"));
    EXPECT_THAT(refusal([&](Json& j) { first(j)["shape"][0] = 1e300; }), HasSubstr("other than numbers"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"][1]["layer"] = 0; }), HasSubstr("ascending"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"][0]["tensors"].erase(2); }), HasSubstr("'tensors'"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"][0]["experts"] = 0; }), HasSubstr("'experts' is 0"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"][0]["recipe"] = "00"; }), HasSubstr("'recipe'"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"][0]["recipe"] = std::string(32, 'f'); }), HasSubstr("'recipe'"));
    EXPECT_THAT(refusal([&](Json& j) { j["layers"] = Json::array(); }), HasSubstr("'layers'"));
    EXPECT_THAT(refusal([&](Json& j) { j["files"][0]["name"] = "../../etc/passwd"; }), HasSubstr("plain file name"));
    EXPECT_THAT(refusal([&](Json& j) { j["files"][0]["name"] = ".."; }), HasSubstr("plain file name"));
    EXPECT_THAT(refusal([&](Json& j) { j.erase("model_id"); }), HasSubstr("'model_id' is missing"));
    EXPECT_THAT(refusal([&](Json& j) { j["format"] = "something"; }), HasSubstr("'format'"));
    EXPECT_THAT(refusal([&](Json& j) { j["architecture"] = std::string(5000, 'x'); }), HasSubstr("5000 bytes"));
    EXPECT_THAT(refusal([&](Json& j) { j = Json::array({j}); }), HasSubstr("not a JSON object"));
    EXPECT_EQ(refusal([&](Json& j) { j["comment"] = "unknown keys are for later versions"; }), "accepted");
}

TEST_F(ManifestTest, SaysThatANewerVersionIsNewer) {
    Json newer = json();
    newer["version"] = 2;
    Result<Manifest> parsed = parse_manifest(newer.dump());
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().kind, ErrorKind::unsupported);
    EXPECT_THAT(parsed.error().message, HasSubstr("version 2"));
}

TEST_F(ManifestTest, RefusesWhatIsNotJson) {
    for (std::string_view text : {"", "{", "null", "[1", "GGUF\x03", "\xff\xfe"}) {
        Result<Manifest> parsed = parse_manifest(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.error().kind, ErrorKind::invalid);
    }
    EXPECT_THAT(parse_manifest(std::string(1 << 20, '[')).error().message, HasSubstr("deep"));
    std::string wide = "[0";
    for (int i = 0; i < 2'100'000; ++i)
        wide += ",0";
    EXPECT_THAT(parse_manifest(wide + "]").error().message, HasSubstr("values"));
    EXPECT_THAT(parse_manifest(std::string(kMaxManifestBytes + 1, ' ')).error().message, HasSubstr("allowed"));
}

TEST_F(ManifestTest, EveryTruncationAndManyChangesAreRefused) {
    std::string text = to_json(manifest_);
    std::mt19937 random(1);
    for (int i = 0; i < 300; ++i) {
        EXPECT_FALSE(parse_manifest(std::string_view(text).substr(0, random() % (text.size() - 2))));
    }
    // A changed byte may hit a space or the name; accepted or not, the id always fits the contents.
    for (int i = 0; i < 300; ++i) {
        std::string changed = text;
        changed[random() % changed.size()] = static_cast<char>(random());
        Result<Manifest> parsed = parse_manifest(changed);
        if (parsed) {
            EXPECT_EQ(parsed->model_id(), manifest_.model_id());
        }
    }
}

TEST_F(ManifestTest, KeepsARecipeThatTheHeaderDoesNotTell) {
    OpenModel model(write_tiny("new.gguf", {.architecture = "somethingnew"}));
    Manifest manifest = model.publish();
    ASSERT_EQ(manifest.layers.at(0).recipe.activation, Activation::unknown);
    Result<Manifest> parsed = parse_manifest(to_json(manifest));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->layers.at(0).recipe, manifest.layers.at(0).recipe);
}

TEST_F(ManifestTest, MatchesOnlyItsModel) {
    auto difference = [&](const ExpertMap& map) {
        Status same = matches(manifest_, map);
        if (!same) {
            EXPECT_EQ(same.error().kind, ErrorKind::invalid);
        }
        return same ? "the same" : same.error().message;
    };
    EXPECT_EQ(difference(model_.map), "the same");
    auto changed = [&](auto change) {
        ExpertMap map = model_.map;
        change(map);
        return difference(map);
    };
    EXPECT_THAT(changed([](ExpertMap& m) { m.architecture = "other"; }), HasSubstr("architecture"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.experts_used = 9; }), HasSubstr("uses 9 experts"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers.pop_back(); }), HasSubstr("1 layers"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers[0].layer = 5; }), HasSubstr("layer 5"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers[0].ff = 5; }), HasSubstr("4 experts of 64 x 5"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers[1].recipe.limit = 5; }), HasSubstr("layer 1: its recipe"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers[1].tensors[2].info.type = 1; }), HasSubstr("blk.1.ffn_down_exps"));
    EXPECT_THAT(changed([](ExpertMap& m) { m.layers[1].tensors[2].info.offset += 32; }), HasSubstr("at byte"));
}

TEST(ManifestPath, IsBesideTheFirstSplit) {
    EXPECT_EQ(manifest_path("/m/model.gguf"), "/m/model.gguf.kvasir.json");
    EXPECT_EQ(manifest_path("/m/x-00003-of-00007.gguf"), "/m/x-00001-of-00007.gguf.kvasir.json");
    EXPECT_EQ(manifest_path("x-00003-of-0000a.gguf"), "x-00003-of-0000a.gguf.kvasir.json");
    EXPECT_EQ(manifest_path("-00003-of-00007.gguf"), "-00003-of-00007.gguf.kvasir.json");
}

TEST(LoadManifest, NamesTheFile) {
    Result<Manifest> missing = load_manifest("/nonexistent/m.json");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().kind, ErrorKind::io);
    EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/m.json"));
    Result<Manifest> wrong = load_manifest(testing::real_model());
    ASSERT_FALSE(wrong);
    EXPECT_THAT(wrong.error().message, HasSubstr("kvasir-tales"));
}

}  // namespace
}  // namespace kvasir
