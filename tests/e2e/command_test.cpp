// The commands as people meet them: what they print, refuse and leave behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "e2e/cluster.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

class CommandTest : public testing::Test {
  protected:
    std::string file(const std::string& name) const { return cluster_.path(name).string(); }
    std::string model() const { return cluster_.model().string(); }
    std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(cluster_.path("")), {}));
    }
    void flip_a_bit(const std::string& name, std::uint64_t offset) const {
        std::fstream stream(file(name), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(offset));
        char byte = static_cast<char>(stream.get() ^ 1);
        stream.seekp(static_cast<std::streamoff>(offset));
        stream.put(byte);
    }

    // A model of 78 GB in no space: all of its weights are a hole. Nothing gets through it in an instant.
    std::string endless_model() const {
        Outcome made = kvasir({"synth", "--preset", "qwen3.5-122b", "--header-only", "-o", file("endless.gguf")});
        EXPECT_EQ(made.exit_code, 0) << made.err;
        std::filesystem::resize_file(file("endless.gguf"), 78'000'000'000);
        return file("endless.gguf");
    }
    std::unique_ptr<ChildProcess> start(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), KVASIR_PROGRAM);
        return ChildProcess::start({.arguments = arguments, .environment = {}}).value();
    }

    Cluster cluster_;
};

// Waits until the process has a file open whose path begins with one of `prefixes`.
bool wait_for_open_file(ChildProcess& process, const std::vector<std::string>& prefixes) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (process.running() && std::chrono::steady_clock::now() < end) {
        std::error_code gone;
        for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process.pid()), gone)) {
            const std::string path = std::filesystem::read_symlink(entry, gone).string();
            auto begins = [&path](const std::string& prefix) { return path.starts_with(prefix); };
            if (std::ranges::any_of(prefixes, begins)) return true;
        }
        std::this_thread::yield();
    }
    return false;
}

TEST_F(CommandTest, InspectTellsTheGeometry) {
    Outcome outcome = kvasir({"inspect", model(), "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    nlohmann::json report = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(report.at("architecture"), "qwen3moe");
    EXPECT_EQ(report.at("experts"), 192);
    EXPECT_EQ(report.at("expert_bytes"), 22'315'008);
    EXPECT_THAT(kvasir({"inspect", model(), "--budget", "4MiB"}).out, HasSubstr("192"));
}

TEST_F(CommandTest, InspectPrintsTheDesignsTableForThe122B) {
    for (const auto& [preset, share] : {std::pair{"qwen3.5-122b", "85.6 %"}, {"qwen3.5-122b-q4_k_m", "92.0 %"}}) {
        Outcome made = kvasir({"synth", "--preset", preset, "--header-only", "-o", file("header.gguf")});
        ASSERT_EQ(made.exit_code, 0) << made.err;
        Outcome outcome = kvasir({"inspect", file("header.gguf")});
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        EXPECT_THAT(outcome.out, HasSubstr("12,544"));
        EXPECT_THAT(outcome.out, HasSubstr("5,308,416"));
        EXPECT_THAT(outcome.out, HasSubstr(share));
    }
}

TEST_F(CommandTest, WrongUseIsExplainedWithExitCode2) {
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"nonsense"},
             {"--nonsense"},
             {"bench", "nonsense"},
             {"synth", "--preset", "tiny-mixtral", "-o", file("none/out.gguf")},
             {"publish", model(), "-o", file("none/out.json")},
             {"inspect"},
             {"inspect", model(), "--budget", "0"},
             {"inspect", model(), "--budget", "four"},
             {"slice", model(), "--layers", "5-1", "--experts", "0", "-o", file("out.gguf")},
             {"slice", model(), "--layers", "0", "--experts", "x", "-o", file("out.gguf")},
             {"synth", "--preset", "no-such", "-o", file("out.gguf")},
             {"serve", model(), "--worker", "nonsense"},
             {"serve", model(), "-m", model()},
             {"serve", model(), "--port", "99999"},
             {"serve", model(), "--port"},
             {"serve", model(), "--no-such-option"},
             {"identity", "--file", file("no-such-directory/key.pem")},
             {"worker", "--slice", model(), "--admit", cluster_.backbone_id(), "--identity", file("none/key.pem")},
             {"worker", "--slice", model(), "--listen", "127.0.0.1:0"}}) {
        Outcome outcome = kvasir(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << fmt::format("{}\n{}", fmt::join(arguments, " "), outcome.err);
        EXPECT_THAT(outcome.err, HasSubstr("kvasir: error:")) << fmt::format("{}", fmt::join(arguments, " "));
    }
    EXPECT_FALSE(std::filesystem::exists(file("out.gguf")));
    EXPECT_FALSE(std::filesystem::exists(file("no-such-directory")));
}

TEST_F(CommandTest, ASliceWhereAModelIsWantedIsRefusedWithAdvice) {
    const std::string slice = cluster_.slice("part", "0", "0-3").string();
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"serve", slice}, {"verify", slice}, {"bench", "local", slice}, {"bench", "limit", slice}}) {
        Outcome outcome = kvasir(arguments);
        EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("kvasir worker --slice " + slice))
            << fmt::format("{}", fmt::join(arguments, " "));
    }
}

TEST_F(CommandTest, TheIdentityIsMadeOnceAndSaysSo) {
    const std::vector<std::string> show = {"identity", "--json", "--file", file("key.pem")};
    const nlohmann::json first = nlohmann::json::parse(kvasir(show).out);
    const nlohmann::json second = nlohmann::json::parse(kvasir(show).out);
    EXPECT_TRUE(first.at("made").get<bool>());
    EXPECT_FALSE(second.at("made").get<bool>());
    EXPECT_EQ(first.at("id"), second.at("id"));
}

TEST_F(CommandTest, AnExpertInTwoSlicesIsCountedOnce) {
    const auto weights = [&](const std::vector<std::filesystem::path>& slices) {
        Worker worker = cluster_.start_worker("worker", slices, 0, {"--json"});
        Result<std::string> line = worker.process->wait_for_line("weight_bytes", kPatience);
        return line ? nlohmann::json::parse(*line) : nlohmann::json();
    };
    const auto one = cluster_.slice("one", "0", "0-9");
    const auto two = cluster_.slice("two", "0", "5-14");
    const nlohmann::json once = weights({one});
    EXPECT_EQ(once.at("experts"), 10);
    EXPECT_EQ(weights({one, one, cluster_.path("./one.gguf")}).at("weight_bytes"), once.at("weight_bytes"));
    const nlohmann::json both = weights({one, two});
    EXPECT_EQ(both.at("experts"), 15);
    EXPECT_EQ(both.at("weight_bytes").get<std::uint64_t>() * 10, once.at("weight_bytes").get<std::uint64_t>() * 15);
}

TEST_F(CommandTest, AWorkerThatDoesNotAdmitUsIsToldWhomToAdmit) {
    Outcome outcome = kvasir({"verify", model(), "--identity", cluster_.backbone_identity().string(), "--wait", "0",
                              "--worker", "127.0.0.1:1#" + cluster_.backbone_id()});
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("kvasir: error: no worker serves"));
    EXPECT_THAT(outcome.err, HasSubstr("must admit: " + cluster_.backbone_id()));
}

TEST_F(CommandTest, AWrongOptionPointsAtTheHelpOfItsCommand) {
    EXPECT_THAT(kvasir({"inspect", model(), "--wrong"}).err, HasSubstr("(see kvasir inspect --help)"));
    EXPECT_THAT(kvasir({"bench", "local", "--wrong"}).err, HasSubstr("(see kvasir bench local --help)"));
    EXPECT_THAT(kvasir({"bench", "nonsense"}).err, HasSubstr("unknown: 'nonsense' (see kvasir bench --help)"));
}

TEST_F(CommandTest, AResultThatCannotBeWrittenIsAnError) {
    Outcome outcome = run({"/bin/sh", "-c", fmt::format("{} inspect {} --json >/dev/full", KVASIR_PROGRAM, model())});
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("kvasir: error: cannot write the result"));
}

TEST_F(CommandTest, TheProgramTakesItsLibrariesFromItsOwnDirectory) {
    Outcome loaded = run({KVASIR_PROGRAM}, {"LD_TRACE_LOADED_OBJECTS=1"});
    EXPECT_THAT(loaded.out, HasSubstr("libmtmd"));
    EXPECT_THAT(loaded.out, Not(HasSubstr(KVASIR_LLAMA_BIN)));
    EXPECT_THAT(loaded.out, Not(HasSubstr("not found")));
}

TEST_F(CommandTest, RangesThatDoNotExistAreRefusedAndNothingIsWritten) {
    std::size_t before = entries();
    for (const auto& [layers, experts] : {std::pair{"6", "0"}, std::pair{"0-9", "0"}, std::pair{"0", "32"}}) {
        Outcome outcome = kvasir({"slice", model(), "--layers", layers, "--experts", experts, "-o", file("out.gguf")});
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    }
    EXPECT_EQ(entries(), before);
}

TEST_F(CommandTest, ATruncatedModelIsRefusedByNameAndNothingIsWritten) {
    std::filesystem::copy_file(std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf", file("cut.gguf"));
    std::filesystem::resize_file(file("cut.gguf"), 12'000'000);
    std::size_t before = entries();
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"publish", file("cut.gguf")},
             {"slice", file("cut.gguf"), "--layers", "0", "--experts", "0", "-o", file("out.gguf")}}) {
        Outcome outcome = kvasir(arguments);
        EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("truncated"));
    }
    EXPECT_EQ(entries(), before);
}

TEST_F(CommandTest, ADamagedSliceIsFoundAndNamed) {
    auto slice = cluster_.slice("part", "0-1", "3-9");
    EXPECT_EQ(kvasir({"slice", "--check", slice.string()}).exit_code, 0);
    flip_a_bit("part.gguf", std::filesystem::file_size(slice) - 100);
    Outcome outcome = kvasir({"slice", "--check", slice.string()});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("expert"));
}

TEST_F(CommandTest, AManifestNeverReplacesAModel) {
    std::filesystem::path copy = cluster_.path("copy.gguf");
    std::filesystem::copy_file(std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf", copy);
    auto size = std::filesystem::file_size(copy);
    Outcome outcome = kvasir({"publish", copy.string(), "-o", copy.string()});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(std::filesystem::file_size(copy), size);
    EXPECT_EQ(kvasir({"publish", copy.string()}).exit_code, 0);
    EXPECT_EQ(kvasir({"publish", copy.string()}).exit_code, 0) << "a manifest is replaced";
}

TEST_F(CommandTest, AWorkerDoesNotServeADamagedSlice) {
    auto slice = cluster_.slice("part", "0-1", "3-9");
    flip_a_bit("part.gguf", std::filesystem::file_size(slice) - 100);
    Outcome outcome = kvasir({"worker", "--slice", slice.string(), "--insecure-loopback", "--listen", "127.0.0.1:0"});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("expert"));
}

TEST_F(CommandTest, AManifestOfAnotherModelIsBadInput) {
    Outcome made = kvasir({"synth", "--preset", "tiny-qwen3moe", "-o", file("other.gguf")});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_EQ(kvasir({"publish", file("other.gguf")}).exit_code, 0);
    Outcome outcome = kvasir({"verify", model(), "--manifest", file("other.gguf.kvasir.json"), "--insecure-loopback",
                              "--worker", "127.0.0.1:1"});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
}

TEST_F(CommandTest, AWorkerOnATakenPortSaysSo) {
    auto slice = cluster_.slice("part", "0", "0");
    Worker worker = cluster_.start_worker("worker", {slice});
    Outcome outcome = kvasir({"worker", "--slice", slice.string(), "--identity", file("other.pem"), "--admit",
                              cluster_.backbone_id(), "--listen", fmt::format("127.0.0.1:{}", worker.port)});
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(std::to_string(worker.port)));
}

TEST_F(CommandTest, AnInterruptedCommandSaysSoAndLeavesNothing) {
    const std::string model = endless_model();
    const std::size_t before = entries();
    // An unfinished file has no name, which is shown like this, or on some file systems one for the time being.
    const std::vector<std::string> unfinished = {file("#"), file("out.gguf.")};
    auto slice = start({"slice", model, "--layers", "0-1", "-o", file("out.gguf")});
    ASSERT_TRUE(wait_for_open_file(*slice, unfinished)) << slice->stderr_text();
    slice->signal(SIGINT);
    EXPECT_EQ(slice->wait(kPatience).value(), 130);
    EXPECT_THAT(slice->stderr_text(), HasSubstr("kvasir: interrupted; nothing was left behind\n"));

    auto synth = start({"synth", "--preset", "qwen3.5-122b-2layers", "--with-data", "-o", file("out.gguf")});
    ASSERT_TRUE(wait_for_open_file(*synth, unfinished)) << synth->stderr_text();
    synth->signal(SIGTERM);
    EXPECT_EQ(synth->wait(kPatience).value(), 143);
    EXPECT_THAT(synth->stderr_text(), HasSubstr("kvasir: interrupted; nothing was left behind\n"));

    auto verify = start({"verify", cluster_.model().string(), "--tokens", "1000000"});
    ASSERT_TRUE(verify->wait_for_line("comparing the runs", kPatience)) << verify->stderr_text();
    verify->signal(SIGTERM);
    EXPECT_EQ(verify->wait(kPatience).value(), 143);
    EXPECT_THAT(verify->stderr_text(), HasSubstr("kvasir: interrupted"));
    EXPECT_EQ(entries(), before);
}

TEST_F(CommandTest, AnInterruptedPublishGoesOnWhereItEnded) {
    auto publish = start({"publish", endless_model()});
    ASSERT_TRUE(wait_for_open_file(*publish, {file("endless.gguf.kvasir.json.part")})) << publish->stderr_text();
    publish->signal(SIGINT);
    EXPECT_EQ(publish->wait(kPatience).value(), 130);
    EXPECT_THAT(publish->stderr_text(), HasSubstr("kvasir: interrupted; run the same command again"));
    EXPECT_TRUE(std::filesystem::exists(file("endless.gguf.kvasir.json.part")));
    EXPECT_FALSE(std::filesystem::exists(file("endless.gguf.kvasir.json")));
}

TEST_F(CommandTest, TheDemoProvesItselfAndLeavesNothingBehind) {
    std::filesystem::create_directory(cluster_.path("tmp"));
    Outcome outcome = kvasir({"demo"}, {"TMPDIR=" + file("tmp")});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("logits identical: yes"));
    EXPECT_THAT(outcome.out, HasSubstr("all 6 layers"));
    EXPECT_TRUE(std::filesystem::is_empty(cluster_.path("tmp")));
}

}  // namespace
}  // namespace kvasir::e2e
