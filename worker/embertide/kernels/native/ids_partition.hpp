// A stable counting sort, the base of sorting ids, grouping them by owner, and the directory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pool.hpp"

namespace embertide {

// Calls place(i, part, to) for i in [0, size): `to` is i's place in the order by part_of(i) in
// [0, parts). Returns the [parts + 1] starts of the parts. At most 64 tasks hold a counter per part.
template <typename PartOf, typename Place>
std::vector<int64_t> partition(int64_t size, int64_t parts, const PartOf& part_of,
                               const Place& place) {
    const int64_t grain = std::max<int64_t>(1 << 14, (size + 63) / 64);
    const int64_t tasks = (size + grain - 1) / grain;
    std::vector<int64_t> counts(tasks * parts), starts(parts + 1);
    parallel_ranges(size, grain, [&](int64_t begin, int64_t end) {
        int64_t* mine = counts.data() + begin / grain * parts;
        for (int64_t i = begin; i < end; ++i) ++mine[part_of(i)];
    });
    int64_t at = 0;
    for (int64_t part = 0; part < parts; ++part) {
        starts[part] = at;
        for (int64_t task = 0; task < tasks; ++task) {
            const int64_t count = counts[task * parts + part];
            counts[task * parts + part] = at;
            at += count;
        }
    }
    starts[parts] = at;
    parallel_ranges(size, grain, [&](int64_t begin, int64_t end) {
        int64_t* mine = counts.data() + begin / grain * parts;
        for (int64_t i = begin; i < end; ++i) {
            const auto part = part_of(i);
            place(i, part, mine[part]++);
        }
    });
    return starts;
}

// Which of `parts` even ranges of hashes a first word lies in; as RowRanges' owners do.
inline int64_t part_of_word(uint64_t word, uint64_t parts) { return ((word >> 32) * parts) >> 32; }

}  // namespace embertide
