// A published model in a directory, web servers that have its files, and mischief for them to do.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "fetch/download.h"
#include "gguf/model_fixture.h"
#include "gguf/slice.h"
#include "http/file_response.h"
#include "http/server.h"

namespace kvasir::fetch::test {

using kvasir::testing::OpenModel;
using kvasir::testing::read_bytes;

// A web server with the files of a directory, as a mirror has them.
class Mirror {
  public:
    // Changes an answer, or makes another.
    using Mischief = std::function<void(const http::Request&, http::Response&)>;

    explicit Mirror(std::filesystem::path directory, Mischief mischief = {})
        : directory_(std::move(directory)), mischief_(std::move(mischief)) {
        http::ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        server_ =
            http::Server::start(options, [this](const http::Request& request) { return answer(request); }).value();
    }

    Source source() const { return {http::Url{false, server_->local_address(), "/"}, std::nullopt, {}}; }
    std::string url() const { return source().base.text(); }
    http::ServerStats stats() const { return server_->stats(); }

  private:
    http::Response answer(const http::Request& request) const {
        http::FileContent content;
        Result<File> file = File::open(directory_ / request.path.substr(1));
        if (!file) return http::error_response(404, "no such file");
        content.size = file->size().value();
        content.file = std::make_shared<const File>(std::move(*file));
        content.etag = "\"x\"";
        http::Response response = http::file_response(request, content);
        if (mischief_) mischief_(request, response);
        return response;
    }

    std::filesystem::path directory_;
    Mischief mischief_;
    std::unique_ptr<http::Server> server_;
};

// The bytes of a file answer, to be changed.
inline std::string body_of(const http::Response& response) {
    const auto& part = std::get<http::FilePart>(response.body);
    std::string text(part.length, '\0');
    EXPECT_TRUE(part.file->read_at(part.offset, std::as_writable_bytes(std::span(text))));
    return text;
}

class FetchTest : public kvasir::testing::DirectoryTest {
  protected:
    FetchTest() { std::filesystem::create_directories(path("model")); }

    // A small model under model/, opened and published.
    OpenModel& small_model() {
        kvasir::testing::TinyMoe sizes;
        sizes.layers = 3;
        sizes.hidden = 256;
        sizes.ff = 128;
        sizes.experts = 8;
        return use(write_tiny("model/tiny.gguf", sizes));
    }
    OpenModel& use(const std::filesystem::path& file) {
        model_.emplace(file);
        manifest_ = model_->publish();
        return *model_;
    }
    // What `kvasir slice` cuts.
    ByteVector expected(const std::vector<Piece>& pieces) const {
        const auto out = path("expected.gguf");
        const auto report = write_slice(model_->model, model_->map, &manifest_, pieces, out, true);
        EXPECT_TRUE(report) << report.error().message;
        return read_bytes(out);
    }
    Result<FetchReport> fetch(const std::vector<Piece>& pieces, const std::vector<Source>& sources) const {
        return fetch_slice(manifest_, pieces, sources, path("out.gguf"), options_);
    }
    // Everything, as one slice.
    std::vector<Piece> everything() const {
        std::vector<Piece> pieces;
        for (const ManifestLayer& layer : manifest_.layers)
            pieces.push_back({layer.layer, 0, layer.experts});
        return pieces;
    }
    std::filesystem::path models() const { return path("model"); }
    std::filesystem::path out() const { return path("out.gguf"); }
    bool anything_left() const {
        return std::filesystem::exists(path("out.gguf.part")) || std::filesystem::exists(path("out.gguf.part.journal"));
    }

    std::optional<OpenModel> model_;
    Manifest manifest_;
    FetchOptions options_ = quiet();

  private:
    static FetchOptions quiet() {
        FetchOptions options;
        options.quiet = true;
        options.patience = std::chrono::seconds(1);
        options.client.answer_time = std::chrono::milliseconds(2000);
        options.client.stall_time = std::chrono::milliseconds(300);
        return options;
    }
};

}  // namespace kvasir::fetch::test
