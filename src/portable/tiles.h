// Products by tiles: V::kRows output rows at a time, one in each lane of a vector. The integers of one unit are
// unpacked once and multiplied with every row there is while they are in registers, so one row and many rows take the
// same code, and neither needs sums across lanes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "portable/prepared.h"
#include "portable/unpack_narrow.h"

namespace kvasir::portable {

// Rows that are multiplied with one unpacking: their accumulators (eight vectors a row) stay in the first-level cache.
inline constexpr std::size_t kRowsAtOnce = 32;

// Integers of one row of activations, the same in every lane. A V may read several words of q at a time.
template <class V>
struct SameInAll {
    const std::int8_t* q;
    typename V::Ints operator()(int word) const { return V::broadcast(q + 4 * word); }
};

// Pairs of sums, likewise.
template <class V>
struct SamePairs {
    const std::int16_t* sums;
    typename V::Ints operator()(int pair) const { return V::broadcast(sums + 2 * pair); }
};

// Section 4's term of a wide unit: `sum` is Σ c·(q + kOffset)·a, sums(i) the row's pairs of sums16 or sums32.
template <class V, class Type, class Sums>
typename V::Floats wide_term(const UnitScales<V>& unit, typename V::Ints sum, Sums sums, typename V::Floats row_scale) {
    constexpr int kOffset = Type::template kOffset<V>;
    static_assert((kOffset & (kOffset - 1)) == 0);
    typename V::Ints paired = V::zero();
    if constexpr (Type::kMinimums || kOffset != 0) {
        for (int i = 0; i < (Type::kScaleColumns == 16 ? 8 : 4); ++i)
            paired = V::add_pairs(paired, unit.pairs[i], sums(i));
    }
    if constexpr (kOffset != 0) sum = V::subtract(sum, V::template left<std::countr_zero(unsigned{kOffset})>(paired));
    const typename V::Floats term = V::times(V::convert(sum), V::times(unit.scale, row_scale));
    if constexpr (!Type::kMinimums) return term;
    return V::subtract(term, V::times(V::convert(paired), V::times(unit.minimum_scale, row_scale)));
}

// Of a narrow unit; `total` is the sum of the row's integers.
template <class V, class Type, class Integers>
typename V::Floats narrow_term(const NarrowUnit<V>& unit, Integers integers, typename V::Ints total,
                               typename V::Floats row_scale) {
    constexpr int kOffset = Type::template kOffset<V>;
    typename V::Ints sum = V::template dot<Type::kMax, 8>(unit.words, integers);
    if constexpr (kOffset != 0) sum = V::subtract(sum, V::times(total, V::all(kOffset)));
    const typename V::Floats term = V::times(V::convert(sum), V::times(unit.scale, row_scale));
    if constexpr (Type::kMinimums == NarrowMinimums::none) return term;
    return V::add(term, V::times(V::convert(total), V::times(unit.minimum_scale, row_scale)));
}

// Of a unit of NVFP4, whose halves have scales of their own.
template <class V, class Type, class Integers>
typename V::Floats halves_term(const NarrowUnit<V>& unit, Integers low, Integers high, int low_sum, int high_sum,
                               typename V::Floats row_scale) {
    constexpr int kOffset = Type::template kOffset<V>;
    const typename V::Ints lower = V::template dot<Type::kMax, 4>(unit.words, low);
    const typename V::Ints upper = V::template dot<Type::kMax, 4>(unit.words + 4, high);
    const typename V::Floats first = V::convert(V::subtract(lower, V::all(kOffset * low_sum)));
    const typename V::Floats second = V::convert(V::subtract(upper, V::all(kOffset * high_sum)));
    return V::add(V::times(first, V::times(unit.scale, row_scale)),
                  V::times(second, V::times(unit.minimum_scale, row_scale)));
}

template <class V>
class Tiles {
    using I = typename V::Ints;
    using F = typename V::Floats;

  public:
    // For a type of unpack.h.
    template <class Type>
    static void multiply_wide(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                              float* out, std::size_t stride) {
        for_tiles(matrix, rows, begin, end, [&](const Tile& tile) {
            if (V::kSumInRegister && tile.last - tile.first == 1) return wide_tile<Type, true>(tile, rows, out, stride);
            wide_tile<Type, false>(tile, rows, out, stride);
        });
    }
    // For a type of unpack_narrow.h.
    template <class Type>
    static void multiply_narrow(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
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
    static void for_tiles(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
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

    // Asks for what the next tile reads, a few lines at a time: as many as this tile has reads between them.
    class Fetcher {
      public:
        Fetcher() = default;
        Fetcher(const Tile& tile, std::size_t steps)
            : next_(tile.next), end_(tile.next + tile.next_bytes), step_((tile.next_bytes / steps / 64 + 1) * 64) {}
        void fetch() {
            const std::byte* until = next_ + step_ < end_ ? next_ + step_ : end_;
            for (; next_ < until; next_ += 64)
                __builtin_prefetch(next_, 0, 2);
        }

      private:
        const std::byte* next_ = nullptr;
        const std::byte* end_ = nullptr;
        std::size_t step_ = 0;
    };

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

    // Multiplies what a wide type unpacks with the unit of every row. A single row's sum stays in a register.
    template <bool kSingle>
    struct Sink {
        using Vector = V;
        const Wide* units;        // of the first row
        std::size_t unit_stride;  // from row to row
        std::size_t rows;
        Fetcher fetcher;
        I single;
        I sums[kSingle ? 1 : kRowsAtOnce];

        template <int kMax, int kWords>
        void block(int column, const I* words, I scale) {
            fetcher.fetch();
            if constexpr (kSingle) {
                single = V::template add_scaled<kMax, kWords>(single, words, SameInAll<V>{units->q + column}, scale);
                return;
            }
            for (std::size_t row = 0; row < rows; ++row) {
                const std::int8_t* q = units[row * unit_stride].q + column;
                sums[row] = V::template add_scaled<kMax, kWords>(sums[row], words, SameInAll<V>{q}, scale);
            }
        }
    };

    template <class Type, bool kSingle>
    static void wide_tile(const Tile& tile, const RowsView& rows, float* out, std::size_t stride) {
        const std::size_t block_bytes = traits(Type::kType).stored_bytes;
        const std::size_t count = tile.last - tile.first;
        Accumulators accumulators(count);
        Sink<kSingle> sink;
        sink.unit_stride = rows.units();
        sink.rows = count;
        sink.fetcher = Fetcher(tile, rows.units() * (256 / Type::kScaleColumns));
        for (std::size_t unit = 0; unit < rows.units(); ++unit) {
            sink.units = rows.wide(tile.first) + unit;
            sink.single = V::zero();
            for (std::size_t row = 0; row < (kSingle ? 0 : count); ++row)
                sink.sums[row] = V::zero();
            UnitScales<V> scales;
            Type::template unpack<V>(tile.weights + unit * block_bytes, tile.row_bytes, scales, sink);
            for (std::size_t row = 0; row < count; ++row) {
                F& lane = accumulators.lanes[row][unit % 8];
                const Wide& block = sink.units[row * sink.unit_stride];
                const SamePairs<V> sums{Type::kScaleColumns == 16 ? block.sums16 : block.sums32};
                const I sum = kSingle ? sink.single : sink.sums[row];
                lane = V::add(lane, wide_term<V, Type>(scales, sum, sums, V::all(block.scale)));
            }
        }
        accumulators.store(tile, out, stride);
    }

    template <class Type>
    static void narrow_tile(const Tile& tile, const RowsView& rows, float* out, std::size_t stride) {
        const TypeTraits& known = traits(Type::kType);
        const std::size_t units_stored = known.stored_columns / 32;
        const std::size_t count = tile.last - tile.first;
        Accumulators accumulators(count);
        Fetcher fetcher(tile, rows.units());
        for (std::size_t unit = 0; unit < rows.units(); ++unit) {
            const Narrow* blocks = rows.narrow(tile.first) + unit;
            const std::byte* from = tile.weights + unit / units_stored * known.stored_bytes;
            NarrowUnit<V> weights;
            fetcher.fetch();
            Type::template unpack<V>(from, tile.row_bytes, unit % units_stored, weights);
            for (std::size_t row = 0; row < count; ++row) {
                F& lane = accumulators.lanes[row][unit % 8];
                lane = V::add(lane, term_of<Type>(weights, blocks[row * rows.units()]));
            }
        }
        accumulators.store(tile, out, stride);
    }

    template <class Type>
    static F term_of(const NarrowUnit<V>& weights, const Narrow& row) {
        const SameInAll<V> integers{row.q};
        const F row_scale = V::all(row.scale);
        if constexpr (Type::kMinimums == NarrowMinimums::upper_half) {
            return halves_term<V, Type>(weights, integers, SameInAll<V>{row.q + 16}, row.low_sum, row.high_sum,
                                        row_scale);
        } else {
            return narrow_term<V, Type>(weights, integers, V::all(row.low_sum + row.high_sum), row_scale);
        }
    }
};

}  // namespace kvasir::portable
