// A set of node ids as bits in lines of 64 bytes: the number of members before the line, then
// 448 bits. One cache line answers whether a node is in the set, and which member it is.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

constexpr int64_t kLineWords = 8, kLineBits = 448;

// Sets counts[i] to the members in line i, for lines [begin, end).
EMBERTIDE_KERNEL(void, count_lines, const uint64_t* lines, int64_t begin, int64_t end,
                 int64_t* counts)

// Members below `node`.
EMBERTIDE_KERNEL(int64_t, rank_node, const uint64_t* lines, int64_t node)

}  // namespace embertide
