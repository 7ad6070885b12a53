#include "fetch/download.h"

#include <random>
#include <thread>

#include "fetch/fetch_fixture.h"
#include "fetch/part_file.h"
#include "http/range.h"
#include "net/raw_socket.h"

namespace kvasir::fetch::test {
namespace {

using ::testing::HasSubstr;

class DownloadTest : public FetchTest {};

TEST_F(DownloadTest, MakesWhatSliceMakesFromRandomPieces) {
    small_model();
    const Mirror mirror(models());
    std::mt19937 random(11);
    for (int round = 0; round < 20; ++round) {
        std::vector<Piece> pieces;
        std::uint64_t bytes = 0;
        for (unsigned n = 1 + random() % 5; n > 0; --n) {
            const unsigned first = random() % 8U;
            pieces.push_back({static_cast<std::uint32_t>(random() % 3), first,
                              static_cast<std::uint32_t>(1 + random() % (8 - first))});
        }
        for (const Piece& piece : normalized(pieces))
            bytes += piece.count * model_->map.find(piece.layer)->expert_bytes();
        std::filesystem::remove(out());
        const std::uint64_t before = mirror.stats().body_bytes;
        const Result<FetchReport> report = fetch(pieces, {mirror.source()});
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_TRUE(read_bytes(out()) == expected(pieces));
        EXPECT_EQ(report->moved_bytes, bytes);
        EXPECT_EQ(mirror.stats().body_bytes - before, bytes);
        EXPECT_FALSE(anything_left());
    }
}

TEST_F(DownloadTest, TakesASplitModelFromItsFiles) {
    use(write_tiny_split());
    const Mirror mirror(path(""));
    const std::vector<Piece> pieces = {{0, 1, 2}, {1, 0, 4}};
    const Result<FetchReport> report = fetch(pieces, {mirror.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(read_bytes(out()) == expected(pieces));
}

TEST_F(DownloadTest, ASecondRunMovesNothing) {
    small_model();
    const Mirror mirror(models());
    ASSERT_TRUE(fetch(everything(), {mirror.source()}));
    const std::uint64_t requests = mirror.stats().requests;
    const Result<FetchReport> report = fetch(everything(), {mirror.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->moved_bytes, 0U);
    EXPECT_EQ(report->resumed_bytes, report->slab_bytes);
    EXPECT_EQ(mirror.stats().requests, requests);
    // Not even a source is needed.
    EXPECT_TRUE(fetch(everything(), {}));
}

TEST_F(DownloadTest, OfADamagedSliceOnlyTheDamageIsMoved) {
    small_model();
    const Mirror mirror(models());
    ASSERT_TRUE(fetch(everything(), {mirror.source()}));
    const ByteVector good = read_bytes(out());
    kvasir::testing::flip_bit(out(), good.size() / 2);
    const Result<FetchReport> report = fetch(everything(), {mirror.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->requests, 1U);
    EXPECT_EQ(report->moved_bytes, model_->map.layers[0].tensors[0].slab_bytes);
    EXPECT_TRUE(read_bytes(out()) == good);
}

TEST_F(DownloadTest, AdjacentSlabsAreOneRequest) {
    small_model();
    const Mirror mirror(models());
    options_.connections = 1;
    const Result<FetchReport> report = fetch(everything(), {mirror.source()});
    ASSERT_TRUE(report) << report.error().message;
    // All of the experts' tensors lie behind each other: 72 slabs, one stretch.
    EXPECT_EQ(report->requests, 1U);
    EXPECT_EQ(mirror.stats().requests, 1U);
}

TEST_F(DownloadTest, PiecesThatAreNotThereAreNamed) {
    small_model();
    for (const Piece& piece : {Piece{3, 0, 1}, Piece{0, 7, 2}, Piece{0, 4294967295U, 2}}) {
        const Result<FetchReport> report = fetch({piece}, {});
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().kind, ErrorKind::usage);
        EXPECT_THAT(report.error().message, HasSubstr(fmt::format("layer {}", piece.layer)));
    }
    EXPECT_FALSE(fetch({}, {}));
    EXPECT_EQ(fetch({{0, 0, 1}}, {}).error().kind, ErrorKind::usage);
    EXPECT_FALSE(anything_left());
}

struct Lie {
    const char* name;
    Mirror::Mischief mischief;
    const char* said;  // in the report
    bool dropped = true;
};

void change_field(http::Response& response, std::string_view name, const std::string& value) {
    for (http::Field& field : response.fields) {
        if (field.name == name) field.value = value;
    }
}

class Liars : public FetchTest, public ::testing::WithParamInterface<Lie> {};

TEST_P(Liars, AreNamedAndSkipped) {
    small_model();
    const Mirror liar(models(), GetParam().mischief);
    const Mirror honest(models());
    const Result<FetchReport> report = fetch(everything(), {liar.source(), honest.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(read_bytes(out()) == expected(everything()));
    ASSERT_EQ(report->sources.size(), 2U);
    EXPECT_THAT(report->sources[0].trouble, HasSubstr(GetParam().said));
    EXPECT_THAT(report->sources[0].trouble, HasSubstr(liar.url()));
    EXPECT_EQ(report->sources[0].dropped, GetParam().dropped);
    EXPECT_EQ(report->sources[1].trouble, "");
    EXPECT_GT(report->sources[1].bytes, 0U);
}

TEST_P(Liars, AloneAreAnErrorThatNamesThem) {
    small_model();
    const Mirror liar(models(), GetParam().mischief);
    const Result<FetchReport> report = fetch(everything(), {liar.source()});
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message, HasSubstr(GetParam().said));
    EXPECT_THAT(report.error().message, HasSubstr(liar.url()));
    EXPECT_EQ(report.error().kind, GetParam().dropped ? ErrorKind::invalid : ErrorKind::unavailable);
    EXPECT_FALSE(std::filesystem::exists(out()));
}

INSTANTIATE_TEST_SUITE_P(
    Fetch, Liars,
    ::testing::Values(
        Lie{"WrongBytes",
            [](const http::Request&, http::Response& response) {
                std::string body = body_of(response);
                body[body.size() / 2] ^= 1;
                response.body = body;
            },
            "sent wrong bytes for blk."},
        Lie{"ErrorPageInPlaceOfBytes",
            [](const http::Request&, http::Response& response) {
                response.body = std::string(body_of(response).size(), '<');
            },
            "sent wrong bytes for blk."},
        Lie{"ErrorPage",
            [](const http::Request&, http::Response& response) {
                response = {200, {{"Content-Type", "text/html"}}, std::string("<html>Sorry</html>")};
            },
            "ignores byte ranges"},
        Lie{"WholeFile", [](const http::Request&, http::Response& response) { response.status = 200; },
            "ignores byte ranges"},
        Lie{"Missing", [](const http::Request&, http::Response& response) { response = http::error_response(404, ""); },
            "404 Not Found"},
        Lie{"Forbidden",
            [](const http::Request&, http::Response& response) { response = http::error_response(403, ""); },
            "403 Forbidden"},
        Lie{"ShorterFile",
            [](const http::Request&, http::Response& response) { response = http::error_response(416, ""); }, "416"},
        Lie{"OtherRange",
            [](const http::Request&, http::Response& response) {
                change_field(response, "Content-Range", "bytes 0-9/1000000");
            },
            "were asked for"},
        Lie{"OtherFile",
            [](const http::Request&, http::Response& response) {
                const std::string range = response.fields.back().value;
                change_field(response, "Content-Range", range.substr(0, range.find('/')) + "/99999999999");
            },
            "of 99999999999 bytes instead of"},
        Lie{"NoRangeNamed",
            [](const http::Request&, http::Response& response) { change_field(response, "Content-Range", "x"); },
            "Content-Range is 'x'"},
        Lie{"TooShort",
            [](const http::Request&, http::Response& response) { response.body = body_of(response).substr(1); },
            "where "},
        Lie{"TooLong", [](const http::Request&, http::Response& response) { response.body = body_of(response) + "x"; },
            "where "},
        Lie{"Encoded",
            [](const http::Request&, http::Response& response) {
                response.fields.push_back({"Content-Encoding", "gzip"});
            },
            "encoded bytes (gzip)"},
        Lie{"RedirectLoop",
            [](const http::Request& request,
               http::Response& response) { response = {302, {{"Location", request.path}}, std::string()}; },
            "redirected more than 5 times"},
        Lie{"Busy", [](const http::Request&, http::Response& response) { response = http::error_response(503, ""); },
            "503 Service Unavailable", false}),
    [](const auto& lie) { return lie.param.name; });

TEST_F(DownloadTest, ASourceThatFollowsAHonestRedirectIsFine) {
    small_model();
    const Mirror target(models());
    const Mirror sender(models(), [&](const http::Request& request, http::Response& response) {
        response = {307, {{"Location", target.url() + request.path.substr(1)}}, std::string()};
    });
    const Result<FetchReport> report = fetch(everything(), {sender.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(read_bytes(out()) == expected(everything()));
    EXPECT_EQ(target.stats().body_bytes, report->slab_bytes);
}

TEST_F(DownloadTest, ABusySourceIsAskedAgain) {
    small_model();
    std::atomic<int> asked = 0;
    const Mirror busy(models(), [&](const http::Request&, http::Response& response) {
        if (++asked <= 2) response = http::error_response(503, "");
    });
    options_.connections = 1;
    options_.patience = std::chrono::seconds(60);
    const Result<FetchReport> report = fetch(everything(), {busy.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->requests, 3U);
    EXPECT_FALSE(report->sources[0].dropped);
}

// Sends half of every range, then nothing any more.
class HalfMirror {
  public:
    explicit HalfMirror(const std::filesystem::path& file)
        : bytes_(read_bytes(file)), listener_(kvasir::test::RawSocket::silent_listener()), thread_([this] { run(); }) {}
    ~HalfMirror() {
        ::shutdown(listener_.descriptor(), SHUT_RDWR);
        thread_.join();
        for (const int peer : peers_)
            ::close(peer);
    }
    Source source() const { return {http::Url{false, {"127.0.0.1", listener_.port()}, "/"}, std::nullopt, {}}; }

  private:
    void run() {
        for (int peer = accept(); peer >= 0; peer = accept()) {
            peers_.push_back(peer);
            std::array<char, 4096> buffer{};
            const ssize_t count = ::recv(peer, buffer.data(), buffer.size(), 0);
            const std::string request(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
            const std::size_t field = request.find("bytes=");
            if (field == std::string::npos) continue;
            const auto range =
                http::parse_range(request.substr(field, request.find('\r', field) - field), bytes_.size()).part;
            const std::string head =
                fmt::format("HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: {}\r\n\r\n",
                            range.length, http::content_range_field(range, bytes_.size()));
            static_cast<void>(::send(peer, head.data(), head.size(), MSG_NOSIGNAL));
            static_cast<void>(::send(peer, bytes_.data() + range.first, range.length / 2, MSG_NOSIGNAL));
        }
    }
    int accept() const { return ::accept(listener_.descriptor(), nullptr, nullptr); }

    const ByteVector bytes_;
    kvasir::test::RawSocket listener_;
    std::vector<int> peers_;
    std::thread thread_;
};

TEST_F(DownloadTest, WhatAStallingSourceHasSentIsNotAskedForAgain) {
    small_model();
    const HalfMirror half(models() / "tiny.gguf");
    const Mirror whole(models());
    const Result<FetchReport> report = fetch(everything(), {half.source(), whole.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(read_bytes(out()) == expected(everything()));
    EXPECT_THAT(report->sources[0].trouble, HasSubstr("no answer in time"));
    EXPECT_FALSE(report->sources[0].dropped);
    EXPECT_GT(report->sources[0].bytes, 0U);
    EXPECT_EQ(report->moved_bytes, report->slab_bytes);
}

TEST_F(DownloadTest, NobodyAtAllIsUnavailable) {
    small_model();
    Source nobody{http::parse_url("http://127.0.0.1:1/").value(), std::nullopt, {}};
    const Result<FetchReport> report = fetch(everything(), {nobody});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(report.error().message, HasSubstr("http://127.0.0.1:1/"));
    EXPECT_FALSE(anything_left());
}

// Again and again a download is interrupted, each time a request later.
TEST_F(DownloadTest, AnInterruptedRunIsGoneOnWithByteByByte) {
    use(kvasir::testing::real_model());
    std::filesystem::create_symlink(kvasir::testing::real_model(), models() / manifest_.files[0].name);
    const std::vector<Piece> pieces = {{0, 0, 32}, {3, 5, 20}};
    Result<FetchReport> report = fail(ErrorKind::internal, "not tried yet");
    std::uint64_t limit = 0;
    while (!report && limit < 100) {
        std::atomic<bool> cancel = false;
        std::atomic<std::uint64_t> served = 0;
        ++limit;
        const Mirror tiring(models(), [&](const http::Request&, http::Response&) {
            if (++served == limit) cancel = true;
        });
        options_.cancel = &cancel;
        report = fetch(pieces, {tiring.source()});
        if (!report) {
            EXPECT_THAT(report.error().message, HasSubstr("interrupted"));
        }
    }
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(limit, 1U);
    // No byte was asked for that had come before.
    EXPECT_EQ(report->resumed_bytes + report->moved_bytes, report->slab_bytes);
    EXPECT_TRUE(read_bytes(out()) == expected(pieces));
}

TEST_F(DownloadTest, WhateverACrashLeavesTheResultIsTheSame) {
    small_model();
    const Mirror mirror(models());
    const ByteVector good = expected(everything());
    const FetchPlan plan = make_plan(manifest_, everything()).value();
    std::mt19937_64 random(17);
    for (int round = 0; round < 60; ++round) {
        std::filesystem::remove(out());
        {
            // Some slabs whole, some in part, some claimed but wrong, in any order; as an interrupted run leaves them.
            PartFile part = PartFile::open(out(), plan, false).value();
            for (int n = 0; n < 40; ++n) {
                const WantedSlab& slab = plan.slabs[random() % plan.slabs.size()];
                const std::uint64_t bytes = random() % 3 == 0 ? slab.bytes : random() % (slab.bytes + 100);
                ByteVector content(good.begin() + static_cast<std::ptrdiff_t>(slab.target),
                                   good.begin() + static_cast<std::ptrdiff_t>(slab.target + slab.bytes));
                if (random() % 8 == 0) content[random() % content.size()] ^= std::byte{1};
                ASSERT_TRUE(part.write(slab.target, content));
                ASSERT_TRUE(part.note(slab.target, bytes));
            }
            ASSERT_TRUE(part.note(random(), random()));
        }
        // Then the disk has its say.
        for (const auto& file : {part_path(out()), journal_path(out())}) {
            const std::uint64_t size = std::filesystem::file_size(file);
            const auto act = random() % 6;
            if (act == 0) kvasir::testing::flip_bit(file, random() % size);
            if (act == 1) std::filesystem::resize_file(file, random() % size);
            if (act == 2) std::filesystem::resize_file(file, size + random() % 1000);
            if (act == 3 && random() % 4 == 0) std::filesystem::remove(file);
        }
        const Result<FetchReport> report = fetch(everything(), {mirror.source()});
        ASSERT_TRUE(report) << report.error().message;
        ASSERT_TRUE(read_bytes(out()) == good) << round;
        // An honest source is not blamed for what a disk did.
        EXPECT_FALSE(report->sources[0].dropped) << report->sources[0].trouble;
        EXPECT_FALSE(anything_left());
    }
}

TEST_F(DownloadTest, TwoAtOnceAreRefused) {
    small_model();
    const Mirror mirror(models());
    const FetchPlan plan = make_plan(manifest_, everything()).value();
    {
        const PartFile other = PartFile::open(out(), plan, false).value();
        const Result<FetchReport> report = fetch(everything(), {mirror.source()});
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().kind, ErrorKind::unavailable);
        EXPECT_THAT(report.error().message, HasSubstr("another process"));
    }
    EXPECT_TRUE(fetch(everything(), {mirror.source()}));
}

TEST_F(DownloadTest, ThePartOfAnotherSliceIsNotMistakenForThisOnes) {
    small_model();
    const Mirror mirror(models());
    {
        const FetchPlan other = make_plan(manifest_, {{1, 2, 5}}).value();
        PartFile part = PartFile::open(out(), other, false).value();
        for (const WantedSlab& slab : other.slabs)
            ASSERT_TRUE(part.note(slab.target, slab.bytes));
    }
    const Result<FetchReport> report = fetch({{0, 0, 8}}, {mirror.source()});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->resumed_bytes, 0U);
    EXPECT_TRUE(read_bytes(out()) == expected({{0, 0, 8}}));
}

TEST_F(DownloadTest, WhatCannotBeWrittenIsSaid) {
    small_model();
    const Mirror mirror(models());
    std::filesystem::create_directory(out());
    EXPECT_EQ(fetch(everything(), {mirror.source()}).error().kind, ErrorKind::usage);
    const Result<FetchReport> nowhere =
        fetch_slice(manifest_, everything(), {mirror.source()}, path("no/such/out.gguf"), options_);
    EXPECT_EQ(nowhere.error().kind, ErrorKind::usage);
    EXPECT_EQ(mirror.stats().requests, 0U);
}

TEST_F(DownloadTest, AManifestThatContradictsItselfMovesNothing) {
    small_model();
    const Mirror mirror(models());
    manifest_.layers[1].tensors[0].slab_bytes -= 34;  // no longer what its type and shape make
    const Result<FetchReport> report = fetch(everything(), {mirror.source()});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::invalid);
    EXPECT_EQ(mirror.stats().requests, 0U);
    manifest_.layers[1].tensors[0].slab_bytes = UINT64_MAX / 2;
    EXPECT_EQ(fetch(everything(), {mirror.source()}).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace kvasir::fetch::test
