#include "portable/kernels.h"

#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>

#include <cstdint>
#endif

#include "portable/kernel_table.h"
#include "portable/numbers.h"

namespace kvasir::portable {
namespace {

// Rounding to nearest and denormals, whatever mode the caller is in; restored at the end. Costs little where they are
// that already.
class IeeeMode {
  public:
    IeeeMode(const IeeeMode&) = delete;
    IeeeMode& operator=(const IeeeMode&) = delete;
#if defined(__x86_64__)
    IeeeMode() : before_(_mm_getcsr()), other_((before_ & ~kFlags) != kIeee) {
        if (other_) _mm_setcsr(kIeee);
    }
    ~IeeeMode() {
        if (other_) _mm_setcsr(before_);
    }

  private:
    static constexpr unsigned kFlags = 0x3F;  // of exceptions that happened: nobody asks
    static constexpr unsigned kIeee = 0x1F80;
    unsigned before_;
    bool other_;
#elif defined(__aarch64__)
    IeeeMode() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
    }
    ~IeeeMode() {
        asm volatile("msr fpcr, %0" : : "r"(before_));
    }

  private:
    std::uint64_t before_ = 0;
#else
    IeeeMode() {}
    ~IeeeMode() {}
#endif
};

#if defined(__x86_64__)
// Clang 14 has no name for it.
bool runs_f16c() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool runs_avx2() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && runs_f16c();
#else
    return false;
#endif
}

bool runs_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && runs_f16c();
#else
    return false;
#endif
}

// A processor that has them has Armv8.2, which their file is compiled for.
bool runs_dot_products() {
#if defined(__aarch64__)
    constexpr unsigned long kDotProducts = 1UL << 20;  // HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#else
    return false;
#endif
}

bool runs_matrix_products() {
#if defined(__aarch64__)
    constexpr unsigned long kMatrixProducts = 1UL << 13;  // HWCAP2_I8MM
    return runs_dot_products() && (getauxval(AT_HWCAP2) & kMatrixProducts) != 0;
#else
    return false;
#endif
}

// Null where it cannot run.
const KernelTable* find_table(Isa isa) {
    switch (isa) {
        case Isa::plain:
            return &plain_table();
        case Isa::avx2:
            return runs_avx2() ? avx2_table() : nullptr;
        case Isa::avx512:
            return runs_avx512() ? avx512_table() : nullptr;
        case Isa::neon:
            return neon_table();
        case Isa::neon_dot:
            return runs_dot_products() ? neon_dot_table() : nullptr;
        case Isa::neon_i8mm:
            return runs_matrix_products() ? neon_i8mm_table() : nullptr;
        case Isa::wasm:
            return wasm_table();
    }
    return nullptr;
}

// Looked for once: asking the processor costs microseconds in a virtual machine.
const KernelTable* fastest_table() {
    static const KernelTable* const table = find_table(supported_isas().back());
    return table;
}

Status check_result(std::span<const std::byte> result, std::size_t columns) {
    constexpr int kNotFinite = std::numeric_limits<std::int16_t>::max();
    if (result.size() != result_bytes(columns))
        return fail(ErrorKind::invalid, "result row: {} bytes for {} columns", result.size(), columns);
    const std::byte* next = result.data();
    for (std::size_t start = 0; start < columns; start += kResultBlock) {
        const std::size_t count = columns - start < kResultBlock ? columns - start : kResultBlock;
        const int exponent = load<std::int16_t>(next);
        const bool finite = exponent != kNotFinite;
        if (finite && (exponent < -126 || exponent > 113))
            return fail(ErrorKind::invalid, "result row: exponent {} at column {}", exponent, start);
        int wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const int mantissa = load<std::int16_t>(next + 2 + 2 * i);
            wrong |= finite ? static_cast<int>(mantissa == -32768) : mantissa;
        }
        if (wrong != 0) return fail(ErrorKind::invalid, "result row: a mantissa of the block at column {}", start);
        next += 2 + 2 * count;
    }
    return {};
}

}  // namespace

std::string_view name_of(Isa isa) {
    switch (isa) {
        case Isa::plain:
            return "plain";
        case Isa::avx2:
            return "avx2";
        case Isa::avx512:
            return "avx512";
        case Isa::neon:
            return "neon";
        case Isa::neon_dot:
            return "neon_dot";
        case Isa::neon_i8mm:
            return "neon_i8mm";
        case Isa::wasm:
            return "wasm";
    }
    return "unknown";
}

std::vector<Isa> supported_isas() {
    std::vector<Isa> isas;
    for (Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::neon, Isa::neon_dot, Isa::neon_i8mm, Isa::wasm}) {
        if (find_table(isa) != nullptr) isas.push_back(isa);
    }
    return isas;
}

Kernels::Kernels() : table_(fastest_table()) {}

Kernels::Kernels(Isa isa) : table_(find_table(isa)) {}

Isa Kernels::isa() const {
    return table_->isa;
}

void Kernels::quantise(Form form, std::span<const float> row, std::span<std::byte> out) const {
    const IeeeMode mode;
    table_->quantise(form, row.data(), row.size(), out.data());
}

void Kernels::read(std::span<const std::byte> bytes, PreparedRows& rows, std::size_t row) const {
    table_->read(bytes.data(), rows.form(), rows.units(), rows.row(row));
}

void Kernels::prepare(std::span<const float> values, PreparedRows& rows, std::size_t row) const {
    const IeeeMode mode;
    table_->prepare(values.data(), rows.form(), rows.units(), rows.row(row));
}

void Kernels::multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                       std::size_t stride) const {
    const IeeeMode mode;
    const bool tiles = end - begin >= table_->tile_rows;
    const KernelTable& table = tiles ? *table_ : plain_table();
    table.multiply(matrix.type)(matrix, rows, begin, end, out, stride);
}

void Kernels::activate(const Activation& activation, std::span<const float> gate, std::span<const float> up,
                       std::span<float> out) const {
    const IeeeMode mode;
    table_->activate(activation, gate.empty() ? nullptr : gate.data(), up.data(), up.size(), out.data());
}

void Kernels::scale_and_bias(std::span<float> values, const float* scale, std::span<const float> bias) const {
    const IeeeMode mode;
    table_->scale_and_bias(values.data(), values.size(), scale, bias.empty() ? nullptr : bias.data());
}

void Kernels::to_result(std::span<const float> row, std::span<std::byte> out) const {
    const IeeeMode mode;
    table_->to_result(row.data(), row.size(), out.data());
}

Status Kernels::from_result(std::span<const std::byte> result, std::span<float> row) const {
    const IeeeMode mode;
    if (Status valid = check_result(result, row.size()); !valid) return valid;
    table_->from_result(result.data(), row.size(), row.data());
    return {};
}

}  // namespace kvasir::portable
