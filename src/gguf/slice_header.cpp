// The header of a slice file: docs/slice-format.md.
#include <algorithm>
#include <cmath>

#include "gguf/slice_contents.h"
#include "gguf/stored_layer.h"

namespace kvasir {
namespace {

constexpr std::uint32_t kSliceVersion = 1;
constexpr std::string_view kDigestKey = "kvasir.slice.sha256.";

// GGUF's own numbers for value types.
constexpr std::uint32_t kTypeU8 = 0;
constexpr std::uint32_t kTypeU32 = 4;
constexpr std::uint32_t kTypeString = 8;
constexpr std::uint32_t kTypeArray = 9;

// Metadata entries, counted as they are written.
class MetadataWriter {
  public:
    void add(std::string_view key, std::uint32_t value) {
        begin(key, kTypeU32);
        writer_.write(value);
    }
    void add(std::string_view key, std::string_view text) {
        begin(key, kTypeString);
        writer_.write_string<std::uint64_t>(text);
    }
    template <class T>
    void add_array(std::string_view key, std::uint32_t type, std::span<const T> values) {
        begin(key, kTypeArray);
        writer_.write(type);
        writer_.write(static_cast<std::uint64_t>(values.size()));
        writer_.append(std::as_bytes(values));
    }
    std::uint64_t count() const { return count_; }
    ByteSpan bytes() { return writer_.buffer(); }

  private:
    void begin(std::string_view key, std::uint32_t type) {
        ++count_;
        writer_.write_string<std::uint64_t>(key);
        writer_.write(type);
    }
    ByteWriter writer_;
    std::uint64_t count_ = 0;
};

std::string digests_hex(const SlicePiece& part, std::size_t tensor) {
    if (part.digests.empty()) return std::string(std::size_t{64} * part.piece.count, '0');
    std::string hex;
    for (const Digest& digest : part.digests[tensor])
        hex += to_hex(digest);
    return hex;
}

void add_pieces(MetadataWriter& metadata, const std::vector<SlicePiece>& parts) {
    std::vector<std::uint32_t> pieces;
    std::vector<std::uint32_t> experts;
    std::vector<std::uint32_t> geometry;
    ByteVector recipes;
    for (const SlicePiece& part : parts) {
        pieces.insert(pieces.end(), {part.piece.layer, part.piece.first, part.piece.count});
        experts.push_back(part.model_experts);
        geometry.insert(geometry.end(),
                        {static_cast<std::uint32_t>(part.layer.hidden), static_cast<std::uint32_t>(part.layer.ff)});
        std::ranges::copy(stored_recipe(part.layer.recipe), std::back_inserter(recipes));
    }
    metadata.add_array("kvasir.slice.pieces", kTypeU32, std::span<const std::uint32_t>(pieces));
    metadata.add_array("kvasir.slice.layer_experts", kTypeU32, std::span<const std::uint32_t>(experts));
    metadata.add_array("kvasir.slice.geometry", kTypeU32, std::span<const std::uint32_t>(geometry));
    metadata.add_array("kvasir.slice.recipes", kTypeU8, ByteSpan(recipes));
}

void write_tensor_info(ByteWriter& writer, const TensorInfo& info) {
    writer.write_string<std::uint64_t>(info.name);
    writer.write(static_cast<std::uint32_t>(info.dimensions));
    for (int i = 0; i < info.dimensions; ++i)
        writer.write(info.shape[static_cast<std::size_t>(i)]);
    writer.write(info.type);
    writer.write(info.offset);
}

// An array of exactly `expected` whole numbers of 32 bits.
Result<std::vector<std::uint32_t>> read_numbers(const GgufModel& model, const char* key, std::size_t expected) {
    auto found = model.metadata().find(key);
    if (found == model.metadata().end()) return fail(ErrorKind::invalid, "'{}' is missing", key);
    const auto* array = std::get_if<GgufArray>(&found->second);
    if (array == nullptr || array->numbers.size() != array->length || array->length != expected) {
        return fail(ErrorKind::invalid, "'{}' is not an array of {} numbers", key, expected);
    }
    std::vector<std::uint32_t> numbers;
    for (double number : array->numbers) {
        if (!(number >= 0 && number <= 4294967295.0) || number != std::floor(number)) {
            return fail(ErrorKind::invalid, "'{}' holds {}", key, number);
        }
        numbers.push_back(static_cast<std::uint32_t>(number));
    }
    return numbers;
}

Result<std::vector<Piece>> read_pieces(const GgufModel& model) {
    constexpr const char* kKey = "kvasir.slice.pieces";
    auto found = model.metadata().find(kKey);
    const auto* array = found == model.metadata().end() ? nullptr : std::get_if<GgufArray>(&found->second);
    std::uint64_t length = array == nullptr ? 0 : array->length;
    if (length == 0 || length % 3 != 0 || length / 3 > kMaxSlicePieces) {
        return fail(ErrorKind::invalid, "'{}' is missing or is not three numbers for each of 1 to {} pieces", kKey,
                    kMaxSlicePieces);
    }
    Result<std::vector<std::uint32_t>> numbers = read_numbers(model, kKey, length);
    if (!numbers) return fail(numbers.error());
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < numbers->size(); i += 3) {
        pieces.push_back({(*numbers)[i], (*numbers)[i + 1], (*numbers)[i + 2]});
        if (pieces.back().count == 0) return fail(ErrorKind::invalid, "'{}' has a piece of no experts", kKey);
    }
    if (pieces != normalized(pieces)) return fail(ErrorKind::invalid, "'{}' is not sorted and merged", kKey);
    return pieces;
}

Result<SlabDigests> read_digests(const GgufModel& model, const std::string& tensor, std::uint32_t count) {
    std::optional<std::string> hex = model.text(fmt::format("{}{}", kDigestKey, tensor));
    constexpr std::size_t kDigits = 2 * sizeof(Digest);
    if (!hex || hex->size() != kDigits * count) {
        return fail(ErrorKind::invalid, "'{}{}' is missing or is not the digests of {} slabs", kDigestKey, tensor,
                    count);
    }
    SlabDigests digests;
    for (std::uint32_t i = 0; i < count; ++i) {
        Result<Digest> digest = digest_from_hex(std::string_view(*hex).substr(kDigits * i, kDigits));
        if (!digest) return fail(digest.error().within(tensor));
        digests.push_back(*digest);
    }
    return digests;
}

// Finds the tensors that the piece's recipe asks for and holds them against its geometry.
Status read_tensors(const GgufModel& model, SlicePiece& part, std::size_t ordinal) {
    for (Role role : roles_of(part.layer.recipe)) {
        std::string name = slice_tensor_name(part.piece.layer, role, ordinal);
        const TensorInfo* info = model.find(name);
        if (info == nullptr) return fail(ErrorKind::invalid, "the tensor {} is missing", name);
        TensorShape shape = expert_shape(role, part.layer.hidden, part.layer.ff, part.piece.count);
        if (info->shape != shape.ne || info->bytes % part.piece.count != 0) {
            return fail(ErrorKind::invalid, "{}: its shape is not that of {} experts of {} x {}", name,
                        part.piece.count, part.layer.hidden, part.layer.ff);
        }
        part.layer.tensors.push_back({role, *info, info->bytes / part.piece.count});
        Result<SlabDigests> digests = read_digests(model, name, part.piece.count);
        if (!digests) return fail(digests.error());
        part.digests.push_back(std::move(*digests));
    }
    return {};
}

Result<Recipe> read_recipe_of(std::span<const std::uint32_t> numbers) {
    ByteVector raw;
    for (std::uint32_t number : numbers) {
        if (number > 255) return fail(ErrorKind::invalid, "'kvasir.slice.recipes' holds {}", number);
        raw.push_back(static_cast<std::byte>(number));
    }
    return parse_stored_recipe(raw);
}

Status read_parts(const GgufModel& model, SliceContents& contents) {
    Result<std::vector<Piece>> pieces = read_pieces(model);
    if (!pieces) return fail(pieces.error());
    std::size_t count = pieces->size();
    Result<std::vector<std::uint32_t>> experts = read_numbers(model, "kvasir.slice.layer_experts", count);
    if (!experts) return fail(experts.error());
    Result<std::vector<std::uint32_t>> geometry = read_numbers(model, "kvasir.slice.geometry", 2 * count);
    if (!geometry) return fail(geometry.error());
    Result<std::vector<std::uint32_t>> recipes = read_numbers(model, "kvasir.slice.recipes", kRecipeBytes * count);
    if (!recipes) return fail(recipes.error());

    std::size_t ordinal = 0;
    for (std::size_t i = 0; i < count; ++i) {
        SlicePiece part;
        part.piece = (*pieces)[i];
        part.model_experts = (*experts)[i];
        if (std::uint64_t{part.piece.first} + part.piece.count > part.model_experts) {
            return fail(ErrorKind::invalid, "layer {}: experts {} to {} of {}", part.piece.layer, part.piece.first,
                        std::uint64_t{part.piece.first} + part.piece.count - 1, part.model_experts);
        }
        Result<Recipe> recipe = read_recipe_of(std::span(*recipes).subspan(i * kRecipeBytes, kRecipeBytes));
        if (!recipe) return fail(recipe.error().within(fmt::format("layer {}", part.piece.layer)));
        part.layer.layer = part.piece.layer;
        part.layer.experts = part.piece.count;
        part.layer.first_expert = part.piece.first;
        part.layer.hidden = (*geometry)[2 * i];
        part.layer.ff = (*geometry)[2 * i + 1];
        part.layer.recipe = *recipe;
        bool same_layer = i > 0 && (*pieces)[i - 1].layer == part.piece.layer;
        ordinal = same_layer ? ordinal + 1 : 0;
        if (same_layer && contents.pieces.back().model_experts != part.model_experts) {
            return fail(ErrorKind::invalid, "layer {}: two different expert counts", part.piece.layer);
        }
        if (Status read = read_tensors(model, part, ordinal); !read) return read;
        contents.pieces.push_back(std::move(part));
    }
    return {};
}

Result<SliceContents> read_contents(const GgufModel& model) {
    std::optional<std::uint64_t> version = model.integer("kvasir.slice.version");
    if (!version || *version == 0) return fail(ErrorKind::invalid, "'kvasir.slice.version' is not a version");
    if (*version > kSliceVersion) {
        return fail(ErrorKind::unsupported, "slice version {}, this program knows {}", *version, kSliceVersion);
    }
    SliceContents contents;
    contents.architecture = model.architecture();
    contents.name = model.text("general.name").value_or("");
    contents.block_count = static_cast<std::uint32_t>(model.integer("kvasir.slice.block_count").value_or(0));
    contents.experts_used = static_cast<std::uint32_t>(model.integer("kvasir.slice.experts_used").value_or(0));
    if (model.metadata().contains("kvasir.slice.model_id")) {
        Result<Digest> id = digest_from_hex(model.text("kvasir.slice.model_id").value_or(""));
        if (!id) return fail(id.error().within("'kvasir.slice.model_id'"));
        contents.model_id = *id;
    }
    if (Status read = read_parts(model, contents); !read) return fail(read.error());
    std::size_t expected = 0;
    for (const SlicePiece& part : contents.pieces)
        expected += part.layer.tensors.size();
    if (expected != model.tensors().size()) {
        return fail(ErrorKind::invalid, "{} tensors, its pieces have {}", model.tensors().size(), expected);
    }
    return contents;
}

}  // namespace

std::string slice_tensor_name(std::uint32_t layer, Role role, std::size_t ordinal) {
    std::string name = expert_tensor_name(layer, role);
    return ordinal == 0 ? name : fmt::format("{}.{}", name, ordinal);
}

ByteVector encode_slice_header(const SliceContents& contents) {
    MetadataWriter metadata;
    metadata.add("general.architecture", contents.architecture);
    metadata.add("general.name", contents.name);
    metadata.add("general.alignment", kSliceAlignment);
    metadata.add("kvasir.slice.version", kSliceVersion);
    if (contents.model_id) metadata.add("kvasir.slice.model_id", to_hex(*contents.model_id));
    metadata.add("kvasir.slice.block_count", contents.block_count);
    metadata.add("kvasir.slice.experts_used", contents.experts_used);
    add_pieces(metadata, contents.pieces);

    ByteWriter infos;
    std::uint64_t tensors = 0;
    for (const SlicePiece& part : contents.pieces) {
        for (std::size_t i = 0; i < part.layer.tensors.size(); ++i, ++tensors) {
            const TensorInfo& info = part.layer.tensors[i].info;
            metadata.add(fmt::format("{}{}", kDigestKey, info.name), digests_hex(part, i));
            write_tensor_info(infos, info);
        }
    }
    ByteWriter header;
    header.append(std::as_bytes(std::span("GGUF", 4)));
    header.write(std::uint32_t{3});
    header.write(tensors);
    header.write(metadata.count());
    header.append(metadata.bytes());
    header.append(infos.buffer());
    while (header.size() % kSliceAlignment != 0)
        header.write(std::uint8_t{0});
    return std::move(header.buffer());
}

Result<SliceContents> decode_slice(const GgufModel& model) {
    Result<SliceContents> contents = read_contents(model);
    if (!contents) return fail(contents.error().within(model.files().front().path.string()));
    return contents;
}

}  // namespace kvasir
