// Members of a set of nodes below a node; for *_isa.cpp only.
#pragma once

#include "node_set.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

// Without a decision, which would go either way from node to node.
inline int64_t rank_of(const uint64_t* lines, int64_t node) {
    const uint64_t word = static_cast<uint64_t>(node) / 64, in_line = word % kBitWords;
    const uint64_t* line = lines + word / kBitWords * kLineWords;
    const uint64_t below = (uint64_t{1} << (node & 63)) - 1, pair = in_line / 2;
    const uint64_t before_pair = line[0] << kPrefixBits >> kPrefixBits * pair & kPrefixMask;
    const uint64_t *at = line + 1 + in_line, second = -(in_line & 1);
    return static_cast<int64_t>((line[0] >> kBaseShift) + before_pair) +
           __builtin_popcountll(at[-1] & second) + __builtin_popcountll(at[0] & below);
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
