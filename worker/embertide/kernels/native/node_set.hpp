// A set of node ids as bits in lines of 64 bytes, of which one answers whether a node is in the
// set, and which member it is: a word of sums, then 448 bits.
//
// The first word has, from its lowest bit, the line's members before its third, fifth and seventh
// word of bits, then the members before the line.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

constexpr int64_t kLineWords = 8, kBitWords = 7, kLineBits = 448;
constexpr int kPrefixBits = 9, kBaseShift = 3 * kPrefixBits;
constexpr uint64_t kPrefixMask = (1 << kPrefixBits) - 1;
constexpr int64_t kMostMembers = int64_t{1} << (64 - kBaseShift);

// Writes the sums of lines [begin, end) as if nothing was before them; counts[i] becomes the
// members of line i.
EMBERTIDE_KERNEL(void, sum_lines, uint64_t* lines, int64_t begin, int64_t end, int64_t* counts)

// Members below `node`.
EMBERTIDE_KERNEL(int64_t, rank_node, const uint64_t* lines, int64_t node)

}  // namespace embertide
