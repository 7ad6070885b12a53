// Products of a single row of activations, as the tiles of tiles.h have them but with nothing that only several rows
// need: one sum in a register, no loop over rows, and the next tile fetched in a fixed stride. Of lanes that keep
// weights in an order of their own (load_weights16) it takes no types that look at single words: no Q5_0, Q5_1, NVFP4.
#pragma once

#include "portable/tile_walk.h"
#include "portable/tiles.h"

namespace kvasir::portable {

template <class V>
class SingleRow {
    using I = typename V::Ints;
    using F = typename V::Floats;
    using Walk = TileWalk<V>;

  public:
    // For a type of unpack.h. The range has V::kRows output rows or more, `rows` one row.
    template <class Type>
    static void multiply_wide(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                              float* out, std::size_t) {
        Walk::for_tiles(
            matrix, begin, end,
            [&](const std::byte* weights, std::size_t row_bytes, std::size_t fetch_ahead, std::size_t output) {
                F lanes[8];
                Walk::clear(lanes);
                for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                    const std::byte* from = weights + unit * Type::kBytes;
                    Walk::template fetch<V::kRows * Type::kBytes>(weights + fetch_ahead +
                                                                  unit * V::kRows * Type::kBytes);
                    const Wide& block = rows.wide(0)[unit];
                    Sink sink{block.q, V::zero()};
                    UnitScales<V> scales;
                    Type::template unpack<V>(from, row_bytes, scales, sink);
                    const SamePairs<V> sums{Type::kScaleColumns == 16 ? block.sums16 : block.sums32};
                    F& lane = lanes[unit % 8];
                    lane = V::add(lane, wide_term<V, Type>(scales, sink.sum, sums, V::all(block.scale)));
                }
                Walk::store(lanes, out + output);
            });
    }

    // For a type of unpack_narrow.h whose stored blocks have 32 columns.
    template <class Type>
    static void multiply_narrow(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                                float* out, std::size_t) {
        const std::size_t bytes = traits(Type::kType).stored_bytes;
        Walk::for_tiles(
            matrix, begin, end,
            [&](const std::byte* weights, std::size_t row_bytes, std::size_t fetch_ahead, std::size_t output) {
                F lanes[8];
                Walk::clear(lanes);
                const Narrow* block = rows.narrow(0);
                for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                    const std::byte* from = weights + unit * bytes;
                    Walk::template fetch<V::kRows * 32>(weights + fetch_ahead + unit * V::kRows * bytes);
                    NarrowUnit<V> values;
                    Type::template unpack<V>(from, row_bytes, 0, values);
                    F& lane = lanes[unit % 8];
                    lane = V::add(lane,
                                  narrow_term<V, Type>(values, SameInAll<V>{block->q},
                                                       V::all(block->low_sum + block->high_sum), V::all(block->scale)));
                    ++block;
                }
                Walk::store(lanes, out + output);
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
};

}  // namespace kvasir::portable
