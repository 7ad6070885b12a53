// Products by tiles as in tiles.h, but two rows of activations at a time: for lanes with a product of two outputs and
// two rows (NeonPairs). Only the sums of products are of pairs; what follows from them is of each row, as there.
#pragma once

#include <memory>

#include "portable/tile_walk.h"
#include "portable/tiles.h"

namespace kvasir::portable {

// The integers of every two rows, eight columns of one and eight of the other in turn. A last row without another is
// its own pair.
template <class V>
class PairedRows {
  public:
    explicit PairedRows(const RowsView& rows)
        : pair_bytes_(2 * rows.columns()), integers_(new std::int8_t[(rows.count() + 1) / 2 * pair_bytes_]) {
        const bool wide = rows.form() == Form::q8x256;
        const std::size_t block = wide ? 256 : 32;
        for (std::size_t first = 0; first < rows.count(); first += 2) {
            const std::size_t second = first + 1 < rows.count() ? first + 1 : first;
            std::int8_t* to = integers_.get() + first / 2 * pair_bytes_;
            for (std::size_t unit = 0; unit < rows.units(); ++unit, to += 2 * block) {
                const std::int8_t* a = wide ? rows.wide(first)[unit].q : rows.narrow(first)[unit].q;
                const std::int8_t* b = wide ? rows.wide(second)[unit].q : rows.narrow(second)[unit].q;
                for (std::size_t column = 0; column < block; column += 16)
                    V::interleave16(a + column, b + column, to + 2 * column);
            }
        }
    }
    std::size_t pair_bytes() const { return pair_bytes_; }
    const std::int8_t* pair(std::size_t index) const { return integers_.get() + index * pair_bytes_; }

  private:
    std::size_t pair_bytes_;
    std::unique_ptr<std::int8_t[]> integers_;
};

template <class V>
class PairTiles {
    using I = typename V::Ints;
    using F = typename V::Floats;
    using Walk = TileWalk<V>;
    static constexpr std::size_t kPairsAtOnce = kRowsAtOnce / 2;

  public:
    template <class Type>
    static void multiply_wide(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                              float* out, std::size_t stride) {
        const PairedRows<V> pairs(rows);
        for_chunks(matrix, rows, begin, end, out, stride, [&](const Tile& tile, F(*lanes)[8]) {
            Sink sink;
            sink.pair_bytes = pairs.pair_bytes();
            sink.count = (tile.count + 1) / 2;
            for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                const std::byte* from = tile.weights + unit * Type::kBytes;
                tile.template fetch<V::kRows * Type::kBytes>(unit * V::kRows * Type::kBytes);
                sink.integers = pairs.pair(tile.first / 2) + unit * 512;
                for (std::size_t pair = 0; pair < sink.count; ++pair)
                    sink.sums[pair] = V::no_sums();
                UnitScales<V> scales;
                Type::template unpack<V>(from, tile.row_bytes, scales, sink);
                for (std::size_t row = 0; row < tile.count; ++row) {
                    const Wide& block = rows.wide(tile.first + row)[unit];
                    const SamePairs<V> sums{Type::kScaleColumns == 16 ? block.sums16 : block.sums32};
                    F& lane = lanes[row][unit % 8];
                    lane = V::add(
                        lane, wide_term<V, Type>(scales, of_row(sink.sums[row / 2], row), sums, V::all(block.scale)));
                }
            }
        });
    }

    // For types whose stored blocks have 32 columns and no halves.
    template <class Type>
    static void multiply_narrow(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                                float* out, std::size_t stride) {
        const PairedRows<V> pairs(rows);
        const std::size_t bytes = traits(Type::kType).stored_bytes;
        for_chunks(matrix, rows, begin, end, out, stride, [&](const Tile& tile, F(*lanes)[8]) {
            for (std::size_t unit = 0; unit < rows.units(); ++unit) {
                const std::byte* from = tile.weights + unit * bytes;
                tile.template fetch<V::kRows * 32>(unit * V::kRows * bytes);
                NarrowUnit<V> weights;
                Type::template unpack<V>(from, tile.row_bytes, 0, weights);
                const std::int8_t* integers = pairs.pair(tile.first / 2) + unit * 64;
                const Narrow* block = rows.narrow(tile.first) + unit;
                F* lane = &lanes[0][unit % 8];
                for (std::size_t row = 0; row < tile.count; row += 2) {
                    const auto sums = V::template products<8>(weights.words, integers);
                    const Narrow* second = row + 1 < tile.count ? block + rows.units() : block;
                    add_term<Type>(lane[0], weights, V::of_first_row(sums), *block);
                    add_term<Type>(lane[8], weights, V::of_second_row(sums), *second);
                    block += 2 * rows.units();
                    lane += 16;
                    integers += pairs.pair_bytes();
                }
            }
        });
    }

  private:
    struct Tile {
        const std::byte* weights;  // of its first output row
        std::size_t row_bytes;
        std::size_t fetch_ahead;
        std::size_t first;  // `count` rows of activations from here on; even
        std::size_t count;

        template <std::size_t kBytes>
        void fetch(std::size_t offset) const {
            Walk::template fetch<kBytes>(weights + fetch_ahead + offset);
        }
    };

    // Multiplies what a wide type unpacks with the unit of every pair.
    struct Sink {
        using Vector = V;
        const std::int8_t* integers;  // of the first pair
        std::size_t pair_bytes;
        std::size_t count;
        typename V::Sums sums[kPairsAtOnce];

        template <int kMax, int kWords>
        void block(int column, const I* words, I scale) {
            const auto scales = V::spread(scale);
            const std::int8_t* from = integers + 2 * column;
            for (std::size_t pair = 0; pair < count; ++pair, from += pair_bytes)
                sums[pair] = V::add_scaled(sums[pair], V::template products<kWords>(words, from), scales);
        }
    };

    static I of_row(const typename V::Sums& sums, std::size_t row) {
        return row % 2 == 0 ? V::of_first_row(sums) : V::of_second_row(sums);
    }

    // tiles.h's narrow_term of a product that is there already.
    template <class Type>
    static void add_term(F& lane, const NarrowUnit<V>& unit, I sum, const Narrow& row) {
        constexpr int kOffset = Type::template kOffset<V>;
        const I total = V::all(row.low_sum + row.high_sum);
        const F row_scale = V::all(row.scale);
        if constexpr (kOffset != 0) sum = V::subtract(sum, V::times(total, V::all(kOffset)));
        F term = V::times(V::convert(sum), V::times(unit.scale, row_scale));
        if constexpr (Type::kMinimums == NarrowMinimums::minus_sum)
            term = V::add(term, V::times(V::convert(total), V::times(unit.minimum_scale, row_scale)));
        lane = V::add(lane, term);
    }

    // compute(tile, lanes of its rows) for every tile and every kRowsAtOnce rows.
    template <class Compute>
    static void for_chunks(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                           std::size_t stride, Compute compute) {
        Walk::for_tiles(
            matrix, begin, end,
            [&](const std::byte* weights, std::size_t row_bytes, std::size_t fetch_ahead, std::size_t output) {
                for (std::size_t first = 0; first < rows.count(); first += kRowsAtOnce) {
                    const std::size_t left = rows.count() - first;
                    const Tile tile{weights, row_bytes, first == 0 ? fetch_ahead : 0, first,
                                    left < kRowsAtOnce ? left : kRowsAtOnce};
                    F lanes[kRowsAtOnce][8];
                    for (std::size_t row = 0; row < tile.count; ++row)
                        Walk::clear(lanes[row]);
                    compute(tile, lanes);
                    for (std::size_t row = 0; row < tile.count; ++row)
                        Walk::store(lanes[row], out + (first + row) * stride + output);
                }
            });
    }
};

}  // namespace kvasir::portable
