#include "node_rank.hpp"

namespace embertide::EMBERTIDE_ISA {

void sum_lines(uint64_t* lines, int64_t begin, int64_t end, int64_t* counts) {
    for (int64_t at = begin; at < end; ++at) {
        uint64_t* line = lines + at * kLineWords;
        uint64_t sums = 0, sum = 0;
        for (int pair = 0; pair < 3; ++pair) {
            sum += __builtin_popcountll(line[1 + 2 * pair]);
            sum += __builtin_popcountll(line[2 + 2 * pair]);
            sums |= sum << kPrefixBits * pair;
        }
        line[0] = sums;
        counts[at] = static_cast<int64_t>(sum) + __builtin_popcountll(line[kBitWords]);
    }
}

int64_t rank_node(const uint64_t* lines, int64_t node) { return rank_of(lines, node); }

}  // namespace embertide::EMBERTIDE_ISA
