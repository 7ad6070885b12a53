// The header of a GGUF model: metadata and the place of every tensor, read by our own bounded parser. No tensor data is
// read. Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace kvasir {

// A metadata value. Integers of any width are widened; an array keeps only what somebody asks for: its length, and its
// numbers where it is numeric and no longer than 1,048,576 (strings of arrays, a tokenizer's mostly, are skipped).
struct GgufArray {
    std::uint32_t element_type = 0;
    std::uint64_t length = 0;
    std::vector<double> numbers;
};
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufArray>;

struct TensorInfo {
    std::string name;
    std::uint32_t type = 0;                             // enum ggml_type
    std::array<std::uint64_t, 4> shape = {1, 1, 1, 1};  // ne[0] is the innermost
    int dimensions = 1;
    std::uint32_t file = 0;    // index into GgufModel::files()
    std::uint64_t offset = 0;  // from the file's first byte
    std::uint64_t bytes = 0;
};

struct ModelFile {
    std::filesystem::path path;
    std::uint64_t size = 0;
    std::uint64_t data_offset = 0;  // where tensor data begins
};

// How strictly the file's length is held against its header.
enum class GgufLength {
    complete,     // every tensor must lie within its file
    header_only,  // only the header need be there (made by `kvasir synth --header-only`)
    any,          // either; GgufModel::complete() tells
};

// One model, from one file or from all of its splits ("-00001-of-00003.gguf": any of them may be named). Immutable.
class GgufModel {
  public:
    // Errors (with path, byte offset and field): not a GGUF, truncated, overlapping or unaligned tensors, sizes that
    // overflow, duplicate names, missing splits, an unknown tensor type.
    static Result<GgufModel> open(const std::filesystem::path& path, GgufLength length = GgufLength::complete);
    // Parses one file's header from memory, as if the file were `file_size` bytes long; for fuzzing and downloads.
    static Result<GgufModel> parse(ByteSpan header, std::uint64_t file_size, GgufLength length);

    const std::vector<ModelFile>& files() const { return files_; }
    // In file order.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    const TensorInfo* find(std::string_view name) const;
    bool complete() const { return complete_; }

    const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
    std::optional<std::string> text(std::string_view key) const;
    std::optional<std::uint64_t> integer(std::string_view key) const;  // of any non-negative integer type, or bool
    std::optional<double> number(std::string_view key) const;          // of any number type
    std::string architecture() const { return text("general.architecture").value_or(""); }
    // "<architecture>.<suffix>"; an array (per-layer values) yields its largest number.
    std::optional<std::uint64_t> hyperparameter(std::string_view suffix) const;

  private:
    friend class GgufParser;
    std::vector<ModelFile> files_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, GgufValue, std::less<>> metadata_;
    bool complete_ = true;
};

// ggml's name of a tensor type ("Q4_K"); "type 99" where it has none.
std::string type_name(std::uint32_t type);

}  // namespace kvasir
