#include "worker/worker_fixture.h"

#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvasir::worker_test {

namespace {

constexpr const char* kArchitecture = "qwen3moe";

struct FreeGguf {
    void operator()(gguf_context* context) const { gguf_free(context); }
};
struct FreeGgml {
    void operator()(ggml_context* context) const { ggml_free(context); }
};

void add_random(ggml_context* context, gguf_context* file, std::mt19937& random, const std::string& name,
                ggml_type type, std::array<std::int64_t, 3> shape) {
    ggml_tensor* tensor = ggml_new_tensor_3d(context, type, shape[0], shape[1], shape[2]);
    ggml_set_name(tensor, name.c_str());
    std::uniform_real_distribution<float> weight(-0.5F, 0.5F);
    std::vector<float> weights(static_cast<std::size_t>(ggml_nelements(tensor)));
    std::ranges::generate(weights, [&] { return weight(random); });
    if (type == GGML_TYPE_F32) {
        std::ranges::copy(weights, static_cast<float*>(tensor->data));
    } else {
        ggml_quantize_chunk(type, weights.data(), tensor->data, 0, ggml_nrows(tensor), shape[0], nullptr);
    }
    gguf_add_tensor(file, tensor);
}

// The value, or an exception that ends the test with its message.
template <class T>
T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
}

}  // namespace

Compute Question::compute() const {
    Compute compute;
    compute.epoch = epoch;
    compute.layer = layer;
    compute.hidden = hidden;
    compute.recipe = recipe;
    compute.encoding = encoding;
    compute.pairs = pairs;
    compute.rows = rows;
    return compute;
}

WorkerTest::WorkerTest()
    : directory_(must(TempDirectory::create("kvasir-worker-test-"))), model_(write_model("model.gguf", 1)) {}

std::filesystem::path WorkerTest::write_model(std::string_view name, std::uint32_t seed, bool published) const {
    std::unique_ptr<gguf_context, FreeGguf> file(gguf_init_empty());
    std::unique_ptr<ggml_context, FreeGgml> context(ggml_init({std::size_t{4} << 20, nullptr, false}));
    std::mt19937 random(seed);
    const auto number = [&](const char* key, std::uint32_t value) {
        gguf_set_val_u32(file.get(), fmt::format("{}.{}", kArchitecture, key).c_str(), value);
    };
    gguf_set_val_str(file.get(), "general.architecture", kArchitecture);
    gguf_set_val_str(file.get(), "general.name", "tiny");
    number("block_count", 5);
    number("embedding_length", kHidden);
    number("expert_count", kExperts);
    number("expert_used_count", 2);
    number("expert_feed_forward_length", kFf);
    for (int layer : {0, 2, 4}) {
        const ggml_type type = layer == 4 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
        const auto block = [&](const char* tensor) { return fmt::format("blk.{}.ffn_{}_exps.weight", layer, tensor); };
        add_random(context.get(), file.get(), random, block("gate"), type, {kHidden, kFf, kExperts});
        add_random(context.get(), file.get(), random, block("up"), type, {kHidden, kFf, kExperts});
        add_random(context.get(), file.get(), random, block("down"), GGML_TYPE_F32, {kFf, kHidden, kExperts});
    }
    std::filesystem::path out = path(name);
    if (!gguf_write_to_file(file.get(), out.c_str(), false)) throw std::runtime_error("cannot write " + out.string());
    if (published) {
        const GgufModel model = must(GgufModel::open(out));
        must(publish_to(manifest_path(out), model, must(map_experts(model)), {.threads = 1, .quiet = true}));
    }
    return out;
}

std::filesystem::path WorkerTest::write_slice_of(const std::filesystem::path& model, std::string_view name,
                                                 std::vector<Piece> pieces) const {
    const GgufModel opened = must(GgufModel::open(model));
    const ExpertMap map = must(map_experts(opened));
    std::optional<Manifest> manifest;
    if (std::filesystem::exists(manifest_path(model))) manifest = must(load_manifest(manifest_path(model)));
    std::filesystem::path out = path(name);
    must(write_slice(opened, map, manifest ? &*manifest : nullptr, std::move(pieces), out, true));
    return out;
}

PieceStore WorkerTest::open_store(std::vector<std::filesystem::path> slices) const {
    return must(PieceStore::open(slices, kEpoch));
}

Question WorkerTest::ask(std::uint32_t layer, std::uint32_t rows, std::uint32_t slots, std::uint32_t first,
                         std::uint32_t count) {
    Question question;
    question.layer = layer;
    std::uniform_real_distribution<float> number(-1, 1);
    std::vector<float> numbers(std::size_t{rows} * kHidden);
    std::ranges::generate(numbers, [&] { return number(random_); });
    question.rows.assign(std::as_bytes(std::span(numbers)).begin(), std::as_bytes(std::span(numbers)).end());
    std::vector<std::uint32_t> experts(count);
    std::iota(experts.begin(), experts.end(), first);
    for (std::uint32_t row = 0; row < rows; ++row) {
        std::ranges::shuffle(experts, random_);
        for (std::uint32_t slot = 0; slot < slots; ++slot)
            question.pairs.push_back({row, experts[slot]});
    }
    return question;
}

Question WorkerTest::portable(Question question) {
    question.arithmetic = Arithmetic::portable;
    if (question.layer != 4) return question;
    question.encoding = RowEncoding::q8x32;
    const std::size_t count = question.rows.size() / sizeof(float);
    const ByteVector rows = std::exchange(
        question.rows, ByteVector(count / question.hidden * row_bytes(question.encoding, question.hidden)));
    encode_rows(question.encoding, question.hidden, {reinterpret_cast<const float*>(rows.data()), count},
                question.rows);
    return question;
}

ByteVector WorkerTest::answer(const Question& question) const {
    select_exact_kernels();
    const PieceStore whole = open_store({model_});
    const PieceStore::Place place = whole.find(question.layer, 0).value();
    ByteVector out(question.pairs.size() * row_bytes(output_encoding(question.arithmetic), question.hidden));
    Status status = must(Engine::create(question.arithmetic, 1))
                        ->compute(place.held->weights, question.recipe, question.rows, question.pairs, out);
    if (!status) throw std::runtime_error(status.error().message);
    return out;
}

JobPtr WorkerTest::make_job(const PieceStore& store, const Question& question,
                            std::function<void(Result<ResultBuffer>)> done) const {
    auto job = std::make_shared<Job>();
    job->arithmetic = question.arithmetic;
    job->payload = encode(question.compute());
    job->compute = must(decode_compute(job->payload));
    for (std::uint32_t i = 0; i < question.pairs.size(); ++i) {
        const PieceStore::Place place = store.find(question.layer, question.pairs[i].expert).value();
        auto part = std::ranges::find(job->parts, place.held, &JobPart::held);
        if (part == job->parts.end()) part = job->parts.insert(part, JobPart{place.held, {}, {}});
        part->pairs.push_back({question.pairs[i].row, place.local});
        part->places.push_back(i);
    }
    job->done = std::move(done);
    return job;
}

testing::AssertionResult same_bits(ByteSpan left, ByteSpan right) {
    if (left.size() != right.size()) {
        return testing::AssertionFailure() << left.size() << " and " << right.size() << " bytes";
    }
    const auto [first, other] = std::ranges::mismatch(left, right);
    if (first == left.end()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "byte " << first - left.begin() << " differs";
}

}  // namespace kvasir::worker_test
