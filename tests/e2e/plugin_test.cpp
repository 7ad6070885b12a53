// libggml-kvasir.so inside unmodified llama.cpp tools, loaded through GGML_BACKEND_PATH.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "e2e/cluster.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;

// llama.cpp's tools print through a thread that the end of the program does not wait for (common_log_main() says so,
// and upstream's issue 22142), so on a busy machine either text may lack its end.
void expect_same_text(const std::string& text, const std::string& reference) {
    const std::size_t common = std::min(text.size(), reference.size());
    EXPECT_EQ(text.substr(0, common), reference.substr(0, common));
    EXPECT_GE(common, std::max(text.size(), reference.size()) / 2);
}

class PluginTest : public testing::Test {
  protected:
    // What llama-completion writes for a fixed prompt and seed.
    Outcome complete(std::vector<std::string> more, std::vector<std::string> environment) const {
        std::vector<std::string> arguments = {std::string(KVASIR_LLAMA_BIN) + "/llama-completion",
                                              "-m",
                                              cluster_.model().string(),
                                              "-p",
                                              "Once upon a time",
                                              "-n",
                                              "48",
                                              "--seed",
                                              "1",
                                              "--temp",
                                              "0.7",
                                              "-t",
                                              "1",
                                              "--no-repack",
                                              "-no-cnv",
                                              "--no-warmup",
                                              "-c",
                                              "256"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments, std::move(environment));
    }
    std::string plugin() const { return std::string("GGML_BACKEND_PATH=") + KVASIR_PLUGIN; }

    const std::vector<std::string> place_ = {"-ot", "ffn_.*_exps=KVASIR"};
    Cluster cluster_;
};

TEST_F(PluginTest, InGgmlCpuTheTextIsStocks) {
    Outcome stock = complete({}, {});
    ASSERT_EQ(stock.exit_code, 0) << stock.err;
    std::string config = fmt::format(R"({{"model": "{}", "arithmetic": "ggml-cpu"}})", cluster_.model().string());
    ASSERT_TRUE(write_text_file(cluster_.path("config.json"), config));
    Outcome with = complete(place_, {plugin(), "KVASIR_CONFIG=" + cluster_.path("config.json").string()});
    ASSERT_EQ(with.exit_code, 0) << with.err;
    expect_same_text(with.out, stock.out);
    EXPECT_GT(stock.out.size(), 50U) << stock.out;
}

TEST_F(PluginTest, WithAWorkerTheTextIsTheSameAsWithout) {
    Worker worker = cluster_.start_worker("worker", {cluster_.slice("part", "0-5", "4-27")});
    std::string config =
        fmt::format(R"({{"model": "{}", "identity": "{}", "workers": ["{}"], "prefer_workers": true}})",
                    cluster_.model().string(), cluster_.backbone_identity().string(), worker.endpoint());
    ASSERT_TRUE(write_text_file(cluster_.path("config.json"), config));
    Outcome without = complete(place_, {plugin()});
    EXPECT_GT(without.out.size(), 50U) << without.out;
    Outcome with = complete(place_, {plugin(), "KVASIR_CONFIG=" + cluster_.path("config.json").string()});
    ASSERT_EQ(with.exit_code, 0) << with.err;
    expect_same_text(with.out, without.out);
    EXPECT_TRUE(worker.process->wait_for_line("backbone", kPatience));
}

TEST_F(PluginTest, ABadConfigurationIsSaidAndNotHalfUsed) {
    ASSERT_TRUE(write_text_file(cluster_.path("config.json"), R"({"wokers": []})"));
    Outcome with = complete(place_, {plugin(), "KVASIR_CONFIG=" + cluster_.path("config.json").string()});
    EXPECT_THAT(with.err, HasSubstr("wokers"));
}

TEST_F(PluginTest, LlamaBenchRunsOnIt) {
    Outcome bench = run({std::string(KVASIR_LLAMA_BIN) + "/llama-bench", "-m", cluster_.model().string(), "-p", "16",
                         "-n", "4", "-r", "1", "-t", "1"},
                        {plugin()});
    EXPECT_EQ(bench.exit_code, 0) << bench.err;
    EXPECT_THAT(bench.out, HasSubstr("KVASIR"));
}

}  // namespace
}  // namespace kvasir::e2e
