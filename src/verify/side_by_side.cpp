#include "verify/side_by_side.h"

#include <chrono>

#include "backbone/ggml_backend.h"

namespace kvasir {
namespace {

constexpr std::size_t kRuns = 5;

// Records what the backend computes for one run.
class Recorder final : public ExpertObserver {
  public:
    Recorder(ExpertRecord& record, std::function<void(std::uint32_t)> on_layer)
        : record_(record), on_layer_(std::move(on_layer)) {}

    void observe(std::uint32_t layer, std::span<const float> /*rows*/, std::span<const Pair> pairs,
                 std::span<const float> out) override {
        if (!pairs.empty()) record_.add(layer, static_cast<std::uint32_t>(out.size() / pairs.size()), out);
        if (on_layer_) on_layer_(layer);
    }

  private:
    ExpertRecord& record_;
    std::function<void(std::uint32_t)> on_layer_;
};

bool is_stock(Run run) {
    return run == Run::stock || run == Run::repacked;
}

struct OneRun {
    std::unique_ptr<LlamaSession> session;
    ExpertRecord record;
    BackendConfig config;  // what the backend does during this run; stock has no backend
    double seconds = 0;
};

}  // namespace

struct SideBySide::Implementation {
    std::shared_ptr<const LlamaModel> model;
    std::shared_ptr<Backend> backend;
    std::array<OneRun, kRuns> runs;

    OneRun& at(Run run) { return runs[static_cast<std::size_t>(run)]; }
    Status open(Run run, const std::shared_ptr<const LlamaModel>& from, const SideBySideOptions& options);
};

// The sessions' callbacks and the recorders point at the records, which stay where the implementation is.
Status SideBySide::Implementation::open(Run run, const std::shared_ptr<const LlamaModel>& from,
                                        const SideBySideOptions& options) {
    LlamaOptions session;
    session.threads = options.threads;
    session.context = options.context;
    session.batch = options.batch;
    if (is_stock(run)) session.record = &at(run).record;
    Result<std::unique_ptr<LlamaSession>> created = LlamaSession::create(from, session);
    if (!created) return fail(created.error());
    at(run).session = std::move(*created);
    if (is_stock(run)) return {};
    const bool swarm = run == Run::swarm;
    at(run).config.arithmetic = run == Run::exact ? Arithmetic::exact : options.arithmetic;
    at(run).config.observer = std::make_shared<Recorder>(at(run).record, swarm ? options.on_swarm_layer : nullptr);
    if (swarm) {
        at(run).config.dispatcher = options.dispatcher;
        at(run).config.manifest = options.manifest;
    }
    return {};
}

SideBySide::SideBySide(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}

SideBySide::~SideBySide() {
    // The process-wide backend outlives this object, its recorders do not.
    if (implementation_->backend) implementation_->backend->configure({});
}

Result<std::unique_ptr<SideBySide>> SideBySide::create(const SideBySideOptions& options) {
    prepare_llama();
    std::unique_ptr<SideBySide> runs(new SideBySide(std::make_unique<Implementation>()));
    Implementation& self = *runs->implementation_;
    Result<std::shared_ptr<const LlamaModel>> stock = LlamaModel::load(options.model);
    if (!stock) return fail(stock.error());
    if (Status opened = self.open(Run::stock, *stock, options); !opened) return fail(opened.error());
    if (options.repacked) {
        Result<std::shared_ptr<const LlamaModel>> repacked = LlamaModel::load(options.model, true);
        if (!repacked) return fail(repacked.error());
        if (Status opened = self.open(Run::repacked, *repacked, options); !opened) return fail(opened.error());
    }

    Result<std::shared_ptr<Backend>> backend = register_backend({});
    if (!backend) return fail(backend.error());
    self.backend = std::move(*backend);
    Result<std::shared_ptr<const LlamaModel>> kvasir = LlamaModel::load(options.model);
    if (!kvasir) return fail(kvasir.error());
    self.model = *kvasir;
    const std::array<std::pair<Run, bool>, 3> further = {
        {{Run::local, options.local}, {Run::swarm, options.dispatcher != nullptr}, {Run::exact, options.exact}}};
    for (const auto& [run, wanted] : further) {
        if (!wanted) continue;
        if (Status opened = self.open(run, self.model, options); !opened) return fail(opened.error());
    }
    return runs;
}

bool SideBySide::has(Run run) const {
    return implementation_->at(run).session != nullptr;
}

Status SideBySide::decode(Run run, std::span<const Token> tokens) {
    OneRun& one = implementation_->at(run);
    if (one.session == nullptr) return fail(ErrorKind::internal, "a run that was not asked for");
    one.record.clear();
    if (!is_stock(run)) implementation_->backend->configure(one.config);
    const auto start = std::chrono::steady_clock::now();
    Status done = one.session->decode(tokens);
    one.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return done;
}

std::span<const float> SideBySide::logits(Run run) const {
    return implementation_->at(run).session->logits();
}

const ExpertRecord& SideBySide::experts(Run run) const {
    return implementation_->at(run).record;
}

double SideBySide::seconds(Run run) const {
    return implementation_->at(run).seconds;
}

void SideBySide::compare(Run reference, Run other, std::uint64_t first_position, Comparison& into) const {
    compare_logits(logits(reference), logits(other), model().vocabulary(), first_position, into);
    compare_experts(experts(reference), experts(other), first_position, into);
}

void SideBySide::clear() {
    for (OneRun& run : implementation_->runs) {
        if (run.session) run.session->clear();
    }
}

const LlamaModel& SideBySide::model() const {
    return *implementation_->model;
}

}  // namespace kvasir
