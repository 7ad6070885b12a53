#include "backbone/evidence_check.h"

#include <memory>
#include <utility>

#include "backbone/auditor.h"
#include "backbone/model_reference.h"
#include "expert/arithmetic.h"
#include "gguf/expert_map.h"
#include "gguf/gguf_file.h"
#include "gguf/manifest.h"

namespace kvasir {
namespace {

// "Cannot be checked", whatever it is that went wrong with the model here.
Error not_checkable(Error error) {
    if (error.kind == ErrorKind::mismatch) error.kind = ErrorKind::invalid;
    return error;
}

Result<std::shared_ptr<AuditReference>> open_reference(const Evidence& evidence, const std::filesystem::path& path,
                                                       const std::filesystem::path& manifest_file,
                                                       Arithmetic arithmetic) {
    Result<GgufModel> model = GgufModel::open(path);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    const bool beside = manifest_file.empty();
    Result<Manifest> manifest = load_manifest(beside ? manifest_path(model->files().front().path) : manifest_file);
    if (!manifest) return fail(manifest.error());
    if (manifest->model_id() != evidence.context.model_id) {
        return fail(ErrorKind::invalid, "the evidence is about model {}, and {} is {}",
                    to_hex(evidence.context.model_id), path.string(), to_hex(manifest->model_id()));
    }
    if (Status same = matches(*manifest, *map); !same) return fail(same.error());
    return make_model_reference(*model, *map, std::make_shared<const Manifest>(std::move(*manifest)), arithmetic);
}

}  // namespace

Result<EvidenceVerdict> check_evidence(const Evidence& evidence, const std::filesystem::path& model,
                                       const std::filesystem::path& manifest) {
    const Result<NodeId> worker = signer_of(evidence);
    if (!worker) return fail(worker.error());
    const std::optional<Arithmetic> arithmetic = find_arithmetic(evidence.context.arithmetic);
    if (!arithmetic) {
        return fail(ErrorKind::unsupported, "the answer was computed in '{}', which this machine cannot",
                    evidence.context.arithmetic);
    }
    Result<std::shared_ptr<AuditReference>> reference = open_reference(evidence, model, manifest, *arithmetic);
    if (!reference) return fail(not_checkable(reference.error()));
    const AnswerTerms& terms = evidence.terms;
    if (Status intact = (*reference)->check_weights(terms.layer, terms.expert); !intact) {
        return fail(not_checkable(intact.error()));
    }
    ByteVector right(row_bytes(terms.answer, terms.hidden));
    if (Status computed = (*reference)->compute({terms, evidence.row}, right); !computed) {
        return fail(not_checkable(computed.error()));
    }
    const std::size_t wrong = differing_values(terms.answer, evidence.answer, right);
    if (wrong == 0) return fail(ErrorKind::mismatch, "the worker's answer is right");
    return EvidenceVerdict{*worker, wrong};
}

}  // namespace kvasir
