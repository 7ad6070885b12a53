// Products with the units of units_avx.h: one row as a stream, the terms of eight units at once; many rows by eights,
// for which a unit is decoded once.
#pragma once

#include "portable/units_avx.h"

namespace kvasir::portable {

// A type for Stream.
template <class Type>
struct StreamUnits : StreamWide {
    static constexpr std::size_t kBytes = Type::kBytes;

    template <class V>
    struct Row : WideRow<V> {
        const std::int8_t* tables;
        Row(const RowsView& rows, std::size_t units) : WideRow<V>(rows, units), tables(Type::template tables<V>()) {}
    };

    template <class V>
    static void add(const std::byte* from, const Row<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        UnitVectors<V> vectors;
        Type::decode(from, row.tables, vectors);
        batch.sums[i] = vectors.times(row.blocks[unit].q);
        batch.numbers[i] = vectors.scale;
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const Row<V>& row, std::size_t unit) {
        const __m256 factors = _mm256_mul_ps(_mm256_load_ps(batch.numbers), _mm256_loadu_ps(row.scales + unit));
        return _mm256_mul_ps(_mm256_cvtepi32_ps(Across<V>::eight(batch.sums)), factors);
    }
};

template <class V, class Type>
class UnitTiles {
  public:
    static void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                         std::size_t stride) {
        for (std::size_t first = 0; first < rows.count(); first += 8 * kEights) {
            const std::size_t count = rows.count() - first < 8 * kEights ? rows.count() - first : 8 * kEights;
            for (std::size_t output = begin; output < end; ++output)
                one_output(matrix, rows, first, count, output, out + first * stride + output, stride);
        }
    }

  private:
    static constexpr std::size_t kEights = 4;  // of rows, for which a unit is decoded once

    static void one_output(const Matrix& matrix, const RowsView& rows, std::size_t first, std::size_t count,
                           std::size_t output, float* out, std::size_t stride) {
        const std::int8_t* tables = Type::template tables<V>();
        const std::byte* weights = matrix.data + output * rows.units() * Type::kBytes;
        __m256 lanes[kEights][8];  // a vector has a lane of section 4 for eight rows
        for (auto& eight : lanes) {
            for (__m256& lane : eight)
                lane = _mm256_setzero_ps();
        }
        for (std::size_t unit = 0; unit < rows.units(); ++unit) {
            UnitVectors<V> vectors;
            Type::decode(weights + unit * Type::kBytes, tables, vectors);
            for (std::size_t start = 0; start < count; start += 8) {
                __m256& lane = lanes[start / 8][unit % 8];
                const std::size_t some = count - start < 8 ? count - start : 8;
                lane = _mm256_add_ps(lane, terms(vectors, rows, first + start, some, unit));
            }
        }
        for (std::size_t start = 0; start < count; start += 8)
            store(lanes[start / 8], count - start, out + start * stride, stride);
    }

    static __m256 terms(const UnitVectors<V>& vectors, const RowsView& rows, std::size_t first, std::size_t count,
                        std::size_t unit) {
        __m256i sums[8];
        alignas(32) float row_scales[8];
        for (std::size_t i = 0; i < 8; ++i) {
            sums[i] = _mm256_setzero_si256();
            row_scales[i] = 0.0F;
            if (i >= count) continue;
            const Wide& block = rows.wide(first + i)[unit];
            sums[i] = vectors.times(block.q);
            row_scales[i] = block.scale;
        }
        const __m256 factors = _mm256_mul_ps(_mm256_set1_ps(vectors.scale), _mm256_load_ps(row_scales));
        return _mm256_mul_ps(_mm256_cvtepi32_ps(Across<V>::eight(sums)), factors);
    }

    static void store(const __m256* l, std::size_t count, float* out, std::size_t stride) {
        const __m256 even = _mm256_add_ps(_mm256_add_ps(l[0], l[4]), _mm256_add_ps(l[2], l[6]));
        const __m256 odd = _mm256_add_ps(_mm256_add_ps(l[1], l[5]), _mm256_add_ps(l[3], l[7]));
        alignas(32) float y[8];
        _mm256_store_ps(y, _mm256_add_ps(even, odd));
        for (std::size_t i = 0; i < 8 && i < count; ++i)
            out[i * stride] = y[i] == y[i] ? y[i] : __builtin_bit_cast(float, 0x7FC00000U);
    }
};

}  // namespace kvasir::portable
