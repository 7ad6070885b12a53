#include "cli/paths.h"

#include "base/files.h"
#include "gguf/slice_contents.h"
#include "net/identity.h"

namespace kvasir::cli {

Result<std::filesystem::path> whole_model(const std::filesystem::path& named) {
    Result<GgufModel> model = GgufModel::open(named);
    if (!model) return fail(model.error());
    if (!is_slice(*model)) return model->files().front().path;
    return fail(ErrorKind::unsupported,
                "{}: is a slice, which only a worker can use (kvasir worker --slice {}); name the whole model it was "
                "cut from",
                named.string(), named.string());
}

Status check_key_path(const std::filesystem::path& named) {
    if (named.empty() || named == default_identity_path()) return {};
    return check_directory_of(named);
}

}  // namespace kvasir::cli
