#include "gguf/gguf_builder.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <fstream>

namespace kvasir::testing {
namespace {

std::uint64_t tensor_bytes(std::uint32_t type, const std::vector<std::uint64_t>& shape) {
    const auto ggml = static_cast<ggml_type>(type);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : shape)
        elements *= extent;
    return elements / static_cast<std::uint64_t>(ggml_blck_size(ggml)) * ggml_type_size(ggml);
}

}  // namespace

void GgufBuilder::start_value(std::string_view key, std::uint32_t type) {
    metadata_.write_string<std::uint64_t>(key);
    metadata_.write(type);
    ++metadata_count_;
}

GgufBuilder& GgufBuilder::text(std::string_view key, std::string_view value) {
    start_value(key, 8);
    metadata_.write_string<std::uint64_t>(value);
    return *this;
}

GgufBuilder& GgufBuilder::u32(std::string_view key, std::uint32_t value) {
    start_value(key, 4);
    metadata_.write(value);
    return *this;
}

GgufBuilder& GgufBuilder::f32(std::string_view key, float value) {
    start_value(key, 6);
    metadata_.write(value);
    return *this;
}

GgufBuilder& GgufBuilder::flag(std::string_view key, bool value) {
    start_value(key, 7);
    metadata_.write(static_cast<std::uint8_t>(value ? 1 : 0));
    return *this;
}

GgufBuilder& GgufBuilder::f32_array(std::string_view key, const std::vector<float>& values) {
    start_value(key, 9);
    metadata_.write(std::uint32_t{6});
    metadata_.write(std::uint64_t{values.size()});
    for (const float value : values)
        metadata_.write(value);
    return *this;
}

GgufBuilder& GgufBuilder::u32_array(std::string_view key, const std::vector<std::uint32_t>& values) {
    start_value(key, 9);
    metadata_.write(std::uint32_t{4});
    metadata_.write(std::uint64_t{values.size()});
    for (const std::uint32_t value : values)
        metadata_.write(value);
    return *this;
}

GgufBuilder& GgufBuilder::text_array(std::string_view key, const std::vector<std::string>& values) {
    start_value(key, 9);
    metadata_.write(std::uint32_t{8});
    metadata_.write(std::uint64_t{values.size()});
    for (const std::string& value : values)
        metadata_.write_string<std::uint64_t>(value);
    return *this;
}

GgufBuilder& GgufBuilder::raw(std::string_view key, std::uint32_t type, ByteSpan value) {
    start_value(key, type);
    metadata_.append(value);
    return *this;
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& shape) {
    const std::uint64_t bytes = tensor_bytes(type, shape);
    tensors_.push_back({std::string(name), type, shape, next_offset_, bytes});
    next_offset_ = (next_offset_ + bytes + alignment - 1) / alignment * alignment;
    return *this;
}

GgufBuilder& GgufBuilder::tensor_at(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& shape,
                                    std::uint64_t offset) {
    tensors_.push_back({std::string(name), type, shape, offset, 0});
    return *this;
}

ByteVector GgufBuilder::header() const {
    ByteWriter metadata = metadata_;
    ByteWriter writer;
    writer.append(std::as_bytes(std::span("GGUF", 4)));
    writer.write(version);
    writer.write(std::uint64_t{tensors_.size()});
    writer.write(metadata_count_ + (alignment == 32 ? 0 : 1));
    writer.append(metadata.buffer());
    if (alignment != 32) {
        writer.write_string<std::uint64_t>("general.alignment");
        writer.write(std::uint32_t{4});
        writer.write(static_cast<std::uint32_t>(alignment));
    }
    for (const Tensor& tensor : tensors_) {
        writer.write_string<std::uint64_t>(tensor.name);
        writer.write(static_cast<std::uint32_t>(tensor.shape.size()));
        for (const std::uint64_t extent : tensor.shape)
            writer.write(extent);
        writer.write(tensor.type);
        writer.write(tensor.offset);
    }
    while (alignment != 0 && writer.size() % alignment != 0)
        writer.write(std::uint8_t{0});
    return std::move(writer.buffer());
}

ByteVector GgufBuilder::build() const {
    ByteVector bytes = header();
    const std::size_t data = bytes.size();
    for (const Tensor& tensor : tensors_) {
        if (tensor.data_bytes == 0) continue;
        bytes.resize(std::max<std::size_t>(bytes.size(), data + tensor.offset + tensor.data_bytes));
        // A pattern that is neither constant nor equal for two experts or two tensors.
        std::uint64_t state = 0xcbf29ce484222325ULL;
        for (const char c : tensor.name)
            state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
        for (std::uint64_t i = 0; i < tensor.data_bytes; ++i) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            bytes[data + tensor.offset + i] = static_cast<std::byte>(state >> 56U);
        }
    }
    return bytes;
}

GgufBuilder tiny_moe_metadata(const TinyMoe& sizes) {
    GgufBuilder builder;
    const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", sizes.architecture, suffix); };
    builder.text("general.architecture", sizes.architecture).text("general.name", "Tiny");
    builder.u32(key("block_count"), sizes.layers)
        .u32(key("embedding_length"), static_cast<std::uint32_t>(sizes.hidden));
    builder.u32(key("expert_count"), static_cast<std::uint32_t>(sizes.experts)).u32(key("expert_used_count"), 2);
    return builder;
}

GgufBuilder tiny_moe(const TinyMoe& sizes) {
    GgufBuilder builder = tiny_moe_metadata(sizes);
    builder.tensor("token_embd.weight", GGML_TYPE_F32, {sizes.hidden, 8});
    for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
        const auto name = [&](std::string_view part) { return fmt::format("blk.{}.ffn_{}_exps.weight", layer, part); };
        builder.tensor(name("gate"), sizes.type, {sizes.hidden, sizes.ff, sizes.experts});
        builder.tensor(name("up"), sizes.type, {sizes.hidden, sizes.ff, sizes.experts});
        builder.tensor(name("down"), sizes.type, {sizes.ff, sizes.hidden, sizes.experts});
    }
    return builder;
}

void write_bytes(const std::filesystem::path& path, ByteSpan bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace kvasir::testing
