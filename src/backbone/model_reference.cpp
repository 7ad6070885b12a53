#include "backbone/model_reference.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/sha256.h"
#include "expert/engine.h"

namespace kvasir {

namespace {

class ModelReference final : public AuditReference {
  public:
    ModelReference(std::vector<MappedFile> files, const ExpertMap& map, std::shared_ptr<const Manifest> manifest,
                   Arithmetic arithmetic, std::unique_ptr<Engine> engine)
        : files_(std::move(files)),
          map_(map),
          manifest_(std::move(manifest)),
          arithmetic_(arithmetic),
          engine_(std::move(engine)) {
        std::vector<ByteSpan> bytes;
        for (const MappedFile& file : files_)
            bytes.push_back(file.bytes());
        for (const ExpertLayer& layer : map_.layers)
            layers_.emplace(layer.layer, view_weights(layer, bytes));
    }

    Status compute(const AuditQuestion& question, std::span<std::byte> out) override {
        const AnswerTerms& terms = question.terms;
        const auto found = layers_.find(terms.layer);
        if (found == layers_.end())
            return fail(ErrorKind::invalid, "the model has no experts in layer {}", terms.layer);
        const bool fits = terms.hidden == found->second.hidden && terms.answer == output_encoding(arithmetic_) &&
                          terms.question == input_encoding(arithmetic_, found->second);
        if (!fits) {
            return fail(ErrorKind::unsupported, "rows of {} columns, or their encodings, are not what layer {} takes",
                        terms.hidden, terms.layer);
        }
        const Pair pair{0, terms.expert};
        return engine_->compute(found->second, terms.recipe, question.row, std::span(&pair, 1), out);
    }

    Status check_weights(std::uint32_t layer, std::uint32_t expert) override {
        const ManifestLayer* listed = manifest_->find(layer);
        const auto found = std::ranges::find(map_.layers, layer, &ExpertLayer::layer);
        if (listed == nullptr || found == map_.layers.end()) {
            return fail(ErrorKind::invalid, "the model has no experts in layer {}", layer);
        }
        for (const ExpertTensor& tensor : found->tensors) {
            const ManifestTensor* entry = listed->find(tensor.role);
            const bool there = entry != nullptr && expert < entry->slabs.size();
            const ByteSpan file = files_.at(tensor.info.file).bytes();
            if (!there || tensor.slab_offset(expert) + tensor.slab_bytes > file.size()) {
                return fail(ErrorKind::invalid, "{} is not in the manifest", tensor.info.name);
            }
            if (sha256(file.subspan(tensor.slab_offset(expert), tensor.slab_bytes)) == entry->slabs[expert]) continue;
            return fail(ErrorKind::mismatch, "the bytes of {} are not the manifest's", tensor.info.name);
        }
        return {};
    }

  private:
    const std::vector<MappedFile> files_;
    const ExpertMap map_;
    const std::shared_ptr<const Manifest> manifest_;
    std::map<std::uint32_t, LayerWeights> layers_;
    const Arithmetic arithmetic_;
    const std::unique_ptr<Engine> engine_;
};

}  // namespace

Result<std::shared_ptr<AuditReference>> make_model_reference(const GgufModel& model, const ExpertMap& map,
                                                             std::shared_ptr<const Manifest> manifest,
                                                             Arithmetic arithmetic) {
    std::vector<MappedFile> files;
    for (const ModelFile& file : model.files()) {
        Result<MappedFile> mapped = MappedFile::open(file.path);
        if (!mapped) return fail(mapped.error());
        files.push_back(std::move(*mapped));
    }
    Result<std::unique_ptr<Engine>> engine = Engine::create(arithmetic, 1);
    if (!engine) return fail(engine.error());
    return std::make_shared<ModelReference>(std::move(files), map, std::move(manifest), arithmetic, std::move(*engine));
}

}  // namespace kvasir
