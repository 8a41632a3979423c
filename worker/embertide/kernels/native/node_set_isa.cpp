#include "node_set.hpp"

namespace embertide::EMBERTIDE_ISA {

void count_lines(const uint64_t* lines, int64_t begin, int64_t end, int64_t* counts) {
    for (int64_t line = begin; line < end; ++line) {
        int64_t sum = 0;
        for (int64_t word = 1; word < kLineWords; ++word)
            sum += __builtin_popcountll(lines[line * kLineWords + word]);
        counts[line] = sum;
    }
}

int64_t rank_node(const uint64_t* lines, int64_t node) {
    const uint64_t word = static_cast<uint64_t>(node) / 64, in_line = word % 7;
    const uint64_t* line = lines + word / 7 * kLineWords;
    int64_t rank = static_cast<int64_t>(line[0]);
    for (uint64_t i = 0; i < in_line; ++i) rank += __builtin_popcountll(line[1 + i]);
    const uint64_t below = (uint64_t{1} << (node & 63)) - 1;
    return rank + __builtin_popcountll(line[1 + in_line] & below);
}

}  // namespace embertide::EMBERTIDE_ISA
