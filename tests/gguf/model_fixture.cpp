#include "gguf/model_fixture.h"

#include <ggml.h>

#include <algorithm>
#include <fstream>

namespace kvasir::testing {

std::filesystem::path real_model() {
    return std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf";
}

OpenModel::OpenModel(const std::filesystem::path& path) {
    Result<GgufModel> opened = GgufModel::open(path);
    EXPECT_TRUE(opened) << opened.error().message;
    model = std::move(opened.value());
    map = map_experts(model).value();
    for (const ModelFile& file : model.files())
        files.push_back(MappedFile::open(file.path).value());
}

ByteSpan OpenModel::slab(std::uint32_t layer, Role role, std::uint32_t expert) const {
    const ExpertTensor* tensor = map.find(layer)->find(role);
    return files[tensor->info.file].bytes().subspan(tensor->slab_offset(expert), tensor->slab_bytes);
}

Manifest OpenModel::publish(int threads) const {
    PublishOptions options;
    options.threads = threads;
    options.quiet = true;
    Result<PublishReport> report = kvasir::publish(model, map, options);
    EXPECT_TRUE(report) << report.error().message;
    return report.value().manifest;
}

std::filesystem::path DirectoryTest::write_tiny(std::string_view name, const TinyMoe& sizes) const {
    write_bytes(path(name), tiny_moe(sizes).build());
    return path(name);
}

std::filesystem::path DirectoryTest::write_tiny_split() const {
    TinyMoe sizes;
    for (std::uint32_t split = 0; split < 2; ++split) {
        GgufBuilder builder = split == 0 ? tiny_moe_metadata(sizes) : GgufBuilder();
        builder.u32("split.no", split).u32("split.count", 2);
        if (split == 0) builder.tensor("token_embd.weight", GGML_TYPE_F32, {sizes.hidden, 8});
        for (const char* part : {"gate", "up", "down"}) {
            bool down = std::string_view(part) == "down";
            builder.tensor(fmt::format("blk.{}.ffn_{}_exps.weight", split, part), sizes.type,
                           {down ? sizes.ff : sizes.hidden, down ? sizes.hidden : sizes.ff, sizes.experts});
        }
        write_bytes(path(fmt::format("tiny-{:05}-of-00002.gguf", split + 1)), builder.build());
    }
    return path("tiny-00002-of-00002.gguf");
}

std::vector<std::string> DirectoryTest::list() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
        names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

ByteVector read_bytes(const std::filesystem::path& path) {
    MappedFile file = MappedFile::open(path).value();
    return {file.bytes().begin(), file.bytes().end()};
}

void flip_bit(const std::filesystem::path& path, std::uint64_t offset) {
    ByteVector bytes = read_bytes(path);
    bytes.at(offset) ^= std::byte{4};
    write_bytes(path, bytes);
}

}  // namespace kvasir::testing
