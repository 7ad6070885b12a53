// `kvasir serve` is llama-server with the swarm behind it: the same text with workers as without, in ggml-cpu stock
// llama-server's, whatever happens.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <nlohmann/json.hpp>

#include "e2e/cluster.h"
#include "e2e/http.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;

struct Server {
    std::unique_ptr<ChildProcess> process;
    std::uint16_t port = 0;
};

class ServeTest : public testing::Test {
  protected:
    Server start(std::vector<std::string> arguments) {
        Server server;
        server.port = free_port();
        arguments.insert(arguments.end(), {"--host", "127.0.0.1", "--port", std::to_string(server.port), "-c", "512",
                                           "-t", "1", "--no-repack", "-np", "1"});
        server.process = ChildProcess::start({.arguments = arguments, .environment = {}}).value();
        EXPECT_TRUE(wait_until_healthy(server.port)) << server.process->stderr_text();
        return server;
    }
    Server start_stock() {
        return start({std::string(KVASIR_LLAMA_BIN) + "/llama-server", "-m", cluster_.model().string()});
    }
    Server start_kvasir(const std::vector<std::string>& endpoints, std::vector<std::string> more = {}) {
        std::vector<std::string> arguments = {KVASIR_PROGRAM, "serve", cluster_.model().string()};
        if (!endpoints.empty()) {
            std::vector<std::string> swarm = cluster_.backbone_arguments(endpoints);
            arguments.insert(arguments.end(), swarm.begin(), swarm.end());
        }
        arguments.insert(arguments.end(), more.begin(), more.end());
        return start(arguments);
    }
    static std::string complete(const Server& server, int tokens = 60) {
        nlohmann::json request = {{"prompt", "Once upon a time there was a king who"},
                                  {"n_predict", tokens},
                                  {"seed", 1},
                                  {"temperature", 0.7},
                                  {"cache_prompt", false},
                                  {"ignore_eos", true}};
        HttpAnswer answer = http_post(server.port, "/completion", request.dump());
        EXPECT_EQ(answer.status, 200) << answer.body << server.process->stderr_text();
        if (answer.status != 200) return "";
        return nlohmann::json::parse(answer.body).at("content").get<std::string>();
    }

    Cluster cluster_;
};

class ServeArithmetics : public ServeTest, public testing::WithParamInterface<const char*> {};

TEST_P(ServeArithmetics, TheSameTextWithAndWithoutWorkers) {
    const std::vector<std::string> arithmetic = {"--arithmetic", GetParam()};
    const std::string expected = complete(start_kvasir({}, arithmetic));
    EXPECT_GT(expected.size(), 100U);
    if (std::string_view(GetParam()) == "ggml-cpu") {
        EXPECT_EQ(complete(start_stock()), expected);
    }
    Worker worker = cluster_.start_worker("worker", {cluster_.slice("part", "0-5", "0-23")});
    EXPECT_EQ(complete(start_kvasir({worker.endpoint()}, {"--prefer-workers", "--arithmetic", GetParam()})), expected);
    // Where the cost model has its way, too.
    EXPECT_EQ(complete(start_kvasir({worker.endpoint()}, arithmetic)), expected);
}

INSTANTIATE_TEST_SUITE_P(Serve, ServeArithmetics, testing::Values("portable", "ggml-cpu"));

TEST_F(ServeTest, AWorkerKilledWhileTextIsWrittenChangesNoLetter) {
    Worker worker = cluster_.start_worker("worker", {cluster_.slice("whole", "0-5", "0-31")});
    std::string expected = complete(start_kvasir({}), 300);
    Server server = start_kvasir({worker.endpoint()}, {"--prefer-workers"});
    auto text = std::async(std::launch::async, [&] { return complete(server, 300); });
    ASSERT_TRUE(worker.process->wait_for_line("backbone", kPatience));
    worker.process->signal(SIGKILL);
    EXPECT_EQ(text.get(), expected);
    EXPECT_TRUE(server.process->running());
}

TEST_F(ServeTest, SpeaksTheOpenAiProtocolAndAsksForTheKey) {
    Server server = start_kvasir({}, {"--api-key", "secret"});
    nlohmann::json request = {{"prompt", "Once"}, {"max_tokens", 4}};
    EXPECT_EQ(http_post(server.port, "/v1/completions", request.dump()).status, 401);
}

TEST_F(ServeTest, ATakenPortIsSaidBeforeAnythingIsLoaded) {
    Server first = start_kvasir({});
    Outcome outcome = kvasir({"serve", cluster_.model().string(), "--port", std::to_string(first.port)});
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("kvasir: error:"));
    EXPECT_THAT(outcome.err, HasSubstr(std::to_string(first.port)));
}

TEST_F(ServeTest, WorkersWithoutAManifestAreRefusedWithAdvice) {
    std::filesystem::remove(cluster_.model().string() + ".kvasir.json");
    Outcome outcome = kvasir({"serve", cluster_.model().string(), "--identity", cluster_.backbone_identity().string(),
                              "--worker", "127.0.0.1:1#" + cluster_.backbone_id()});
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("kvasir publish"));
}

TEST_F(ServeTest, ADenseModelIsServedAsItIs) {
    const std::string dense = cluster_.path("dense.gguf").string();
    ASSERT_EQ(kvasir({"synth", "--preset", "tiny-dense", "-o", dense}).exit_code, 0);
    Server server = start({KVASIR_PROGRAM, "serve", dense});
    EXPECT_THAT(server.process->stderr_text(), HasSubstr("no experts to share"));
}

TEST_F(ServeTest, EndsInGoodOrderWhenItsTerminalGoes) {
    Server server = start_kvasir({});
    server.process->signal(SIGHUP);
    EXPECT_EQ(server.process->wait(kPatience).value(), 0) << server.process->stderr_text();
}

TEST_F(ServeTest, InterruptedWhileItWaitsForWorkersItSaysSo) {
    auto process = ChildProcess::start({.arguments = {KVASIR_PROGRAM, "serve", cluster_.model().string(), "--identity",
                                                      cluster_.backbone_identity().string(), "--worker",
                                                      "127.0.0.1:1#" + cluster_.backbone_id(), "--wait", "600",
                                                      "--port", std::to_string(free_port())},
                                        .environment = {}})
                       .value();
    ASSERT_TRUE(process->wait_for_line("node id", kPatience)) << process->stderr_text();
    process->signal(SIGINT);
    EXPECT_EQ(process->wait(kPatience).value(), 130);
    EXPECT_THAT(process->stderr_text(), HasSubstr("kvasir: interrupted"));
}

}  // namespace
}  // namespace kvasir::e2e
