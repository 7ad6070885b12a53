#include "synth/fill.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvasir::synth {
namespace {

constexpr std::int64_t kUnitNumbers = 1 << 20;    // one unit: about 4 MB of floats before quantising
constexpr std::int64_t kPooledNumbers = 1 << 22;  // tensors from here on come from a pool
constexpr std::int64_t kPoolBlock = 256;          // numbers
constexpr unsigned kPoolBits = 12;                // 4,096 blocks of 256: 16 times what one tensor must have at least
constexpr std::size_t kPoolBlocks = 1U << kPoolBits;

std::uint64_t mixed(std::uint64_t value) {
    value += 0x9E3779B97F4A7C15U;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
}

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (unsigned char letter : text)
        hash = (hash ^ letter) * 0x100000001B3U;
    return hash;
}

// SplitMix64: the same numbers on every machine, unlike the standard library's distributions.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15U;
        return mixed(state_);
    }
    // Four 16-bit uniforms: close enough to a normal number, and without a logarithm.
    float normal() {
        const std::uint64_t bits = next();
        const auto sum = static_cast<std::int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) +
                                                   (bits >> 48));
        constexpr float kScale = 1.7320508F / 65536.0F;  // a uniform's deviation is 1/sqrt(12), that of four 1/sqrt(3)
        return static_cast<float>(sum - 2 * 65535) * kScale;
    }

  private:
    std::uint64_t state_;
};

void draw(Random& random, const Fill& fill, std::span<float> out) {
    for (float& number : out) {
        number = fill.mean + fill.deviation * random.normal();
        if (fill.negative) number = -std::fabs(number);
    }
}

void quantise(ggml_type type, std::span<const float> numbers, std::int64_t row, std::byte* out) {
    const std::vector<float> even(static_cast<std::size_t>(row), 1.0F);  // some types ask for an importance matrix
    ggml_quantize_chunk(type, numbers.data(), out, 0, static_cast<std::int64_t>(numbers.size()) / row, row,
                        even.data());
}

}  // namespace

std::vector<Unit> cut_into_units(std::span<const TensorPlan> tensors) {
    std::vector<Unit> units;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        const std::int64_t step = std::max<std::int64_t>(1, kUnitNumbers / tensors[index].row());
        for (std::int64_t first = 0; first < tensors[index].rows(); first += step) {
            units.push_back({index, first, std::min(step, tensors[index].rows() - first)});
        }
    }
    return units;
}

Filler::Filler(std::uint64_t seed, std::span<const TensorPlan> tensors) : seed_(seed), tensors_(tensors) {
    for (const TensorPlan& tensor : tensors) {
        const PoolKey key{tensor.type, tensor.fill.deviation};
        if (pooled(tensor) && !pools_.contains(key)) pools_.emplace(key, make_pool(key));
    }
}

bool Filler::pooled(const TensorPlan& tensor) {
    return tensor.row() * tensor.rows() >= kPooledNumbers && tensor.row() % kPoolBlock == 0 &&
           kPoolBlock % ggml_blck_size(tensor.type) == 0 && tensor.fill.mean == 0 && !tensor.fill.negative;
}

Filler::Pool Filler::make_pool(PoolKey key) const {
    Random random(mixed(seed_ ^ mixed(static_cast<std::uint64_t>(key.first))));
    std::vector<float> numbers(kPoolBlocks * kPoolBlock);
    draw(random, {0.0F, key.second}, numbers);
    Pool pool;
    pool.block_bytes = ggml_row_size(key.first, kPoolBlock);
    pool.blocks.resize(kPoolBlocks * pool.block_bytes);
    quantise(key.first, numbers, kPoolBlock, pool.blocks.data());
    return pool;
}

void Filler::fill_from_pool(const Pool& pool, std::uint64_t seed, std::span<std::byte> out) {
    Random random(seed);
    std::uint64_t bits = 0;
    unsigned left = 0;
    for (std::size_t at = 0; at < out.size(); at += pool.block_bytes) {
        if (left < kPoolBits) {
            bits = random.next();
            left = 64;
        }
        const std::size_t chosen = bits & (kPoolBlocks - 1);
        bits >>= kPoolBits;
        left -= kPoolBits;
        std::memcpy(out.data() + at, pool.blocks.data() + chosen * pool.block_bytes, pool.block_bytes);
    }
}

void Filler::fill(const Unit& unit, std::span<std::byte> out) const {
    const TensorPlan& tensor = tensors_[unit.tensor];
    const std::uint64_t seed = mixed(mixed(seed_ ^ hash_of(tensor.name)) + static_cast<std::uint64_t>(unit.first_row));
    if (pooled(tensor)) {
        fill_from_pool(pools_.at({tensor.type, tensor.fill.deviation}), seed, out);
        return;
    }
    Random random(seed);
    std::vector<float> numbers(static_cast<std::size_t>(unit.rows * tensor.row()));
    draw(random, tensor.fill, numbers);
    quantise(tensor.type, numbers, tensor.row(), out.data());
}

}  // namespace kvasir::synth
