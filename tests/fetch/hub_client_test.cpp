// A hub's answers, honest and otherwise.
#include "fetch/hub_client.h"

#include <mutex>

#include "fetch/fetch_fixture.h"

namespace kvasir::fetch::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HubClientTest : public FetchTest {
  protected:
    HubClientTest() { small_model(); }

    // A hub that answers `text` to everything.
    void answer(unsigned status, std::string text, http::Fields fields = {}) {
        http::ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        server_ = http::Server::start(options, [this, status, text, fields](const http::Request& request) {
                      std::lock_guard lock(mutex_);
                      seen_ = request.path;
                      return http::Response{status, fields, text};
                  }).value();
        HubAddress address{{false, server_->local_address(), "/"}, {}};
        hub_.emplace(address, http::ClientOptions{});
    }
    static std::string entry(const std::string& id, const std::string& name) {
        return R"({"id":")" + id + R"(","name":")" + name + R"(","architecture":"a","files":[{"name":")" + name +
               R"(.gguf"}]})";
    }

    std::mutex mutex_;
    std::string seen_;
    std::unique_ptr<http::Server> server_;
    std::optional<HubClient> hub_;
};

TEST_F(HubClientTest, GivesTheManifestThatWasAskedFor) {
    answer(200, to_json(manifest_));
    const Digest id = manifest_.model_id();
    const Result<Manifest> manifest = hub_->manifest(id);
    ASSERT_TRUE(manifest) << manifest.error().message;
    EXPECT_EQ(manifest->model_id(), id);
    std::lock_guard lock(mutex_);
    EXPECT_EQ(seen_, "/v1/models/" + to_hex(id) + "/manifest");
    EXPECT_TRUE(hub_->source(id));
}

TEST_F(HubClientTest, AHubMaySayThatItHasNoFiles) {
    answer(200, to_json(manifest_), {{"Kvasir-Files", "none"}});
    ASSERT_TRUE(hub_->manifest(manifest_.model_id()));
    EXPECT_FALSE(hub_->source(manifest_.model_id()));
}

TEST_F(HubClientTest, AnotherModelsManifestIsRefused) {
    answer(200, to_json(manifest_));
    const Result<Manifest> manifest = hub_->manifest(Digest{});
    ASSERT_FALSE(manifest);
    EXPECT_EQ(manifest.error().kind, ErrorKind::invalid);
    EXPECT_THAT(manifest.error().message, AllOf(HasSubstr(to_hex(Digest{})), HasSubstr("http://127.0.0.1")));
}

TEST_F(HubClientTest, AManifestThatWasTamperedWithIsRefused) {
    std::string json = to_json(manifest_);
    const std::size_t digest = json.find("sha256");
    char& digit = json[json.find('"', digest + 8) + 1];
    digit = digit == '0' ? '1' : '0';
    answer(200, json);
    EXPECT_EQ(hub_->manifest(manifest_.model_id()).error().kind, ErrorKind::invalid);
}

TEST_F(HubClientTest, NonsenseAndTroubleAreTold) {
    answer(200, "<html>Welcome to the hotel's network</html>");
    EXPECT_EQ(hub_->models().error().kind, ErrorKind::invalid);
    EXPECT_EQ(hub_->manifest(Digest{}).error().kind, ErrorKind::invalid);
    answer(404, "{\"error\":\"no\"}");
    EXPECT_THAT(hub_->manifest(Digest{}).error().message, HasSubstr("404 Not Found"));
    answer(503, "");
    EXPECT_EQ(hub_->models().error().kind, ErrorKind::unavailable);
    answer(200, std::string(kMaxCatalogueBytes + 1, ' '));
    EXPECT_THAT(hub_->models().error().message, HasSubstr("at most"));
}

TEST_F(HubClientTest, FindsModelsByWhatPeopleCallThem) {
    const std::string one = "a1" + std::string(62, '0');
    const std::string two = "a1" + std::string(60, '0') + "11";
    answer(200, R"({"models":[)" + entry(one, "first") + "," + entry(two, "second") + "]}");
    EXPECT_EQ(hub_->find("first").value(), digest_from_hex(one).value());
    EXPECT_EQ(hub_->find("second.gguf").value(), digest_from_hex(two).value());
    EXPECT_EQ(hub_->find(two).value(), digest_from_hex(two).value());
    EXPECT_EQ(hub_->find(two.substr(0, 63)).value(), digest_from_hex(two).value());
    const Result<Digest> several = hub_->find("a10000");
    ASSERT_FALSE(several);
    EXPECT_EQ(several.error().kind, ErrorKind::usage);
    EXPECT_THAT(several.error().message, AllOf(HasSubstr("first"), HasSubstr("second")));
    EXPECT_FALSE(hub_->find("a1"));  // too short to mean one
    EXPECT_THAT(hub_->find("third").error().message, HasSubstr("first"));
}

}  // namespace
}  // namespace kvasir::fetch::test
