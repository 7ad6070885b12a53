#include "expert/arithmetic.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "portable/types.h"

namespace kvasir {

namespace {

#if defined(__x86_64__)
constexpr std::string_view kMachine = "x86_64";
#elif defined(__aarch64__)
constexpr std::string_view kMachine = "aarch64";
#else
constexpr std::string_view kMachine = "other";
#endif

// Features that say how ggml organises its work, not what a row product's bits are.
constexpr std::array<std::string_view, 6> kNotArithmetic = {"OPENMP",    "REPACK",     "KLEIDIAI",
                                                            "LLAMAFILE", "ACCELERATE", "CPU_HBM"};

void append_lower(std::string& text, std::string_view name) {
    for (char letter : name)
        text += static_cast<char>(letter == '_' ? '-' : std::tolower(letter));
}

// ggml's version, the machine, and the features that its kernels were compiled for.
std::string ggml_cpu_arithmetic() {
    std::string name = fmt::format("ggml-cpu/{}/{}", ggml_version(), kMachine);
    ggml_backend_reg_t registry = ggml_backend_cpu_reg();
    auto get_features = reinterpret_cast<ggml_backend_get_features_t>(
        ggml_backend_reg_get_proc_address(registry, "ggml_backend_get_features"));
    if (get_features == nullptr) return name;
    for (const ggml_backend_feature* feature = get_features(registry); feature->name != nullptr; ++feature) {
        std::string_view feature_name = feature->name;
        if (std::ranges::find(kNotArithmetic, feature_name) != kNotArithmetic.end()) continue;
        name += '-';
        append_lower(name, feature_name);
        if (std::string_view(feature->value) != "1") append_lower(name, feature->value);
    }
    return name;
}

}  // namespace

std::vector<Arithmetic> known_arithmetics() {
    return {Arithmetic::portable, Arithmetic::ggml_cpu};
}

std::string wire_name(Arithmetic arithmetic) {
    switch (arithmetic) {
        case Arithmetic::portable:
            return std::string(portable::kName);
        case Arithmetic::ggml_cpu:
            return ggml_cpu_arithmetic();
        case Arithmetic::exact:
            break;
    }
    return "exact";
}

std::optional<Arithmetic> find_arithmetic(std::string_view name) {
    for (Arithmetic arithmetic : known_arithmetics()) {
        if (wire_name(arithmetic) == name) return arithmetic;
    }
    return std::nullopt;
}

std::string_view short_name(Arithmetic arithmetic) {
    switch (arithmetic) {
        case Arithmetic::portable:
            return "portable";
        case Arithmetic::ggml_cpu:
            return "ggml-cpu";
        case Arithmetic::exact:
            break;
    }
    return "exact";
}

Result<Arithmetic> parse_arithmetic(std::string_view name) {
    for (Arithmetic arithmetic : known_arithmetics()) {
        if (short_name(arithmetic) == name) return arithmetic;
    }
    return fail(ErrorKind::usage, "'{}' is no arithmetic: it is portable or ggml-cpu", name);
}

void select_exact_kernels() {
    // ggml multiplies the IQ grid types by another kernel from eight rows per expert on, whose sums are in another
    // order; this variable, read once at its first use, keeps the row-by-row kernel.
    setenv("GGML_NO_IQ_PANEL", "1", 1);
}

}  // namespace kvasir
