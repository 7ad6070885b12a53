// What a hub publishes, in memory and over real sockets.
#include "hub/catalogue.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "gguf/model_fixture.h"
#include "http/client.h"
#include "http/server.h"
#include "hub/range_files.h"

namespace kvasir::hub {
namespace {

using kvasir::testing::read_bytes;
using ::testing::HasSubstr;

class CatalogueTest : public kvasir::testing::DirectoryTest {
  protected:
    Status add(const std::filesystem::path& file, PublishSettings settings = {}) {
        return catalogue_.add(file, settings);
    }

    Catalogue catalogue_;
};

TEST_F(CatalogueTest, HashesAModelOnce) {
    const auto model = write_tiny("tiny.gguf");
    ASSERT_TRUE(add(model));
    EXPECT_TRUE(std::filesystem::exists(manifest_path(model)));
    EXPECT_EQ(catalogue_.models().at(0).id, kvasir::testing::OpenModel(model).publish().model_id());
    EXPECT_EQ(add(model).error().kind, ErrorKind::usage);  // twice
    Catalogue elsewhere;
    PublishSettings settings;
    settings.manifests = path("data");
    std::filesystem::create_directory(path("data"));
    std::filesystem::remove(manifest_path(model));
    ASSERT_TRUE(elsewhere.add(model, settings));
    EXPECT_TRUE(std::filesystem::exists(path("data") / "tiny.gguf.kvasir.json"));
    EXPECT_FALSE(std::filesystem::exists(manifest_path(model)));
}

TEST_F(CatalogueTest, RefusesAManifestOfAnotherModel) {
    const auto model = write_tiny("tiny.gguf");
    kvasir::testing::TinyMoe other;
    other.experts = 8;
    ASSERT_TRUE(Catalogue().add(write_tiny("other.gguf", other), {}));
    std::filesystem::rename(manifest_path(path("other.gguf")), manifest_path(model));
    EXPECT_THAT(add(model).error().message, HasSubstr("publish it again"));
}

TEST_F(CatalogueTest, AManifestAloneNeedsAMirror) {
    const auto model = write_tiny("tiny.gguf");
    ASSERT_TRUE(Catalogue().add(model, {}));
    std::filesystem::remove(model);
    EXPECT_EQ(add(manifest_path(model)).error().kind, ErrorKind::usage);
    EXPECT_EQ(add(manifest_path(model), {{"nonsense"}, {}, nullptr}).error().kind, ErrorKind::usage);
    ASSERT_TRUE(add(manifest_path(model), {{"http://mirror/"}, {}, nullptr}));
    const nlohmann::json json = nlohmann::json::parse(catalogue_.to_json());
    EXPECT_EQ(json.at("models").at(0).at("files_here"), false);
    EXPECT_EQ(json.at("models").at(0).at("mirrors").at(0), "http://mirror/");
    // The mirror is in the manifest that is handed out, and changes nothing of the id.
    const Manifest handed_out = parse_manifest(*catalogue_.models().at(0).json).value();
    EXPECT_EQ(handed_out.mirrors, std::vector<std::string>{"http://mirror/"});
    EXPECT_EQ(handed_out.model_id(), catalogue_.models().at(0).id);
}

class RangeFilesTest : public CatalogueTest {
  protected:
    void serve() {
        add_catalogue_routes(router_, catalogue_);
        http::ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        server_ = http::Server::start(options, [this](const http::Request& request) {
                      return router_.answer(request);
                  }).value();
    }
    struct Got {
        http::Answer answer;
        std::string body;
    };
    Got get(const std::string& target, http::Fields fields = {}) {
        const http::Url url{false, server_->local_address(), target};
        Result<http::Answer> answer = client_.call({"GET", url, std::move(fields), {}});
        EXPECT_TRUE(answer) << answer.error().message;
        return {*answer, client_.read_all(1 << 24).value()};
    }
    std::string model_path() const { return "/v1/models/" + to_hex(catalogue_.models().at(0).id); }

    http::Router router_;
    std::unique_ptr<http::Server> server_;
    http::Client client_{http::ClientOptions{}};
};

TEST_F(RangeFilesTest, ServesManifestsAndSplitFiles) {
    const auto second = write_tiny_split();
    ASSERT_TRUE(add(second));
    serve();
    EXPECT_EQ(get("/healthz").answer.status, 200U);
    EXPECT_EQ(nlohmann::json::parse(get("/v1/models").body).at("models").size(), 1U);
    const Got manifest = get(model_path() + "/manifest");
    EXPECT_EQ(parse_manifest(manifest.body)->model_id(), catalogue_.models()[0].id);
    const std::string tag(manifest.answer.find("ETag").value());
    EXPECT_EQ(get(model_path() + "/manifest", {{"If-None-Match", tag}}).answer.status, 304U);
    const ByteVector bytes = read_bytes(second);
    const std::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const Got part = get(model_path() + "/files/1", {{"Range", "bytes=10-19"}});
    EXPECT_EQ(part.answer.status, 206U);
    EXPECT_EQ(part.body, whole.substr(10, 10));
    EXPECT_EQ(get(model_path() + "/files/1").body, whole);
}

TEST_F(RangeFilesTest, WhatIsNotThereIsA404) {
    ASSERT_TRUE(add(write_tiny("tiny.gguf")));
    serve();
    for (const std::string& target :
         {std::string("/v1/models/abc/manifest"), "/v1/models/" + std::string(64, '0') + "/manifest",
          model_path() + "/files/1", model_path() + "/files/-1", model_path() + "/files/0x0",
          model_path() + "/files/99999999999999999999", model_path() + "/files/..%2F..%2Fetc%2Fpasswd"}) {
        EXPECT_EQ(get(target).answer.status, 404U) << target;
    }
}

TEST_F(RangeFilesTest, AModelThatChangesIsNotServedUnderItsOldId) {
    const auto model = write_tiny("tiny.gguf");
    ASSERT_TRUE(add(model));
    serve();
    EXPECT_EQ(get(model_path() + "/files/0", {{"Range", "bytes=0-0"}}).answer.status, 206U);
    const timespec times[2] = {{1, 0}, {1, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, model.c_str(), times, 0), 0);
    EXPECT_EQ(get(model_path() + "/files/0", {{"Range", "bytes=0-0"}}).answer.status, 503U);
}

TEST_F(RangeFilesTest, AHubWithoutFilesSaysWhereTheyAre) {
    const auto model = write_tiny("tiny.gguf");
    ASSERT_TRUE(Catalogue().add(model, {}));
    ASSERT_TRUE(add(manifest_path(model), {{"http://mirror/"}, {}, nullptr}));
    serve();
    const Got refused = get(model_path() + "/files/0");
    EXPECT_EQ(refused.answer.status, 404U);
    EXPECT_THAT(refused.body, HasSubstr("mirrors"));
}

}  // namespace
}  // namespace kvasir::hub
