// A worker whose weights are damaged, through real processes: it is convicted, the evidence of it is kept, and whoever
// has the model can check that evidence, whatever becomes of it on its way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/files.h"
#include "e2e/cluster.h"
#include "e2e/http.h"
#include "gguf/expert_map.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

// Flips a bit in every `step` bytes of all experts' weights, in place.
void damage(const std::filesystem::path& path, std::uint64_t step) {
    const GgufModel model = GgufModel::open(path).value();
    const ExpertMap map = map_experts(model).value();
    std::string bytes = read_text_file(path, std::uint64_t{1} << 30).value();
    for (const ExpertLayer& layer : map.layers) {
        for (const ExpertTensor& tensor : layer.tensors) {
            for (std::uint64_t at = step / 2; at < tensor.info.bytes; at += step)
                bytes[tensor.info.offset + at] ^= 1;
        }
    }
    // The file stays the same one: others may hold it open.
    std::ofstream(path, std::ios::binary) << bytes;
}

class AuditTest : public testing::TestWithParam<const char*> {
  protected:
    // `kvasir audit check` of evidence that is in a file of its own.
    Outcome check(const Json& evidence, const std::filesystem::path& model) const {
        const std::filesystem::path file = cluster_.path("checked.json");
        if (!write_text_file(file, evidence.dump())) throw std::runtime_error("cannot write the evidence");
        return kvasir({"audit", "check", file.string(), "--model", model.string()});
    }
    Outcome check(const Json& evidence) const { return check(evidence, cluster_.model()); }

    // What a backbone process keeps of a worker that serves `slice` unchecked.
    Json evidence_against(const Worker& worker, std::vector<std::string> more = {}) {
        const std::filesystem::path directory = cluster_.path("evidence");
        const std::uint16_t port = free_port();
        std::vector<std::string> arguments = {KVASIR_PROGRAM, "serve", cluster_.model().string()};
        std::vector<std::string> swarm = cluster_.backbone_arguments({worker.endpoint()});
        arguments.insert(arguments.end(), swarm.begin(), swarm.end());
        arguments.insert(arguments.end(), more.begin(), more.end());
        arguments.insert(arguments.end(), {"--evidence", directory.string(), "--prefer-workers", "--arithmetic",
                                           GetParam(), "--host", "127.0.0.1", "--port", std::to_string(port), "-c",
                                           "512", "-t", "1", "--no-repack", "-np", "1"});
        auto server = ChildProcess::start({.arguments = arguments, .environment = {}}).value();
        EXPECT_TRUE(wait_until_healthy(port)) << server->stderr_text();
        const Json request = {{"prompt", "Once upon a time"}, {"n_predict", 40}, {"seed", 1}, {"ignore_eos", true}};
        EXPECT_EQ(http_post(port, "/completion", request.dump()).status, 200) << server->stderr_text();
        Result<std::string> line = server->wait_for_line("gave a wrong answer", kPatience);
        if (!line) throw std::runtime_error(line.error().message + server->stderr_text());
        EXPECT_THAT(*line, HasSubstr("kvasir audit check"));
        server->signal(SIGTERM);
        EXPECT_TRUE(server->wait(kPatience));
        for (const auto& entry : std::filesystem::directory_iterator(directory))
            return Json::parse(read_text_file(entry.path(), 1 << 20).value());
        throw std::runtime_error("no evidence: " + server->stderr_text());
    }

    Cluster cluster_;
};

// The same field of another value: of hex digits one is another, of numbers the next.
Json with(Json evidence, const char* key, std::size_t digit = 0) {
    Json& value = evidence.at(key);
    if (value.is_number()) {
        value = value.get<std::uint64_t>() + 1;
        return evidence;
    }
    std::string text = value.get<std::string>();
    text.at(digit) = text.at(digit) == '0' ? '1' : '0';
    value = text;
    return evidence;
}

void expect_refused(const Outcome& outcome, const std::set<int>& codes, const std::string& what) {
    EXPECT_TRUE(codes.contains(outcome.exit_code)) << what << ": " << outcome.exit_code << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("kvasir: error: ")) << what;
    EXPECT_THAT(outcome.out, Not(HasSubstr("holds"))) << what;
}

TEST_P(AuditTest, ALyingWorkerIsConvictedAndTheEvidenceHoldsForOthers) {
    const std::filesystem::path slice = cluster_.slice("whole", "0-5", "0-31");
    damage(slice, 64);
    const Worker worker = cluster_.start_worker("liar", {slice}, 0, {"--skip-check"});
    const Json evidence = evidence_against(worker);

    const Outcome good = check(evidence);
    EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
    EXPECT_THAT(good.out, HasSubstr("The evidence holds: worker " + worker.id));
    EXPECT_THAT(good.out, HasSubstr(cluster_.backbone_id()));

    // It says nothing that depends on what anybody wrote beside it.
    Json talk = with(with(evidence, "worker"), "right_answer");
    const Outcome same = check(talk);
    EXPECT_EQ(same.exit_code, 0) << same.err;
    EXPECT_THAT(same.out, HasSubstr("worker " + worker.id));

    const std::size_t attestation = evidence.at("attestation").get<std::string>().size();
    for (const char* key : {"row", "answer", "layer", "expert", "backbone", "model_id", "arithmetic"})
        expect_refused(check(with(evidence, key)), {1}, key);
    for (const char* key : {"hidden", "row_encoding", "answer_encoding", "kvasir_evidence"})
        expect_refused(check(with(evidence, key)), {3}, key);
    // The recipe's function is another, or none that there is; the last digit of its limit.
    for (std::size_t digit : {0U, 1U, 2U, 6U, 16U, 31U})
        expect_refused(check(with(evidence, "recipe", digit)), {1, 3}, "recipe");
    for (std::size_t digit = 0; digit < 64; digit += 21)
        expect_refused(check(with(evidence, "attestation", digit)), {1}, "key");
    for (std::size_t digit = 64; digit < attestation - 128; digit += (attestation - 192) / 8 + 1)
        expect_refused(check(with(evidence, "attestation", digit)), {1}, "attestation");
    for (std::size_t digit = attestation - 128; digit < attestation; digit += 42)
        expect_refused(check(with(evidence, "attestation", digit)), {1}, "signature");
    for (const auto& [key, value] : evidence.items()) {
        if (key == "worker") continue;
        Json without = evidence;
        without.erase(key);
        expect_refused(check(without), {3}, "without " + key);
    }

    // An answer that is right: what the backbone says that it computed.
    Json right = evidence;
    right["answer"] = evidence.at("right_answer");
    expect_refused(check(right), {1}, "the right answer");

    const std::filesystem::path damaged = cluster_.path("damaged.gguf");
    std::filesystem::copy_file(cluster_.model(), damaged);
    std::filesystem::copy_file(cluster_.model().string() + ".kvasir.json", damaged.string() + ".kvasir.json");
    damage(damaged, 64);
    expect_refused(check(evidence, damaged), {3}, "a damaged model");

    const std::filesystem::path other = cluster_.path("other.gguf");
    ASSERT_EQ(kvasir({"synth", "--preset", "tiny-qwen3moe", "-o", other.string()}).exit_code, 0);
    ASSERT_EQ(kvasir({"publish", other.string()}).exit_code, 0);
    const Outcome elsewhere = check(evidence, other);
    expect_refused(elsewhere, {3}, "another model");
    EXPECT_THAT(elsewhere.err, HasSubstr("is about model"));
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, AuditTest, testing::Values("portable", "ggml-cpu"),
                         [](const auto& tested) { return std::string(tested.param).substr(0, 4); });

// The check of what a worker holds is what finds damage first, unless it is skipped.
TEST(AuditCommand, ADamagedSliceIsRefusedAtTheWorkersStart) {
    const Cluster cluster;
    const std::filesystem::path slice = cluster.slice("part", "0", "0-3");
    damage(slice, 64);
    const Outcome outcome = kvasir({"worker", "--identity", cluster.path("worker.pem").string(), "--admit",
                                    cluster.backbone_id(), "--listen", "127.0.0.1:0", "--slice", slice.string()});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("damaged"));
}

TEST(AuditCommand, TheOddsAreTheFormulasAndTheSimulations) {
    const Outcome outcome = kvasir({"audit", "odds", "--liars", "2000", "--pairs", "1", "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json rows = Json::parse(outcome.out);
    ASSERT_EQ(rows.size(), 5U);
    EXPECT_DOUBLE_EQ(rows[0].at("rows_formula").get<double>(), 4);
    for (const Json& row : rows)
        EXPECT_NEAR(row.at("rows_mean").get<double>() / row.at("rows_formula").get<double>(), 1, 0.1) << row;
    EXPECT_EQ(kvasir({"audit", "odds", "--liars", "2000", "--pairs", "1", "--json"}).out, outcome.out);
    EXPECT_THAT(kvasir({"audit", "odds", "--liars", "10"}).out, HasSubstr("rows until caught: formula"));
}

}  // namespace
}  // namespace kvasir::e2e
