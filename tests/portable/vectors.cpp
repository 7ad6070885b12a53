#include "portable/vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "portable/grids.h"
#include "portable/random.h"
#include "portable/reference.h"
#include "portable/units.h"

namespace kvasir::portable::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (std::byte byte : bytes)
        text += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return text;
}
template <class T>
std::string hex_of(const std::vector<T>& values) {
    return hex(std::as_bytes(std::span(values)));
}

std::string_view name_of(Form form) {
    return form == Form::q8x256 ? "q8x256" : form == Form::q8x32 ? "q8x32" : "f32";
}

constexpr std::string_view kFunctions[] = {"silu",       "gelu",         "relu",          "relu_squared",
                                           "swiglu_oai", "swiglu_clamp", "swiglu_limited"};
std::string_view name_of(Function function) {
    return kFunctions[static_cast<std::size_t>(function)];
}

ByteVector quantised(Form form, const std::vector<float>& row) {
    ByteVector bytes(row_bytes(form, row.size()));
    reference::quantise(form, row, bytes);
    return bytes;
}

// ---- grids.json

Json grids() {
    constexpr std::pair<GridName, const char*> kNames[] = {
        {GridName::iq2xxs, "iq2xxs"}, {GridName::iq2xs, "iq2xs"}, {GridName::iq2s, "iq2s"},
        {GridName::iq3xxs, "iq3xxs"}, {GridName::iq3s, "iq3s"},   {GridName::iq1, "iq1"},
    };
    Json file = Json::array();
    for (const auto& [name, text] : kNames) {
        const Grid grid = grid_of(name);
        const auto values = std::as_bytes(std::span(grid.values, grid.entries * grid.width));
        file.push_back({{"grid", text}, {"entries", grid.entries}, {"columns", grid.width}, {"values", hex(values)}});
    }
    return file;
}

// ---- rows.json

// Rows of 512 columns that reach every branch of the quantisers.
std::map<std::string, std::vector<float>> hard_rows(Random& random) {
    std::map<std::string, std::vector<float>> rows;
    rows["normal"] = normal_row(random, 512);
    rows["small"] = normal_row(random, 512, 1e-9F);
    rows["large"] = normal_row(random, 512, 1e30F);
    rows["zero"] = std::vector<float>(512, 0.0F);
    rows["negative zero"] = std::vector<float>(512, -0.0F);
    rows["denormal"] = normal_row(random, 512, 1e-40F);
    auto& bound = rows["around 2^-100"] = std::vector<float>(512, 0.0F);
    for (std::size_t i = 0; i < 512; i += 32)
        bound[i] = (i / 32) % 2 == 0 ? 0x1p-100F : std::nextafter(0x1p-100F, 0.0F);
    auto& outlier = rows["outlier"] = normal_row(random, 512, 0.01F);
    outlier[100] = -500.0F;
    outlier[300] = 500.0F;
    auto& ties = rows["first of equals"] = normal_row(random, 512);
    ties[40] = 9.0F;
    ties[41] = -9.0F;
    ties[340] = -9.0F;
    ties[341] = 9.0F;
    auto& halves = rows["ties"] = std::vector<float>(512);
    for (std::size_t i = 0; i < 512; ++i)
        halves[i] = (static_cast<float>(i % 254) - 127.0F) * 0.5F;
    for (std::size_t i = 0; i < 512; i += 32)
        halves[i] = 127.0F;
    auto& ends = rows["ends of f32"] = normal_row(random, 512);
    ends[3] = kLargest;
    ends[4] = kDenormal;
    ends[300] = -kLargest;
    auto& nan = rows["a NaN"] = normal_row(random, 512);
    nan[17] = kNotANumber;
    auto& infinite = rows["an infinity"] = normal_row(random, 512);
    infinite[400] = -kInfinity;
    return rows;
}

// Each number, beside its block's largest, is rounded otherwise by an exact quotient, a product without its rounding, a
// division by d, or 127 / amax as the factor.
std::vector<float> row_of_roundings() {
    constexpr std::pair<std::uint32_t, std::uint32_t> kLargestAndNumber[] = {
        {0x3FADE47E, 0x3F725AAC}, {0x3FF8A236, 0x3FB901C6}, {0x3FE3529C, 0x3EE18862}};
    std::vector<float> row(768, 0.0F);
    for (std::size_t i = 0; i < 3; ++i) {
        row[256 * i] = std::bit_cast<float>(kLargestAndNumber[i].first);
        row[256 * i + 1] = std::bit_cast<float>(kLargestAndNumber[i].second);
    }
    return row;
}

Json rows() {
    Random random(1);
    Json file = Json::array();
    std::map<std::string, std::vector<float>> rows = hard_rows(random);
    rows["roundings"] = row_of_roundings();
    for (const auto& [name, row] : rows) {
        for (Form form : {Form::q8x256, Form::q8x32}) {
            file.push_back({{"case", name},
                            {"form", name_of(form)},
                            {"columns", row.size()},
                            {"row", hex_of(row)},
                            {"quantised", hex_of(quantised(form, row))}});
        }
    }
    return file;
}

// ---- products.json

// Past the eighth unit or column, so that lanes are used twice.
std::size_t columns_for(ggml_type type) {
    switch (traits(type).form) {
        case Form::q8x256:
            return 256 * 9;
        case Form::q8x32:
            return 32 * 10;
        case Form::f32:
            return 203;
    }
    return 0;
}

Json product(std::string_view name, ggml_type type, std::size_t columns, const ByteVector& bytes,
             const ByteVector& row) {
    std::vector<float> out(bytes.size() / weight_row_bytes(type, columns));
    reference::multiply({type, out.size(), columns, bytes.data()}, row, out);
    return {{"case", name},          {"type", ggml_type_name(type)}, {"rows", out.size()},
            {"columns", columns},    {"weights", hex(bytes)},        {"row", hex(row)},
            {"product", hex_of(out)}};
}

// A row no quantiser writes: every integer at an end of its range, -128 among them.
ByteVector extreme_row(Random& random, Form form, std::size_t columns) {
    ByteVector row = quantised(form, normal_row(random, columns));
    if (form == Form::f32) return row;
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (i % block_bytes(form) >= 4) row[i] = random.below(2) != 0 ? std::byte{0x80} : std::byte{0x7F};
    }
    return row;
}

// Activations that let a unit's integers add up as far as they can: beyond 2^24, where the conversion to f32 rounds.
ByteVector aligned_row(Random& random, ggml_type type, const ByteVector& bytes, std::size_t columns) {
    const std::size_t block = block_columns(traits(type).form);
    ByteVector row;
    for (std::size_t at = 0; at < columns / block; ++at) {
        Unit unit;
        decode_unit(type, bytes.data(), at, unit);
        const float scale = 1.0F;
        const auto scale_bytes = std::as_bytes(std::span(&scale, 1));
        row.insert(row.end(), scale_bytes.begin(), scale_bytes.end());
        for (std::size_t j = 0; j < block; ++j) {
            const int magnitude = 127 - static_cast<int>(random.below(4));
            row.push_back(static_cast<std::byte>(unit.weight[j] < 0 ? -magnitude : magnitude));
        }
    }
    return row;
}

// Four rows of weights that differ in their scale bytes alone.
Json scale_bytes(Random& random, ggml_type type, std::size_t columns, std::size_t scales,
                 const std::array<std::uint8_t, 4>& values) {
    const std::size_t size = weight_row_bytes(type, columns);
    const ByteVector one = weights(random, type, 1, columns, Fill::sane);
    ByteVector bytes;
    for (std::uint8_t value : values) {
        bytes.insert(bytes.end(), one.begin(), one.end());
        std::fill_n(bytes.end() - static_cast<std::ptrdiff_t>(size), scales, std::byte{value});
    }
    return product("scales at their ends", type, columns, bytes, quantised(Form::q8x32, normal_row(random, columns)));
}

void add_rare_products(Json& file) {
    Random random(6);
    for (ggml_type type : {GGML_TYPE_IQ4_XS, GGML_TYPE_Q5_K, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ3_XXS,
                           GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_S}) {
        const ByteVector bytes = weights(random, type, 1, 512, Fill::largest);
        file.push_back(product("large sums", type, 512, bytes, aligned_row(random, type, bytes, 512)));
    }
    file.push_back(scale_bytes(random, GGML_TYPE_NVFP4, 64, 4, {0, 127, 128, 255}));
    file.push_back(scale_bytes(random, GGML_TYPE_MXFP4, 32, 1, {0, 1, 254, 255}));
    const std::vector<float> negative_zeros(8, -0.0F);
    const std::vector<float> ones(8, 1.0F);
    auto bytes_of = [](const std::vector<float>& values) {
        const auto bytes = std::as_bytes(std::span(values));
        return ByteVector(bytes.begin(), bytes.end());
    };
    file.push_back(product("terms of -0", GGML_TYPE_F32, 8, bytes_of(negative_zeros), bytes_of(ones)));
}

Json products() {
    Random random(2);
    Json file = Json::array();
    for (ggml_type type : all_types()) {
        const Form form = traits(type).form;
        const std::size_t columns = columns_for(type);
        const ByteVector row = quantised(form, normal_row(random, columns));
        file.push_back(product("usual", type, columns, weights(random, type, 2, columns, Fill::sane), row));
        file.push_back(product("any bytes", type, columns, weights(random, type, 2, columns, Fill::anything), row));
        const ByteVector extreme = extreme_row(random, form, columns);
        file.push_back(product("ends", type, columns, weights(random, type, 1, columns, Fill::largest), extreme));
    }
    add_rare_products(file);
    return file;
}

// ---- functions.json

std::vector<float> hard_numbers(Random& random) {
    std::vector<float> numbers = {0.0F,      -0.0F,      1.0F,        -1.0F,      7.0F,     -7.0F,
                                  88.7F,     -88.7F,     103.5F,      -103.5F,    199.9F,   -199.9F,
                                  250.0F,    -250.0F,    kDenormal,   -kDenormal, kLargest, -kLargest,
                                  kInfinity, -kInfinity, kNotANumber, 1e-20F,     -1e-20F};
    for (int i = 0; i < 64; ++i)
        numbers.push_back(random.normal() * 4.0F);
    for (int i = 0; i < 32; ++i)
        numbers.push_back(random.any_float());
    return numbers;
}

Json function(const Activation& activation, bool is_gated, const std::vector<float>& gate,
              const std::vector<float>& up) {
    std::vector<float> out(up.size());
    reference::activate(activation, is_gated ? std::span<const float>(gate) : std::span<const float>(), up, out);
    Json entry = {{"function", name_of(activation.function)},
                  {"alpha", activation.alpha},
                  {"limit", activation.limit},
                  {"up", hex_of(up)},
                  {"value", hex_of(out)}};
    if (is_gated) entry["gate"] = hex_of(gate);
    return entry;
}

Json functions() {
    Random random(3);
    Json file = Json::array();
    std::vector<double> arguments = {0.0, -0.0, 1.0, -1.0, 0.5, 200.0, -200.0, 201.0, -1e300, 0.34657359027997264};
    for (int i = 0; i < 64; ++i)
        arguments.push_back(static_cast<double>(random.normal()) * 40.0);
    std::vector<double> values;
    for (double t : arguments)
        values.push_back(reference::exponential(t));
    file.push_back({{"function", "exponential"}, {"t", hex_of(arguments)}, {"value", hex_of(values)}});

    // Every hard number as gate and as up.
    const std::vector<float> numbers = hard_numbers(random);
    std::vector<float> gate = numbers;
    std::vector<float> up;
    for (std::size_t i = 0; i < numbers.size(); ++i)
        up.push_back(random.normal() * 4.0F);
    gate.insert(gate.end(), up.begin(), up.end());
    up.insert(up.end(), numbers.begin(), numbers.end());
    for (Function f : {Function::silu, Function::gelu, Function::relu}) {
        file.push_back(function({f}, true, gate, up));
        file.push_back(function({f}, false, gate, up));
    }
    file.push_back(function({Function::relu_squared}, false, gate, up));
    file.push_back(function({Function::swiglu_oai, 1.702F, 7.0F}, true, gate, up));
    file.push_back(function({Function::swiglu_clamp, 0.0F, 10.0F}, true, gate, up));
    file.push_back(function({Function::swiglu_limited, 0.0F, 2.5F}, true, gate, up));
    return file;
}

// ---- results.json

// A row of what a reader takes though nothing here writes it: `set` changes numbers of a usual row.
template <class Set>
std::vector<std::int16_t> changed_result(std::size_t columns, Set set) {
    Random random(7);
    const std::vector<float> row = normal_row(random, columns);
    std::vector<std::int16_t> numbers(result_bytes(columns) / 2);
    reference::to_result(row, std::as_writable_bytes(std::span(numbers)));
    set(numbers);
    return numbers;
}

// What a reader makes of such a row, or that it refuses it.
void add_read(Json& file, std::string_view name, std::size_t columns, std::span<const std::byte> bytes) {
    std::vector<float> read(columns);
    Json entry = {{"case", name}, {"columns", columns}, {"result", hex(bytes)}};
    if (reference::from_result(bytes, read)) {
        entry["read"] = hex_of(read);
    } else {
        entry["refused"] = true;
    }
    file.push_back(entry);
}

// Two blocks, the second of 4 columns: numbers 0 and 257 are exponents.
void add_foreign_results(Json& file) {
    constexpr std::size_t kColumns = 260;
    constexpr std::size_t kSecond = 257;
    using Numbers = std::vector<std::int16_t>;
    const auto add = [&](std::string_view name, auto set) {
        const Numbers numbers = changed_result(kColumns, set);
        add_read(file, name, kColumns, std::as_bytes(std::span(numbers)));
    };
    add("largest exponent", [](Numbers& n) { n[0] = 113, n[1] = 32767, n[2] = -32767; });
    add("smallest exponent", [](Numbers& n) { n[kSecond] = -126, n[kSecond + 1] = 1, n[kSecond + 2] = -1; });
    add("zeros with an exponent", [](Numbers& n) { std::fill(n.begin() + 1, n.begin() + 257, std::int16_t{0}); });
    add("a block that is not finite", [](Numbers& n) {
        std::fill(n.begin() + kSecond, n.end(), std::int16_t{0});
        n[kSecond] = 32767;
    });
    for (int exponent : {-32768, -127, 114, 32766}) {
        for (std::size_t at : {std::size_t{0}, kSecond}) {
            add(fmt::format("exponent {}", exponent), [=](Numbers& n) { n[at] = static_cast<std::int16_t>(exponent); });
        }
    }
    for (std::size_t at : {std::size_t{1}, kSecond - 1, kSecond + 4})
        add("mantissa -32768", [=](Numbers& n) { n[at] = -32768; });
    for (std::size_t at : {kSecond + 1, kSecond + 4}) {
        for (std::int16_t mantissa : {std::int16_t{1}, std::int16_t{-32768}}) {
            add("a mantissa where the block is not finite", [=](Numbers& n) {
                std::fill(n.begin() + kSecond, n.end(), std::int16_t{0});
                n[kSecond] = 32767;
                n[at] = mantissa;
            });
        }
    }

    const Numbers whole = changed_result(kColumns, [](Numbers&) {});
    const auto bytes = std::as_bytes(std::span(whole));
    add_read(file, "no bytes", kColumns, {});
    add_read(file, "a byte short", kColumns, bytes.first(bytes.size() - 1));
    add_read(file, "a number short", kColumns, bytes.first(bytes.size() - 2));
    add_read(file, "without its last block", kColumns, bytes.first(2 * kSecond));
    add_read(file, "a number more", kColumns - 1, bytes);
    add_read(file, "a block more", kColumns - 4, bytes);
}

Json results() {
    Random random(4);
    std::map<std::string, std::vector<float>> rows = hard_rows(random);
    rows["a short last block"] = normal_row(random, 300);
    auto& carry = rows["cut to 32767"] = normal_row(random, 256, 0.1F);
    carry[9] = std::nextafter(2.0F, 0.0F);
    carry[10] = -std::nextafter(2.0F, 0.0F);
    Json file = Json::array();
    for (const auto& [name, row] : rows) {
        ByteVector bytes(result_bytes(row.size()));
        reference::to_result(row, bytes);
        std::vector<float> read(row.size());
        if (!reference::from_result(bytes, read)) continue;
        file.push_back({{"case", name},
                        {"columns", row.size()},
                        {"row", hex_of(row)},
                        {"result", hex(bytes)},
                        {"read", hex_of(read)}});
    }
    add_foreign_results(file);
    return file;
}

// ---- experts.json

// Which of the three matrices have something.
struct Roles {
    bool up = false;
    bool gate = false;
    bool down = false;
    bool of(std::string_view role) const { return role == "up" ? up : role == "gate" ? gate : down; }
};
constexpr Roles kNone{};
constexpr Roles kAll{true, true, true};

struct Expert {
    std::string_view name;
    Activation activation;
    ggml_type up;
    std::optional<ggml_type> gate;
    ggml_type down;
    std::size_t hidden;
    std::size_t ff;
    Roles scales = kNone;
    Roles biases = kNone;
};

constexpr Expert kExperts[] = {
    {"SwiGLU", {Function::silu}, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, 256, 64},
    {"SwiGLU-OAI with biases",
     {Function::swiglu_oai, 1.702F, 7.0F},
     GGML_TYPE_MXFP4,
     GGML_TYPE_MXFP4,
     GGML_TYPE_MXFP4,
     96,
     64,
     kNone,
     kAll},
    {"ungated ReLU² with scales",
     {Function::relu_squared},
     GGML_TYPE_NVFP4,
     std::nullopt,
     GGML_TYPE_F16,
     128,
     48,
     kAll},
    {"GeGLU with scales and biases",
     {Function::gelu},
     GGML_TYPE_BF16,
     GGML_TYPE_BF16,
     GGML_TYPE_Q4_0,
     40,
     96,
     kAll,
     kAll},
    // Gate and up want rows of different forms, of one form, and the hidden row as it is.
    {"gate q8x256, up q8x32", {Function::silu}, GGML_TYPE_Q5_0, GGML_TYPE_Q3_K, GGML_TYPE_Q4_1, 256, 32},
    {"gate q8x32, up q8x256", {Function::silu}, GGML_TYPE_IQ4_XS, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, 256, 32},
    {"gate f32, up q8x256", {Function::relu}, GGML_TYPE_Q2_K, GGML_TYPE_F16, GGML_TYPE_BF16, 256, 24},
    {"gate and up of two types of q8x256", {Function::gelu}, GGML_TYPE_Q6_K, GGML_TYPE_Q5_K, GGML_TYPE_Q5_1, 256, 32},
    // Scales and biases of some matrices and not of others.
    {"a scale of down", {Function::silu}, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, 64, 32, {false, false, true}},
    {"a scale of up", {Function::silu}, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, 64, 32, {true, false, false}},
    {"a scale of gate", {Function::silu}, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, 64, 32, {false, true, false}},
    {"biases of up and gate",
     {Function::silu},
     GGML_TYPE_Q4_0,
     GGML_TYPE_Q4_0,
     GGML_TYPE_Q4_0,
     64,
     32,
     kNone,
     {true, true, false}},
    {"a bias of down",
     {Function::silu},
     GGML_TYPE_Q4_0,
     std::nullopt,
     GGML_TYPE_Q4_0,
     64,
     32,
     kNone,
     {false, false, true}},
    {"a scale of gate, biases of up and down",
     {Function::swiglu_limited, 0.0F, 2.5F},
     GGML_TYPE_Q8_0,
     GGML_TYPE_Q4_0,
     GGML_TYPE_MXFP4,
     64,
     32,
     {false, true, false},
     {true, false, true}},
};

// One matrix with its scale and bias, multiplied by a f32 row; adds what it drew to the case.
std::vector<float> stage(Random& random, Json& entry, std::string_view role, ggml_type type, std::size_t rows,
                         const std::vector<float>& input, const Expert& expert) {
    const ByteVector bytes = weights(random, type, rows, input.size(), Fill::sane);
    std::vector<float> out(rows);
    reference::multiply({type, rows, input.size(), bytes.data()}, quantised(traits(type).form, input), out);
    entry[fmt::format("{}_type", role)] = ggml_type_name(type);
    entry[std::string(role)] = hex(bytes);
    const float scale = 0.25F + random.normal() * 0.01F;
    const std::vector<float> bias = normal_row(random, rows, 0.5F);
    const bool scaled = expert.scales.of(role);
    const bool biased = expert.biases.of(role);
    if (scaled) entry[fmt::format("{}_scale", role)] = hex(std::as_bytes(std::span(&scale, 1)));
    if (biased) entry[fmt::format("{}_bias", role)] = hex_of(bias);
    reference::scale_and_bias(out, scaled ? &scale : nullptr,
                              biased ? std::span<const float>(bias) : std::span<const float>());
    return out;
}

Json experts() {
    Random random(5);
    Json file = Json::array();
    for (const Expert& expert : kExperts) {
        const std::vector<float> row = normal_row(random, expert.hidden);
        Json entry = {{"case", expert.name},
                      {"function", name_of(expert.activation.function)},
                      {"alpha", expert.activation.alpha},
                      {"limit", expert.activation.limit},
                      {"hidden", expert.hidden},
                      {"ff", expert.ff},
                      {"row", hex_of(row)}};
        const std::vector<float> up = stage(random, entry, "up", expert.up, expert.ff, row, expert);
        std::vector<float> gate;
        if (expert.gate) gate = stage(random, entry, "gate", *expert.gate, expert.ff, row, expert);
        std::vector<float> middle(expert.ff);
        reference::activate(expert.activation, gate, up, middle);
        const std::vector<float> out = stage(random, entry, "down", expert.down, expert.hidden, middle, expert);
        ByteVector result(result_bytes(out.size()));
        reference::to_result(out, result);
        entry["result"] = hex(result);
        file.push_back(entry);
    }
    return file;
}

}  // namespace

std::map<std::string, Json> make_vectors() {
    return {{"grids.json", grids()},         {"rows.json", rows()},       {"products.json", products()},
            {"functions.json", functions()}, {"results.json", results()}, {"experts.json", experts()}};
}

std::string text_of(const Json& file) {
    std::string text = "[\n";
    for (std::size_t i = 0; i < file.size(); ++i)
        text += file[i].dump() + (i + 1 < file.size() ? ",\n" : "\n");
    return text + "]\n";
}

}  // namespace kvasir::portable::test
