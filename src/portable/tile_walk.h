// What the kernels that do not go by tiles.h share: the walk over a matrix by tiles of V::kRows output rows, what is
// fetched meanwhile, and the end of section 4.
#pragma once

#include "portable/prepared.h"

namespace kvasir::portable {

template <class V>
struct TileWalk {
    using F = typename V::Floats;

    // compute(weights of a tile's first row, bytes of a row, bytes to what is to be fetched, the tile's first output).
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

}  // namespace kvasir::portable
