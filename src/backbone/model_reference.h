// The model's own file as the auditor's reference: mapped anew, so that it depends on nobody's buffers. (The pages are
// shared with llama.cpp's map of the same file.)
#pragma once

#include <memory>

#include "backbone/auditor.h"
#include "base/result.h"
#include "expert/arithmetic.h"
#include "gguf/expert_map.h"
#include "gguf/gguf_file.h"
#include "gguf/manifest.h"

namespace kvasir {

Result<std::shared_ptr<AuditReference>> make_model_reference(const GgufModel& model, const ExpertMap& map,
                                                             std::shared_ptr<const Manifest> manifest,
                                                             Arithmetic arithmetic);

}  // namespace kvasir
