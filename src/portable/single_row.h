// Products of a single row of activations, as the tiles of tiles.h have them but with nothing that only several rows
// need: one sum in a register, no loop over rows, and the next tile fetched in a fixed stride.
#pragma once

#include "portable/tiles.h"

namespace kvasir::portable {

template <class V>
class SingleRow {
    using I = typename V::Ints;
    using F = typename V::Floats;

  public:
    // For a type of unpack.h. The range has V::kRows output rows or more, `rows` one row.
    template <class Type>
    static void multiply_wide(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                              float* out, std::size_t) {
        for_tiles(matrix, begin, end,
                  [&](const std::byte* weights, std::size_t row_bytes, std::size_t fetch_ahead, std::size_t output) {
                      F lanes[8];
                      clear(lanes);
                      for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                          const std::byte* from = weights + unit * Type::kBytes;
                          fetch<V::kRows * Type::kBytes>(weights + fetch_ahead + unit * V::kRows * Type::kBytes);
                          const Wide& block = rows.wide(0)[unit];
                          Sink sink{block.q, V::zero()};
                          UnitScales<V> scales;
                          Type::template unpack<V>(from, row_bytes, scales, sink);
                          const SamePairs<V> sums{Type::kScaleColumns == 16 ? block.sums16 : block.sums32};
                          F& lane = lanes[unit % 8];
                          lane = V::add(lane, wide_term<V, Type>(scales, sink.sum, sums, V::all(block.scale)));
                      }
                      store(lanes, out + output);
                  });
    }

    // For a type of unpack_narrow.h whose stored blocks have 32 columns.
    template <class Type>
    static void multiply_narrow(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                                float* out, std::size_t) {
        const std::size_t bytes = traits(Type::kType).stored_bytes;
        for_tiles(matrix, begin, end,
                  [&](const std::byte* weights, std::size_t row_bytes, std::size_t fetch_ahead, std::size_t output) {
                      F lanes[8];
                      clear(lanes);
                      const Narrow* block = rows.narrow(0);
                      for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                          const std::byte* from = weights + unit * bytes;
                          fetch<V::kRows * 32>(weights + fetch_ahead + unit * V::kRows * bytes);
                          NarrowUnit<V> values;
                          Type::template unpack<V>(from, row_bytes, 0, values);
                          F& lane = lanes[unit % 8];
                          lane = V::add(lane, narrow_term<V, Type>(values, SameInAll<V>{block->q},
                                                                   V::all(block->low_sum + block->high_sum),
                                                                   V::all(block->scale)));
                          ++block;
                      }
                      store(lanes, out + output);
                  });
    }

  private:
    struct Sink {
        using Vector = V;
        const std::int8_t* q;
        I sum;

        template <int kMax, int kWords>
        void block(int column, const I* words, I scale) {
            sum = V::template add_scaled<kMax, kWords>(sum, words, SameInAll<V>{q + column}, scale);
        }
    };

    // The last tile is moved back to end with the range.
    template <class Compute>
    static void for_tiles(const Matrix& matrix, std::size_t begin, std::size_t end, Compute compute) {
        constexpr std::size_t kRows = V::kRows;
        const std::size_t row_bytes = weight_row_bytes(matrix.type, matrix.columns);
        for (std::size_t output = begin; output < end; output += kRows) {
            const std::size_t start = output + kRows > end ? end - kRows : output;
            // After the last there is nothing to fetch: what is there already costs nothing.
            const std::size_t fetch_ahead = start + kRows < end ? kRows * row_bytes : 0;
            compute(matrix.data + start * row_bytes, row_bytes, fetch_ahead, start);
        }
    }

    // Never faults, so it may go beyond the end.
    template <std::size_t kBytes>
    static void fetch(const std::byte* from) {
        for (std::size_t at = 0; at < kBytes; at += 64)
            __builtin_prefetch(from + at, 0, 2);
    }

    static void clear(F (&lanes)[8]) {
        for (F& lane : lanes)
            lane = V::all(0.0F);
    }
    static void store(const F (&l)[8], float* out) {
        const F even = V::add(V::add(l[0], l[4]), V::add(l[2], l[6]));
        const F odd = V::add(V::add(l[1], l[5]), V::add(l[3], l[7]));
        V::store_canonical(out, V::add(even, odd));
    }
};

// A kernel for any number of rows: Many's tiles, and for a single row Single's way. The latter has no types that look
// at single words of the weights: no Q5_0, Q5_1, NVFP4.
template <class Many, class Single, class Type>
void multiply_wide(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end, float* out,
                   std::size_t stride) {
    const bool single = rows.count() == 1;
    constexpr Multiply kSingle = SingleRow<Single>::template multiply_wide<Type>;
    constexpr Multiply kMany = Tiles<Many>::template multiply_wide<Type>;
    (single ? kSingle : kMany)(matrix, rows, begin, end, out, stride);
}
template <class Many, class Single, class Type>
void multiply_narrow(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end, float* out,
                     std::size_t stride) {
    const bool single = rows.count() == 1;
    constexpr Multiply kSingle = SingleRow<Single>::template multiply_narrow<Type>;
    constexpr Multiply kMany = Tiles<Many>::template multiply_narrow<Type>;
    (single ? kSingle : kMany)(matrix, rows, begin, end, out, stride);
}

}  // namespace kvasir::portable
