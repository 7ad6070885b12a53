// Products by tiles: V::kRows output rows at a time, one in each lane of a vector. The integers of one unit are
// unpacked once and multiplied with every row there is while they are in registers, so one row and many rows take the
// same code, and neither needs sums across lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "portable/prepared.h"
#include "portable/unpack_narrow.h"

namespace kvasir::portable {

// Rows that are multiplied with one unpacking: their accumulators (eight vectors a row) stay in the first-level cache.
inline constexpr std::size_t kRowsAtOnce = 32;

template <class V>
class Tiles {
    using I = typename V::Ints;
    using F = typename V::Floats;

  public:
    // For a type of unpack.h.
    template <class Type>
    static void multiply_wide(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                              float* out, std::size_t stride) {
        for_tiles(matrix, rows, begin, end, [&](const Tile& tile) { wide_tile<Type>(tile, rows, out, stride); });
    }
    // For a type of unpack_narrow.h.
    template <class Type>
    static void multiply_narrow(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                                float* out, std::size_t stride) {
        for_tiles(matrix, rows, begin, end, [&](const Tile& tile) { narrow_tile<Type>(tile, rows, out, stride); });
    }

  private:
    struct Tile {
        const std::byte* weights;  // of its first output row
        std::size_t row_bytes;     // of a row of weights
        std::size_t output;        // its first output row
        std::size_t first;         // rows of activations [first, last)
        std::size_t last;
        const std::byte* next;  // what follows in memory, `next_bytes` of it; to be fetched meanwhile
        std::size_t next_bytes;
    };

    // The last tile is moved back to end with the range; what it computes twice is the same. The range has kRows rows.
    template <class Compute>
    static void for_tiles(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                          Compute compute) {
        constexpr std::size_t kRows = V::kRows;
        const std::size_t row_bytes = weight_row_bytes(matrix.type, matrix.columns);
        for (std::size_t output = begin; output < end; output += kRows) {
            const std::size_t start = output + kRows > end ? end - kRows : output;
            const std::size_t after = start + kRows;
            const std::size_t following = after + kRows > end ? end - after : kRows;
            for (std::size_t first = 0; first < rows.count(); first += kRowsAtOnce) {
                const std::size_t last = first + kRowsAtOnce < rows.count() ? first + kRowsAtOnce : rows.count();
                compute(Tile{matrix.data + start * row_bytes, row_bytes, start, first, last,
                             matrix.data + after * row_bytes, first == 0 ? following * row_bytes : 0});
            }
        }
    }

    // Asks for the share of unit `unit` of what the next tile reads.
    static void fetch(const Tile& tile, std::size_t unit, std::size_t units) {
        const std::size_t from = tile.next_bytes * unit / units / 64 * 64;
        const std::size_t to = tile.next_bytes * (unit + 1) / units / 64 * 64;
        for (std::size_t at = from; at < to; at += 64)
            __builtin_prefetch(tile.next + at, 0, 2);
    }

    // The eight lanes of section 4, for every row.
    struct Accumulators {
        F lanes[kRowsAtOnce][8];

        explicit Accumulators(std::size_t rows) {
            for (std::size_t row = 0; row < rows; ++row) {
                for (F& lane : lanes[row])
                    lane = V::all(0.0F);
            }
        }
        void store(const Tile& tile, float* out, std::size_t stride) const {
            for (std::size_t row = tile.first; row < tile.last; ++row) {
                const F* l = lanes[row - tile.first];
                const F even = V::add(V::add(l[0], l[4]), V::add(l[2], l[6]));
                const F odd = V::add(V::add(l[1], l[5]), V::add(l[3], l[7]));
                V::store_canonical(out + row * stride + tile.output, V::add(even, odd));
            }
        }
    };

    // Multiplies what a wide type unpacks with the unit of every row.
    struct Sink {
        using Vector = V;
        const Wide* units;        // of the first row
        std::size_t unit_stride;  // from row to row
        std::size_t rows;
        I sums[kRowsAtOnce];

        template <int kMax, int kWords>
        void block(int column, const I* words, I scale) {
            for (std::size_t row = 0; row < rows; ++row) {
                const std::int8_t* q = units[row * unit_stride].q + column;
                sums[row] = V::template add_scaled<kMax, kWords>(sums[row], words, q, scale);
            }
        }
    };

    template <class Type>
    static void wide_tile(const Tile& tile, const PreparedRows& rows, float* out, std::size_t stride) {
        const std::size_t block_bytes = traits(Type::kType).stored_bytes;
        const std::size_t count = tile.last - tile.first;
        Accumulators accumulators(count);
        Sink sink;
        sink.unit_stride = rows.units();
        sink.rows = count;
        for (std::size_t unit = 0; unit < rows.units(); ++unit) {
            sink.units = rows.wide(tile.first) + unit;
            for (std::size_t row = 0; row < count; ++row)
                sink.sums[row] = V::zero();
            UnitScales<V> scales;
            fetch(tile, unit, rows.units());
            Type::template unpack<V>(tile.weights + unit * block_bytes, tile.row_bytes, scales, sink);
            for (std::size_t row = 0; row < count; ++row) {
                F& lane = accumulators.lanes[row][unit % 8];
                lane = V::add(lane, wide_term<Type>(scales, sink.units[row * sink.unit_stride], sink.sums[row]));
            }
        }
        accumulators.store(tile, out, stride);
    }

    template <class Type>
    static F wide_term(const UnitScales<V>& scales, const Wide& row, I sum) {
        constexpr int kOffset = Type::template kOffset<V>;
        const F row_scale = V::all(row.scale);
        I paired = V::zero();
        if constexpr (Type::kMinimums || kOffset != 0) {
            constexpr bool kOf16 = Type::kScaleColumns == 16;
            const std::int16_t* sums = kOf16 ? row.sums16 : row.sums32;
            for (int i = 0; i < (kOf16 ? 8 : 4); ++i)
                paired = V::add_pairs(paired, scales.pairs[i], sums + 2 * i);
        }
        if constexpr (kOffset != 0) sum = V::subtract(sum, V::template left<log2(kOffset)>(paired));
        F term = V::times(V::convert(sum), V::times(scales.scale, row_scale));
        if constexpr (Type::kMinimums)
            term = V::subtract(term, V::times(V::convert(paired), V::times(scales.minimum_scale, row_scale)));
        return term;
    }
    static constexpr int log2(int power) {
        int bits = 0;
        while (power > 1) {
            power /= 2;
            ++bits;
        }
        return bits;
    }

    template <class Type>
    static void narrow_tile(const Tile& tile, const PreparedRows& rows, float* out, std::size_t stride) {
        const TypeTraits& known = traits(Type::kType);
        const std::size_t units_stored = known.stored_columns / 32;
        const std::size_t count = tile.last - tile.first;
        Accumulators accumulators(count);
        for (std::size_t unit = 0; unit < rows.units(); ++unit) {
            const Narrow* blocks = rows.narrow(tile.first) + unit;
            const std::byte* from = tile.weights + unit / units_stored * known.stored_bytes;
            NarrowUnit<V> weights;
            fetch(tile, unit, rows.units());
            Type::template unpack<V>(from, tile.row_bytes, unit % units_stored, weights);
            for (std::size_t row = 0; row < count; ++row) {
                F& lane = accumulators.lanes[row][unit % 8];
                lane = V::add(lane, narrow_term<Type>(weights, blocks[row * rows.units()]));
            }
        }
        accumulators.store(tile, out, stride);
    }

    template <class Type>
    static F narrow_term(const NarrowUnit<V>& weights, const Narrow& row) {
        constexpr int kMax = Type::kMax;
        constexpr int kOffset = Type::template kOffset<V>;
        const F row_scale = V::all(row.scale);
        if constexpr (Type::kMinimums == NarrowMinimums::upper_half) {
            const I lower = V::template dot<kMax, 4>(weights.words, row.q);
            const I upper = V::template dot<kMax, 4>(weights.words + 4, row.q + 16);
            const F low = V::convert(V::subtract(lower, V::all(kOffset * row.low_sum)));
            const F high = V::convert(V::subtract(upper, V::all(kOffset * row.high_sum)));
            return V::add(V::times(low, V::times(weights.scale, row_scale)),
                          V::times(high, V::times(weights.minimum_scale, row_scale)));
        }
        const int total = row.low_sum + row.high_sum;
        I sum = V::template dot<kMax, 8>(weights.words, row.q);
        if constexpr (kOffset != 0) sum = V::subtract(sum, V::all(kOffset * total));
        const F term = V::times(V::convert(sum), V::times(weights.scale, row_scale));
        if constexpr (Type::kMinimums == NarrowMinimums::none) return term;
        const F minimum = V::all(static_cast<float>(total));
        return V::add(term, V::times(minimum, V::times(weights.minimum_scale, row_scale)));
    }
};

}  // namespace kvasir::portable
