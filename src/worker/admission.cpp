#include "worker/admission.h"

#include <sstream>
#include <string_view>

#include "base/files.h"

namespace kvasir {

namespace {

constexpr std::uint64_t kFileLimit = 1 << 20;
constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view line) {
    line = line.substr(0, line.find('#'));
    const std::size_t first = line.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return line.substr(first, line.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Result<std::set<NodeId>> read_admissions(std::span<const std::string> ids, const std::filesystem::path& file) {
    std::set<NodeId> admitted;
    for (const std::string& text : ids) {
        Result<Digest> id = digest_from_hex(text);
        if (!id)
            return fail(ErrorKind::usage, "'{}' is not a node id (64 hex digits, as 'kvasir identity' prints)", text);
        admitted.insert(*id);
    }
    if (file.empty()) return admitted;
    Result<std::string> text = read_text_file(file, kFileLimit);
    if (!text) return fail(text.error());
    std::istringstream lines(*text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        const std::string_view entry = trimmed(line);
        if (entry.empty()) continue;
        Result<Digest> id = digest_from_hex(entry);
        if (!id) return fail(ErrorKind::usage, "{}: line {}: '{}' is not a node id", file.string(), number, entry);
        admitted.insert(*id);
    }
    return admitted;
}

}  // namespace kvasir
