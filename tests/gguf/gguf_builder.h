// GGUF bytes made in memory for tests: well-formed unless a test asks for something else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace kvasir::testing {

class GgufBuilder {
  public:
    std::uint32_t version = 3;
    std::uint64_t alignment = 32;  // a key is written for anything but 32

    GgufBuilder& text(std::string_view key, std::string_view value);
    GgufBuilder& u32(std::string_view key, std::uint32_t value);
    GgufBuilder& f32(std::string_view key, float value);
    GgufBuilder& flag(std::string_view key, bool value);
    GgufBuilder& f32_array(std::string_view key, const std::vector<float>& values);
    GgufBuilder& u32_array(std::string_view key, const std::vector<std::uint32_t>& values);
    GgufBuilder& text_array(std::string_view key, const std::vector<std::string>& values);
    // Any type number and any bytes after it.
    GgufBuilder& raw(std::string_view key, std::uint32_t type, ByteSpan value);

    // A tensor behind the one before, its data a pattern that depends on its name.
    GgufBuilder& tensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& shape);
    // A tensor wherever `offset` (into the data section) says; build() makes no data for it.
    GgufBuilder& tensor_at(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& shape,
                           std::uint64_t offset);

    // The header, padded up to the data section.
    ByteVector header() const;
    // Header and data.
    ByteVector build() const;

  private:
    struct Tensor {
        std::string name;
        std::uint32_t type = 0;
        std::vector<std::uint64_t> shape;
        std::uint64_t offset = 0;
        std::uint64_t data_bytes = 0;
    };
    void start_value(std::string_view key, std::uint32_t type);

    ByteWriter metadata_;
    std::uint64_t metadata_count_ = 0;
    std::vector<Tensor> tensors_;
    std::uint64_t next_offset_ = 0;
};

// The sizes of a tiny MoE model.
struct TinyMoe {
    std::string architecture = "qwen3moe";
    std::uint32_t layers = 2;
    std::uint64_t hidden = 64;
    std::uint64_t ff = 32;
    std::uint64_t experts = 4;
    std::uint32_t type = 8;  // GGML_TYPE_Q8_0
};
// Its metadata, an embedding, and gate, up and down experts in every layer.
GgufBuilder tiny_moe(const TinyMoe& sizes = {});
// The metadata alone.
GgufBuilder tiny_moe_metadata(const TinyMoe& sizes);

void write_bytes(const std::filesystem::path& path, ByteSpan bytes);

}  // namespace kvasir::testing
