// Publishing and downloading with real processes: a hub, nginx, and downloads that are killed, starved and raced.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/files.h"
#include "e2e/cluster.h"
#include "e2e/http.h"
#include "e2e/nginx.h"
#include "http/file_response.h"
#include "http/server.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;

// A web server in this process that can be asked to keep its clients waiting.
class SlowMirror {
  public:
    explicit SlowMirror(std::filesystem::path directory) : directory_(std::move(directory)) {
        http::ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        options.threads = 8;
        server_ =
            http::Server::start(options, [this](const http::Request& request) { return answer(request); }).value();
    }
    ~SlowMirror() { release(); }

    std::string url() const { return "http://" + server_->local_address().text() + "/"; }
    std::uint64_t body_bytes() const { return server_->stats().body_bytes; }
    // From its n-th answer on (1: the next) it gives none until release().
    void hold_from(int n) {
        std::lock_guard lock(mutex_);
        passing_ = n - 1;
    }
    void release() {
        std::lock_guard lock(mutex_);
        passing_ = INT_MAX;
        changed_.notify_all();
    }
    void wait_until_held() {
        std::unique_lock lock(mutex_);
        ASSERT_TRUE(changed_.wait_for(lock, kPatience, [this] { return held_ > 0; }));
    }

  private:
    http::Response answer(const http::Request& request) {
        std::unique_lock lock(mutex_);
        if (passing_ == 0) {
            ++held_;
            changed_.notify_all();
            changed_.wait(lock, [this] { return passing_ > 0; });
            --held_;
        }
        if (passing_ != INT_MAX) --passing_;
        lock.unlock();
        http::FileContent content;
        content.file = std::make_shared<const File>(File::open(directory_ / request.path.substr(1)).value());
        content.size = content.file->size().value();
        content.etag = "\"x\"";
        return http::file_response(request, content);
    }

    std::filesystem::path directory_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int passing_ = INT_MAX;
    int held_ = 0;
    std::unique_ptr<http::Server> server_;
};

class FetchTest : public testing::Test {
  protected:
    struct Hub {
        std::unique_ptr<ChildProcess> process;
        std::string url;

        // The exit code, after a polite signal.
        int stop() const {
            process->signal(SIGTERM);
            return process->wait(kPatience).value_or(-1);
        }
    };
    Hub start_hub(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), {KVASIR_PROGRAM, "hub", "--port", "0", "--json"});
        Hub hub;
        hub.process = ChildProcess::start({.arguments = arguments, .environment = {}}).value();
        const Result<std::string> line = hub.process->wait_for_line("\"ready\"", kPatience);
        EXPECT_TRUE(line) << hub.process->stderr_text();
        if (line) hub.url = nlohmann::json::parse(*line).at("hub");
        return hub;
    }
    std::string manifest() const { return cluster_.path("model.gguf.kvasir.json").string(); }
    std::string out() const { return cluster_.path("out.gguf").string(); }
    // What a fetch from web servers alone is told.
    std::vector<std::string> arguments(const std::string& from) const {
        return {"fetch",    "--manifest", manifest(), "--from", from,  "--piece",
                "0-3:2-29", "--piece",    "5:7",      "-o",     out(), "--json"};
    }
    void expect_what_slice_cuts() const {
        const std::string reference = cluster_.path("reference.gguf").string();
        ASSERT_EQ(kvasir({"slice", cluster_.model().string(), "--piece", "0-3:2-29", "--piece", "5:7", "-o", reference})
                      .exit_code,
                  0);
        EXPECT_TRUE(read_text_file(out(), 1 << 28).value() == read_text_file(reference, 1 << 28).value());
        EXPECT_EQ(kvasir({"slice", "--check", out(), "--manifest", manifest()}).exit_code, 0);
    }
    static std::uint64_t number(const Outcome& outcome, const char* key) {
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        return outcome.exit_code == 0 ? nlohmann::json::parse(outcome.out).at(key).get<std::uint64_t>() : 0;
    }

    Cluster cluster_;
};

TEST_F(FetchTest, AWorkerServesWhatItFetchedFromAHub) {
    const Hub hub = start_hub({"--publish", cluster_.model().string()});
    const std::vector<std::string> fetch = {"fetch",   "--hub", hub.url, "model.gguf", "--piece", "0-3:2-29",
                                            "--piece", "5:7",   "-o",    out(),        "--json"};
    const Outcome first = kvasir(fetch);
    EXPECT_EQ(number(first, "moved_bytes"), number(first, "slab_bytes"));
    expect_what_slice_cuts();
    const Outcome second = kvasir(fetch);
    EXPECT_EQ(number(second, "moved_bytes"), 0U);
    EXPECT_EQ(number(second, "requests"), 0U);
    const Worker worker = cluster_.start_worker("worker", {out()});
    EXPECT_NE(worker.port, 0);
    EXPECT_EQ(hub.stop(), 0);
    const std::string sent = fmt::format("({} of them straight from files)", number(first, "moved_bytes"));
    EXPECT_THAT(hub.process->stdout_text(), HasSubstr(sent));
}

TEST_F(FetchTest, AHubThatIsNotTheOnePinnedGetsNothing) {
    const std::string data = cluster_.path("hub-data").string();
    const Hub hub = start_hub({"--publish", cluster_.model().string(), "--data", data, "--self-signed"});
    ASSERT_THAT(hub.url, HasSubstr("#"));
    const auto fetch = [&](const std::string& url) {
        return kvasir({"fetch", "--hub", url, "model.gguf", "--piece", "0-3:2-29", "--piece", "5:7", "-o", out()});
    };
    const Outcome unpinned = fetch(hub.url.substr(0, hub.url.find('#')));
    EXPECT_EQ(unpinned.exit_code, 3);
    EXPECT_THAT(unpinned.err, HasSubstr("not trusted"));
    std::string other = hub.url;
    other.back() = other.back() == '0' ? '1' : '0';
    EXPECT_THAT(fetch(other).err, HasSubstr("another server"));
    const Outcome pinned = fetch(hub.url);
    EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
    expect_what_slice_cuts();
    // The same key after a restart.
    EXPECT_EQ(hub.stop(), 0);
    const Hub again = start_hub({"--publish", cluster_.model().string(), "--data", data, "--self-signed"});
    EXPECT_EQ(again.url.substr(again.url.find('#')), hub.url.substr(hub.url.find('#')));
}

TEST_F(FetchTest, NginxIsAMirrorForAHubWithoutFiles) {
    if (!Nginx::available()) GTEST_SKIP() << "no nginx on this machine";
    Nginx nginx(cluster_.path(""));
    const Hub hub = start_hub({"--publish", manifest(), "--mirror", nginx.url()});
    const auto id =
        nlohmann::json::parse(
            http_get(static_cast<std::uint16_t>(std::stoi(hub.url.substr(hub.url.rfind(':') + 1))), "/v1/models").body)
            .at("models")
            .at(0)
            .at("id")
            .get<std::string>();
    const Outcome fetched =
        kvasir({"fetch", "--hub", hub.url, id, "--piece", "0-3:2-29", "--piece", "5:7", "-o", out(), "--json"});
    ASSERT_EQ(fetched.exit_code, 0) << fetched.err;
    expect_what_slice_cuts();
    const Nginx::Served served = nginx.stop_and_count();
    EXPECT_EQ(served.body_bytes, number(fetched, "slab_bytes"));
    EXPECT_GT(served.requests, 0U);
    EXPECT_EQ(nlohmann::json::parse(fetched.out).at("sources").size(), 1U);  // the hub was not asked for bytes
}

TEST_F(FetchTest, KilledAtAnyMomentItGoesOnWhereItWas) {
    std::mt19937 random(23);
    SlowMirror mirror(cluster_.path(""));
    for (int round = 0; round < 8; ++round) {
        mirror.hold_from(2 + static_cast<int>(random() % 6));
        auto fetch = arguments(mirror.url());
        fetch.insert(fetch.begin(), KVASIR_PROGRAM);
        fetch.insert(fetch.end(), {"--connections", "3"});
        const auto process = ChildProcess::start({.arguments = fetch, .environment = {}}).value();
        if (round % 2 == 0) mirror.wait_until_held();
        process->signal(SIGKILL);
        process->wait(kPatience).value();
        mirror.release();
        EXPECT_FALSE(std::filesystem::exists(out()));
    }
    // As far as the last one came, and somebody who asks for nothing but the rest.
    const std::uint64_t before = mirror.body_bytes();
    const Outcome finished = kvasir(arguments(mirror.url()));
    const std::uint64_t moved = number(finished, "moved_bytes");
    EXPECT_EQ(moved + number(finished, "resumed_bytes"), number(finished, "slab_bytes"));
    EXPECT_EQ(mirror.body_bytes() - before, moved);
    EXPECT_GT(number(finished, "resumed_bytes"), 0U);
    expect_what_slice_cuts();
    EXPECT_EQ(number(kvasir(arguments(mirror.url())), "moved_bytes"), 0U);
}

TEST_F(FetchTest, AnInterruptSaysHowToGoOn) {
    SlowMirror mirror(cluster_.path(""));
    mirror.hold_from(2);
    auto fetch = arguments(mirror.url());
    fetch.insert(fetch.begin(), KVASIR_PROGRAM);
    const auto process = ChildProcess::start({.arguments = fetch, .environment = {}}).value();
    mirror.wait_until_held();
    process->signal(SIGINT);
    EXPECT_EQ(process->wait(kPatience).value(), 130);
    EXPECT_THAT(process->stderr_text(), HasSubstr("run the same command again"));
    mirror.release();
}

TEST_F(FetchTest, OfTwoAtOnceOneIsRefused) {
    SlowMirror mirror(cluster_.path(""));
    mirror.hold_from(1);
    std::future<Outcome> first = std::async(std::launch::async, [&] { return kvasir(arguments(mirror.url())); });
    mirror.wait_until_held();
    const Outcome second = kvasir(arguments(mirror.url()));
    EXPECT_EQ(second.exit_code, 4);
    EXPECT_THAT(second.err, HasSubstr("another process is downloading this"));
    mirror.release();
    EXPECT_EQ(first.get().exit_code, 0);
    expect_what_slice_cuts();
}

TEST_F(FetchTest, AFileSizeLimitIsAnErrorThatNamesTheFile) {
    const SlowMirror mirror(cluster_.path(""));
    std::string command = "ulimit -f 1000; exec " KVASIR_PROGRAM;
    for (const std::string& argument : arguments(mirror.url()))
        command += " '" + argument + "'";
    const Outcome limited = run({"/bin/bash", "-c", command});
    EXPECT_EQ(limited.exit_code, 4) << limited.err;
    EXPECT_THAT(limited.err, HasSubstr("out.gguf.part"));
    EXPECT_EQ(number(kvasir(arguments(mirror.url())), "resumed_bytes"), 0U);
    expect_what_slice_cuts();
}

TEST_F(FetchTest, AFullDiskIsSaidBeforeAnythingIsMoved) {
    const std::filesystem::path small = cluster_.path("small");
    std::filesystem::create_directory(small);
    if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=3m") != 0) GTEST_SKIP() << "mounting is not allowed here";
    const SlowMirror mirror(cluster_.path(""));
    std::vector<std::string> fetch = arguments(mirror.url());
    *(std::ranges::find(fetch, out())) = (small / "out.gguf").string();
    const Outcome full = kvasir(fetch);
    EXPECT_EQ(full.exit_code, 4) << full.err;
    EXPECT_THAT(full.err, HasSubstr("are needed"));
    EXPECT_EQ(mirror.body_bytes(), 0U);
    EXPECT_TRUE(std::filesystem::is_empty(small));
    // What fits, fits.
    const Outcome fits = kvasir({"fetch", "--manifest", manifest(), "--from", mirror.url(), "--piece", "0:0-7", "-o",
                                 (small / "out.gguf").string(), "--json"});
    EXPECT_EQ(fits.exit_code, 0) << fits.err;
    ::umount2(small.c_str(), MNT_DETACH);
}

TEST_F(FetchTest, WrongUseIsExplained) {
    const auto says = [](std::vector<std::string> arguments, int code, const char* text) {
        const Outcome outcome = kvasir(std::move(arguments));
        EXPECT_EQ(outcome.exit_code, code) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(text));
    };
    says({"fetch", "--piece", "0:0", "-o", out()}, 2, "--hub URL or --manifest FILE");
    says({"fetch", "--hub", "http://127.0.0.1:1", "--piece", "0:0", "-o", out()}, 2, "name the MODEL");
    says({"fetch", "--hub", "http://127.0.0.1:1", "m", "--piece", "0:0"}, 2, "-o FILE or --dir DIR");
    says({"fetch", "--hub", "http://127.0.0.1:1", "m", "--piece", "0:0", "-o", out()}, 4, "http://127.0.0.1:1/");
    says({"fetch", "--hub", "ftp://x", "m", "--piece", "0:0", "-o", out()}, 2, "--hub");
    says({"fetch", "--manifest", manifest(), "--piece", "0", "-o", out()}, 2, "LAYERS:EXPERTS");
    says({"fetch", "--manifest", manifest(), "--piece", "0:99", "-o", out()}, 2, "experts are 0-31");
    says({"fetch", "--manifest", manifest(), "--piece", "0:0", "-o", out()}, 2, "nowhere to download from");
    says({"hub", "--publish", cluster_.path("none.gguf").string()}, 4, "none.gguf");
    says({"hub", "--publish", manifest()}, 2, "--mirror");
    says({"hub", "--publish", cluster_.model().string(), "--self-signed"}, 2, "--data");
    says({"hub", "--publish", cluster_.model().string(), "--tls-cert", "x"}, 2, "go together");
}

}  // namespace
}  // namespace kvasir::e2e
