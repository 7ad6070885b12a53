#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "portable/elsewhere/checks.h"
#include "portable/grids.h"
#include "portable/random.h"
#include "portable/reference.h"

namespace kvasir::portable::test {
namespace {

using Json = nlohmann::json;

ByteVector bytes_of(const Json& hex) {
    const auto text = hex.get<std::string>();
    ByteVector bytes(text.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        unsigned value = 0;
        std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
        bytes[i] = static_cast<std::byte>(value);
    }
    return bytes;
}
template <class T>
std::vector<T> numbers_of(const Json& hex) {
    const ByteVector bytes = bytes_of(hex);
    std::vector<T> numbers(bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
}
std::vector<float> floats_of(const Json& hex) {
    return numbers_of<float>(hex);
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

ggml_type type_named(const Json& name) {
    const std::vector<ggml_type> types = all_types();
    return *std::find_if(types.begin(), types.end(), [&](ggml_type type) { return ggml_type_name(type) == name; });
}
Form form_named(const Json& name) {
    return name == "q8x256" ? Form::q8x256 : name == "q8x32" ? Form::q8x32 : Form::f32;
}
Activation activation_of(const Json& entry) {
    constexpr const char* kNames[] = {"silu",       "gelu",         "relu",          "relu_squared",
                                      "swiglu_oai", "swiglu_clamp", "swiglu_limited"};
    const auto found = std::find(std::begin(kNames), std::end(kNames), entry["function"]);
    return {static_cast<Function>(found - std::begin(kNames)), entry["alpha"].get<float>(),
            entry["limit"].get<float>()};
}

// The matrix's rows are repeated until there are enough for every kernel's tiles.
bool product_holds(const Implementation& implementation, const Json& entry) {
    constexpr std::size_t kEnough = 16;
    const auto expected = floats_of(entry["product"]);
    const ByteVector weights = bytes_of(entry["weights"]);
    const std::size_t times = (kEnough + expected.size() - 1) / expected.size();
    ByteVector repeated;
    for (std::size_t i = 0; i < times; ++i)
        repeated.insert(repeated.end(), weights.begin(), weights.end());
    const Matrix matrix{type_named(entry["type"]), times * expected.size(), entry["columns"].get<std::size_t>(),
                        repeated.data()};
    const std::vector<float> product = implementation.multiply(matrix, bytes_of(entry["row"]), 1);
    for (std::size_t i = 0; i < times; ++i) {
        if (std::memcmp(product.data() + i * expected.size(), expected.data(), expected.size() * sizeof(float)) != 0)
            return false;
    }
    return true;
}

bool function_holds(const Implementation& implementation, const Json& entry) {
    if (entry["function"] == "exponential") {
        auto values = numbers_of<double>(entry["t"]);
        for (double& value : values)
            value = reference::exponential(value);
        return same(values, numbers_of<double>(entry["value"]));
    }
    const std::vector<float> gate = entry.contains("gate") ? floats_of(entry["gate"]) : std::vector<float>();
    return same(implementation.activate(activation_of(entry), gate, floats_of(entry["up"])), floats_of(entry["value"]));
}

bool result_holds(const Implementation& implementation, const Json& entry) {
    const ByteVector result = bytes_of(entry["result"]);
    const auto read = implementation.from_result(result, entry["columns"].get<std::size_t>());
    if (entry.contains("refused")) return !read;
    if (entry.contains("row") && !same(implementation.to_result(floats_of(entry["row"])), result)) return false;
    return read && same(*read, floats_of(entry["read"]));
}

// One matrix of an expert with its scale and bias.
std::vector<float> stage(const Implementation& implementation, const Json& entry, const std::string& role,
                         const std::vector<float>& input) {
    const ggml_type type = type_named(entry[role + "_type"]);
    const ByteVector weights = bytes_of(entry[role]);
    const Matrix matrix{type, weights.size() / weight_row_bytes(type, input.size()), input.size(), weights.data()};
    const ByteVector row = implementation.quantise(traits(type).form, input);
    const bool scaled = entry.contains(role + "_scale");
    const std::vector<float> scale = scaled ? floats_of(entry[role + "_scale"]) : std::vector<float>(1);
    const std::vector<float> bias =
        entry.contains(role + "_bias") ? floats_of(entry[role + "_bias"]) : std::vector<float>();
    return implementation.scale_and_bias(implementation.multiply(matrix, row, 1), scaled ? scale.data() : nullptr,
                                         bias);
}

bool expert_holds(const Implementation& implementation, const Json& entry) {
    const std::vector<float> row = floats_of(entry["row"]);
    const std::vector<float> up = stage(implementation, entry, "up", row);
    const std::vector<float> gate =
        entry.contains("gate") ? stage(implementation, entry, "gate", row) : std::vector<float>();
    const std::vector<float> middle = implementation.activate(activation_of(entry), gate, up);
    const std::vector<float> down = stage(implementation, entry, "down", middle);
    return same(implementation.to_result(down), bytes_of(entry["result"]));
}

bool row_holds(const Implementation& implementation, const Json& entry) {
    return same(implementation.quantise(form_named(entry["form"]), floats_of(entry["row"])),
                bytes_of(entry["quantised"]));
}

bool grid_holds(const Implementation&, const Json& entry) {
    constexpr const char* kNames[] = {"iq2xxs", "iq2xs", "iq2s", "iq3xxs", "iq3s", "iq1"};
    const auto found = std::find(std::begin(kNames), std::end(kNames), entry["grid"]);
    const Grid grid = grid_of(static_cast<GridName>(found - std::begin(kNames)));
    const ByteVector expected = bytes_of(entry["values"]);
    return grid.entries == entry["entries"] && grid.width == entry["columns"] &&
           expected.size() == grid.entries * grid.width &&
           std::memcmp(grid.values, expected.data(), expected.size()) == 0;
}

struct File {
    const char* name;
    bool (*holds)(const Implementation&, const Json&);
};
constexpr File kFiles[] = {{"grids", grid_holds},         {"rows", row_holds},       {"products", product_holds},
                           {"functions", function_holds}, {"results", result_holds}, {"experts", expert_holds}};

}  // namespace

void check_vectors(const std::string& directory, const Implementation& implementation, Score& score) {
    for (const File& file : kFiles) {
        std::ifstream in(directory + "/" + file.name + ".json", std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        const Json entries = Json::parse(text, nullptr, false);
        score.count(entries.is_array() && !entries.empty(), std::string(file.name) + ".json can be read");
        for (std::size_t i = 0; i < entries.size(); ++i) {
            score.count(file.holds(implementation, entries[i]),
                        implementation.name() + ": " + file.name + ".json, line " + std::to_string(i + 2));
        }
    }
}

}  // namespace kvasir::portable::test
