#include "gguf/gguf_file.h"

#include <ggml.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

namespace kvasir {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1U << 30U;
constexpr std::uint64_t kMaxHeaderBytes = 1ULL << 30U;  // real ones: some 20 MB, a tokenizer mostly
constexpr std::uint64_t kMaxEntries = 1'000'000;        // of metadata, and of tensors
constexpr std::uint64_t kMaxKeyBytes = 65'535;
constexpr std::uint64_t kMaxNameBytes = 1024;
constexpr std::uint64_t kMaxArrayKept = 1'048'576;
constexpr std::uint64_t kMaxSize = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kMaxSplits = 65'535;
constexpr std::uint64_t kMinMetadataBytes = 8 + 4 + 1;        // key length, type, a one-byte value
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // name length and name, dimensions, type, offset

// enum gguf_type
enum ValueType : std::uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

// Bytes of one value; 0 where it has no fixed size or is unknown.
std::uint64_t value_size(std::uint32_t type) {
    switch (type) {
        case kU8:
        case kI8:
        case kBool:
            return 1;
        case kU16:
        case kI16:
            return 2;
        case kU32:
        case kI32:
        case kF32:
            return 4;
        case kU64:
        case kI64:
        case kF64:
            return 8;
        default:
            return 0;
    }
}

template <class T>
GgufValue widen(T value) {
    if constexpr (std::floating_point<T>) {
        return static_cast<double>(value);
    } else if constexpr (std::unsigned_integral<T>) {
        return static_cast<std::uint64_t>(value);
    } else {
        return static_cast<std::int64_t>(value);
    }
}

// A value of fixed size.
GgufValue read_scalar(ByteReader& reader, std::uint32_t type) {
    switch (type) {
        case kU8:
            return widen(reader.read<std::uint8_t>());
        case kI8:
            return widen(reader.read<std::int8_t>());
        case kU16:
            return widen(reader.read<std::uint16_t>());
        case kI16:
            return widen(reader.read<std::int16_t>());
        case kU32:
            return widen(reader.read<std::uint32_t>());
        case kI32:
            return widen(reader.read<std::int32_t>());
        case kF32:
            return widen(reader.read<float>());
        case kU64:
            return widen(reader.read<std::uint64_t>());
        case kI64:
            return widen(reader.read<std::int64_t>());
        case kF64:
            return widen(reader.read<double>());
        default:
            return reader.read<std::uint8_t>() != 0;
    }
}

double to_double(const GgufValue& scalar) {
    if (const auto* value = std::get_if<std::uint64_t>(&scalar)) return static_cast<double>(*value);
    if (const auto* value = std::get_if<std::int64_t>(&scalar)) return static_cast<double>(*value);
    if (const auto* value = std::get_if<double>(&scalar)) return *value;
    const auto* flag = std::get_if<bool>(&scalar);
    return flag != nullptr && *flag ? 1 : 0;
}

// False if a * b does not fit below 2^63.
bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
    return !__builtin_mul_overflow(a, b, &product) && product <= kMaxSize;
}

// What a first byte group that is no GGUF looks like: "'PK\x03\x04'".
std::string show_magic(std::uint32_t magic) {
    std::string shown;
    for (int shift = 0; shift < 32; shift += 8) {
        const auto byte = static_cast<unsigned char>(magic >> static_cast<unsigned>(shift));
        shown += std::isprint(byte) != 0 ? fmt::format("{}", static_cast<char>(byte)) : fmt::format("\\x{:02x}", byte);
    }
    return shown;
}

std::string split_suffix(std::uint64_t number, std::uint64_t count) {
    return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

}  // namespace

// Reads one header front to back. Its steps leave off at the first error.
class GgufParser {
  public:
    GgufParser(ByteSpan header, std::uint64_t file_size)
        : reader_(header.first(static_cast<std::size_t>(std::min<std::uint64_t>(header.size(), kMaxHeaderBytes)))),
          file_size_(file_size) {}

    Result<GgufModel> run(GgufLength length) {
        for (auto step : {&GgufParser::read_counts, &GgufParser::read_metadata, &GgufParser::read_tensors,
                          &GgufParser::place_tensors}) {
            if (Status done = (this->*step)(); !done) return fail(done.error());
        }
        if (Status fits = check_length(length); !fits) return fail(fits.error());
        return std::move(model_);
    }

    static Result<GgufModel> open_one(const std::filesystem::path& path, GgufLength length);
    static Result<GgufModel> open_splits(const std::filesystem::path& path, const GgufModel& named, GgufLength length);

  private:
    Status read_counts();
    Status read_metadata();
    Status read_value(const std::string& key);
    Status read_array(const std::string& key);
    Status read_tensors();
    Status read_tensor(std::uint64_t number);
    Status read_shape(TensorInfo& tensor);
    Status place_tensors();
    Status check_overlap() const;
    Status check_length(GgufLength length);
    Result<std::string> read_name(std::uint64_t limit, std::string_view what);
    tl::unexpected<Error> ends_within(std::string_view what) const;

    ByteReader reader_;
    std::uint64_t file_size_;
    std::uint64_t tensor_count_ = 0;
    std::uint64_t metadata_count_ = 0;
    std::uint64_t needed_size_ = 0;
    GgufModel model_;
};

tl::unexpected<Error> GgufParser::ends_within(std::string_view what) const {
    return fail(ErrorKind::invalid, "truncated: the header ends within {} (near byte {})", what, reader_.position());
}

Status GgufParser::read_counts() {
    const auto magic = reader_.read<std::uint32_t>();
    const auto version = reader_.read<std::uint32_t>();
    if (reader_.failed()) return ends_within("its first 8 bytes: not a GGUF file");
    if (magic != kMagic) return fail(ErrorKind::invalid, "not a GGUF file: it begins with '{}'", show_magic(magic));
    if ((version & 0xffffU) == 0) return fail(ErrorKind::unsupported, "big-endian GGUF files are not supported");
    if (version != 2 && version != 3) {
        return fail(ErrorKind::unsupported, "GGUF version {}: versions 2 and 3 are supported", version);
    }
    tensor_count_ = reader_.read<std::uint64_t>();
    metadata_count_ = reader_.read<std::uint64_t>();
    if (reader_.failed()) return ends_within("the tensor and metadata counts");
    const std::uint64_t left = reader_.remaining();
    if (tensor_count_ > kMaxEntries || tensor_count_ > left / kMinTensorBytes) {
        return fail(ErrorKind::invalid, "byte 8: a tensor count of {} with {} bytes of header left", tensor_count_,
                    left);
    }
    if (metadata_count_ > kMaxEntries || metadata_count_ > left / kMinMetadataBytes) {
        return fail(ErrorKind::invalid, "byte 16: a metadata count of {} with {} bytes of header left", metadata_count_,
                    left);
    }
    return {};
}

// Names reach terminals and logs: control characters in them are refused.
Result<std::string> GgufParser::read_name(std::uint64_t limit, std::string_view what) {
    const std::size_t at = reader_.position();
    const auto length = reader_.read<std::uint64_t>();
    if (reader_.failed()) return ends_within(what);
    if (length == 0 || length > limit) {
        return fail(ErrorKind::invalid, "byte {}: {} has a name of {} bytes (1 to {} allowed)", at, what, length,
                    limit);
    }
    const ByteSpan raw = reader_.take(length);
    if (reader_.failed()) return ends_within(what);
    std::string name(reinterpret_cast<const char*>(raw.data()), raw.size());
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(name.begin(), name.end(), control)) {
        return fail(ErrorKind::invalid, "byte {}: {} has control characters in its name", at, what);
    }
    return name;
}

Status GgufParser::read_metadata() {
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
        const std::size_t at = reader_.position();
        Result<std::string> key = read_name(kMaxKeyBytes, fmt::format("metadata entry {}", i));
        if (!key) return fail(key.error());
        if (model_.metadata_.contains(*key)) {
            return fail(ErrorKind::invalid, "byte {}: the metadata key '{}' occurs twice", at, *key);
        }
        if (Status value = read_value(*key); !value) return value;
    }
    return {};
}

Status GgufParser::read_value(const std::string& key) {
    const std::size_t at = reader_.position();
    const auto type = reader_.read<std::uint32_t>();
    if (type == kArray) return read_array(key);
    if (type == kString) {
        const auto length = reader_.read<std::uint64_t>();
        const ByteSpan raw = reader_.take(length);
        if (reader_.failed()) return ends_within(fmt::format("the string '{}'", key));
        model_.metadata_[key] = std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
        return {};
    }
    if (!reader_.failed() && value_size(type) == 0) {
        return fail(ErrorKind::invalid, "byte {}: metadata '{}' has the unknown value type {}", at, key, type);
    }
    GgufValue value = read_scalar(reader_, type);
    if (reader_.failed()) return ends_within(fmt::format("metadata '{}'", key));
    model_.metadata_[key] = std::move(value);
    return {};
}

Status GgufParser::read_array(const std::string& key) {
    const std::size_t at = reader_.position();
    GgufArray array;
    array.element_type = reader_.read<std::uint32_t>();
    array.length = reader_.read<std::uint64_t>();
    if (reader_.failed()) return ends_within(fmt::format("the array '{}'", key));
    const std::uint64_t size = value_size(array.element_type);
    if (size == 0 && array.element_type != kString) {
        return fail(ErrorKind::invalid, "byte {}: the array '{}' has elements of the unsupported type {}", at, key,
                    array.element_type);
    }
    const std::uint64_t smallest = size == 0 ? 8 : size;  // of a string: its length
    if (array.length > reader_.remaining() / smallest) {
        return fail(ErrorKind::invalid, "byte {}: the array '{}' claims {} elements with {} bytes of header left", at,
                    key, array.length, reader_.remaining());
    }
    if (size == 0) {
        for (std::uint64_t i = 0; i < array.length && !reader_.failed(); ++i) {
            reader_.take(reader_.read<std::uint64_t>());
        }
    } else {
        ByteReader elements(reader_.take(array.length * size));
        const std::uint64_t kept = array.length <= kMaxArrayKept ? array.length : 0;
        array.numbers.reserve(kept);
        for (std::uint64_t i = 0; i < kept; ++i) {
            array.numbers.push_back(to_double(read_scalar(elements, array.element_type)));
        }
    }
    if (reader_.failed()) return ends_within(fmt::format("the array '{}'", key));
    model_.metadata_[key] = std::move(array);
    return {};
}

Status GgufParser::read_tensors() {
    model_.tensors_.reserve(tensor_count_);
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
        if (Status tensor = read_tensor(i); !tensor) return tensor;
    }
    return {};
}

Status GgufParser::read_tensor(std::uint64_t number) {
    const std::size_t at = reader_.position();
    Result<std::string> name = read_name(kMaxNameBytes, fmt::format("tensor {}", number));
    if (!name) return fail(name.error());
    TensorInfo tensor;
    tensor.name = std::move(*name);
    if (Status shape = read_shape(tensor); !shape) return fail(shape.error().within(fmt::format("byte {}", at)));
    tensor.offset = reader_.read<std::uint64_t>();
    if (reader_.failed()) return ends_within(fmt::format("tensor '{}'", tensor.name));
    if (!model_.index_.emplace(tensor.name, model_.tensors_.size()).second) {
        return fail(ErrorKind::invalid, "byte {}: the tensor '{}' occurs twice", at, tensor.name);
    }
    model_.tensors_.push_back(std::move(tensor));
    return {};
}

// Dimensions and type, from which the size in bytes follows.
Status GgufParser::read_shape(TensorInfo& tensor) {
    const auto dimensions = reader_.read<std::uint32_t>();
    if (dimensions > tensor.shape.size()) {
        return fail(ErrorKind::invalid, "tensor '{}' has {} dimensions, more than 4", tensor.name, dimensions);
    }
    tensor.dimensions = std::max(1, static_cast<int>(dimensions));
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        tensor.shape[i] = reader_.read<std::uint64_t>();
        if (!reader_.failed() && tensor.shape[i] == 0) {
            return fail(ErrorKind::invalid, "tensor '{}': dimension {} is 0", tensor.name, i);
        }
        if (!multiply(elements, tensor.shape[i], elements)) {
            return fail(ErrorKind::invalid, "tensor '{}': its number of elements overflows", tensor.name);
        }
    }
    tensor.type = reader_.read<std::uint32_t>();
    if (reader_.failed()) return ends_within(fmt::format("tensor '{}'", tensor.name));
    if (tensor.type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(tensor.type)) <= 0) {
        return fail(ErrorKind::unsupported, "tensor '{}' has the unknown type {}", tensor.name, tensor.type);
    }
    const auto block = static_cast<std::uint64_t>(ggml_blck_size(static_cast<ggml_type>(tensor.type)));
    if (tensor.shape[0] % block != 0) {
        return fail(ErrorKind::invalid, "tensor '{}': rows of {} elements are not whole blocks of {} ({})", tensor.name,
                    tensor.shape[0], block, type_name(tensor.type));
    }
    if (!multiply(elements / block, ggml_type_size(static_cast<ggml_type>(tensor.type)), tensor.bytes)) {
        return fail(ErrorKind::invalid, "tensor '{}': its size in bytes overflows", tensor.name);
    }
    return {};
}

// Turns offsets within the data section into offsets within the file.
Status GgufParser::place_tensors() {
    std::uint64_t alignment = kDefaultAlignment;
    if (model_.metadata_.contains("general.alignment")) {
        alignment = model_.integer("general.alignment").value_or(0);
        if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
            return fail(ErrorKind::invalid, "general.alignment is not a power of two from 1 to {}", kMaxAlignment);
        }
    }
    const std::uint64_t data = (reader_.position() + alignment - 1) / alignment * alignment;
    needed_size_ = model_.tensors_.empty() ? reader_.position() : data;
    for (TensorInfo& tensor : model_.tensors_) {
        if (tensor.offset % alignment != 0) {
            return fail(ErrorKind::invalid, "tensor '{}': its offset {} is not a multiple of the alignment {}",
                        tensor.name, tensor.offset, alignment);
        }
        if (tensor.offset > kMaxSize - data || tensor.bytes > kMaxSize - data - tensor.offset) {
            return fail(ErrorKind::invalid, "tensor '{}': its offset {} overflows", tensor.name, tensor.offset);
        }
        tensor.offset += data;
        needed_size_ = std::max(needed_size_, tensor.offset + tensor.bytes);
    }
    model_.files_.push_back({.path = {}, .size = file_size_, .data_offset = data});
    return check_overlap();
}

Status GgufParser::check_overlap() const {
    std::vector<const TensorInfo*> sorted;
    sorted.reserve(model_.tensors_.size());
    for (const TensorInfo& tensor : model_.tensors_)
        sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
        if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset) {
            return fail(ErrorKind::invalid, "the tensors '{}' and '{}' overlap at byte {}", sorted[i - 1]->name,
                        sorted[i]->name, sorted[i]->offset);
        }
    }
    return {};
}

Status GgufParser::check_length(GgufLength length) {
    model_.complete_ = needed_size_ <= file_size_;
    if (model_.complete_ || length != GgufLength::complete) return {};
    if (model_.integer("kvasir.header_only") == 1) {
        return fail(ErrorKind::invalid,
                    "this is only a model's header (kvasir.header_only): there are no weights in it");
    }
    return fail(ErrorKind::invalid, "truncated: ends at {} of {} bytes; download or copy it again", file_size_,
                needed_size_);
}

Result<GgufModel> GgufParser::open_one(const std::filesystem::path& path, GgufLength length) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return fail(file.error());
    Result<GgufModel> model = GgufParser(file->bytes(), file->bytes().size()).run(length);
    if (!model) return fail(model.error().within(path.string()));
    model->files_[0].path = path;
    return model;
}

// llama.cpp's scheme: every split is a GGUF with split.no, split.count and its own tensors; the first has the metadata.
Result<GgufModel> GgufParser::open_splits(const std::filesystem::path& path, const GgufModel& named,
                                          GgufLength length) {
    const std::uint64_t count = named.integer("split.count").value_or(0);
    const std::uint64_t number = named.integer("split.no").value_or(kMaxSplits);
    const std::string text = path.string();
    if (count > kMaxSplits || number >= count) {
        return fail(ErrorKind::invalid, "{}: split.no and split.count are missing or wrong", text);
    }
    const std::string suffix = split_suffix(number, count);
    if (!text.ends_with(suffix)) {
        return fail(ErrorKind::invalid,
                    "{}: this is split {} of {}, but its name does not end in {}, so that the others can't be found",
                    text, number + 1, count, suffix);
    }
    const std::string prefix = text.substr(0, text.size() - suffix.size());
    GgufModel whole;
    for (std::uint64_t i = 0; i < count; ++i) {
        Result<GgufModel> split = open_one(prefix + split_suffix(i, count), length);
        if (!split) return fail(split.error().within(fmt::format("split {} of {}", i + 1, count)));
        if (split->integer("split.no") != i || split->integer("split.count") != count) {
            return fail(ErrorKind::invalid, "{}: does not say that it is split {} of {}",
                        split->files_[0].path.string(), i + 1, count);
        }
        if (i == 0) whole.metadata_ = std::move(split->metadata_);
        whole.complete_ = whole.complete_ && split->complete_;
        whole.files_.push_back(std::move(split->files_[0]));
        for (TensorInfo& tensor : split->tensors_) {
            tensor.file = static_cast<std::uint32_t>(i);
            if (!whole.index_.emplace(tensor.name, whole.tensors_.size()).second) {
                return fail(ErrorKind::invalid, "{}: the tensor '{}' is in an earlier split already",
                            whole.files_.back().path.string(), tensor.name);
            }
            whole.tensors_.push_back(std::move(tensor));
        }
    }
    const std::optional<std::uint64_t> total = whole.integer("split.tensors.count");
    if (total && *total != whole.tensors_.size()) {
        return fail(ErrorKind::invalid, "{}: split.tensors.count is {}, but the splits hold {} tensors", text, *total,
                    whole.tensors_.size());
    }
    return whole;
}

Result<GgufModel> GgufModel::open(const std::filesystem::path& path, GgufLength length) {
    Result<GgufModel> model = GgufParser::open_one(path, length);
    if (!model || model->integer("split.count").value_or(0) <= 1) return model;
    return GgufParser::open_splits(path, *model, length);
}

Result<GgufModel> GgufModel::parse(ByteSpan header, std::uint64_t file_size, GgufLength length) {
    return GgufParser(header, file_size).run(length);
}

const TensorInfo* GgufModel::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::optional<std::string> GgufModel::text(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    const auto* value = std::get_if<std::string>(&found->second);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::uint64_t> GgufModel::integer(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    if (const auto* value = std::get_if<std::uint64_t>(&found->second)) return *value;
    if (const auto* value = std::get_if<bool>(&found->second)) return *value ? 1 : 0;
    const auto* value = std::get_if<std::int64_t>(&found->second);
    if (value == nullptr || *value < 0) return std::nullopt;
    return static_cast<std::uint64_t>(*value);
}

std::optional<double> GgufModel::number(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end() || std::holds_alternative<std::string>(found->second) ||
        std::holds_alternative<GgufArray>(found->second)) {
        return std::nullopt;
    }
    return to_double(found->second);
}

std::optional<std::uint64_t> GgufModel::hyperparameter(std::string_view suffix) const {
    const std::string key = fmt::format("{}.{}", architecture(), suffix);
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    const auto* array = std::get_if<GgufArray>(&found->second);
    if (array == nullptr) return integer(key);
    if (array->numbers.empty()) return std::nullopt;
    const double largest = *std::max_element(array->numbers.begin(), array->numbers.end());
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (!(largest >= 0 && largest <= kExact)) return std::nullopt;
    return static_cast<std::uint64_t>(largest);
}

std::string type_name(std::uint32_t type) {
    if (type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) <= 0) {
        return fmt::format("type {}", type);
    }
    std::string name = ggml_type_name(static_cast<ggml_type>(type));
    for (char& c : name)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

}  // namespace kvasir
