#include "portable/prepared.h"

#include <cstring>

#include "portable/numbers.h"

namespace kvasir::portable {
namespace {

// Place of a group's sum; see Wide.
constexpr std::size_t place(std::size_t group) {
    constexpr std::size_t kSwapped[4] = {0, 2, 1, 3};
    return (group & ~std::size_t{3}) + kSwapped[group & 3];
}

void read_integers(const std::byte* from, std::int8_t* q, std::size_t count) {
    std::memcpy(q, from, count);
    for (std::size_t i = 0; i < count; ++i)
        q[i] = q[i] < -127 ? std::int8_t{-127} : q[i];
}

int sum_of_16(const std::int8_t* q) {
    int sum = 0;
    for (int i = 0; i < 16; ++i)
        sum += q[i];
    return sum;
}

void read_block(const std::byte* from, Wide& block) {
    block.scale = load<float>(from);
    read_integers(from + 4, block.q, 256);
    for (std::size_t pair = 0; pair < 8; ++pair) {
        const int first = sum_of_16(block.q + 32 * pair);
        const int second = sum_of_16(block.q + 32 * pair + 16);
        block.sums16[place(2 * pair)] = static_cast<std::int16_t>(first);
        block.sums16[place(2 * pair + 1)] = static_cast<std::int16_t>(second);
        block.sums32[place(pair)] = static_cast<std::int16_t>(first + second);
    }
}

void read_block(const std::byte* from, Narrow& block) {
    block.scale = load<float>(from);
    read_integers(from + 4, block.q, 32);
    block.low_sum = static_cast<std::int16_t>(sum_of_16(block.q));
    block.high_sum = static_cast<std::int16_t>(sum_of_16(block.q + 16));
}

template <class Block>
std::unique_ptr<Block[]> read_blocks(const std::byte* from, std::size_t count, std::size_t bytes) {
    std::unique_ptr<Block[]> blocks(new Block[count]);
    for (std::size_t i = 0; i < count; ++i)
        read_block(from + i * bytes, blocks[i]);
    return blocks;
}

}  // namespace

PreparedRows::PreparedRows(Form form, std::size_t columns, std::size_t count, const std::byte* rows)
    : form_(form), columns_(columns), count_(count), units_(columns / block_columns(form)) {
    switch (form) {
        case Form::q8x256:
            wide_ = read_blocks<Wide>(rows, count * units_, block_bytes(form));
            break;
        case Form::q8x32:
            narrow_ = read_blocks<Narrow>(rows, count * units_, block_bytes(form));
            break;
        case Form::f32:
            floats_.reset(new float[count * columns]);
            std::memcpy(floats_.get(), rows, count * columns * sizeof(float));
            break;
    }
}

}  // namespace kvasir::portable
