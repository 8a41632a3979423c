// Cutting non-zeros by the group in which their source arrives; group 0 is what we hold.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

// Members of the set, up to `end` from those of the run before, that are in one group at places
// that follow one another.
struct Run {
    int64_t end;    // one past the last member
    int64_t shift;  // from a member's number to its place, in group 0 from the node's
    int32_t group;
};

// Which group a source is in and at which place there.
//
// Either there are runs of members; or a table has, for each member, its slot, or -1 - row for a
// row of ours.
struct Places {
    const uint64_t* lines;  // the set of sources, see node_set.hpp
    int64_t nodes, members, rounds;
    // runs
    const Run* runs;
    const int32_t* first;  // [(members >> coarse) + 1] lowest run with any of these members
    int coarse;
    // table, instead
    const int32_t* table32;
    const int64_t* table64;
    int64_t group_rows;
};

template <typename C>
struct CutInput {
    const int64_t* indptr;
    const C* cols;
    const float* weights;  // or null
    Places places;
};

// Rows of a panel: the lowest bits of a row's number say which it is of them.
constexpr int kPanelBits = 16;

// Positions count from the arrays' starts; a group's rows and run ends follow one another.
template <typename C>
struct CutOutput {
    C* indices;
    float* weights;       // or null
    int32_t* positions32; // one of these two, or neither
    int64_t* positions64;
    uint16_t* low_rows;   // of each non-zero of groups 1 and up; null: rows and starts, instead
    int64_t* panels;      // [panels, groups] first non-zero of each, with low_rows
    int32_t* rows;        // of groups 1 and up
    int32_t* starts32;    // one of these two: [rows + 1] run starts of group 1 and up, each
    int64_t* starts64;    // group's from 0
    int32_t* local32;     // one of these two: [rows + 1] run ends of group 0
    int64_t* local64;
    const int64_t* begins;  // [groups] first non-zero of each
};

// Counts the non-zeros and touched rows of each group; `seen` [groups] must hold -1. False: a
// column that is no source.
EMBERTIDE_KERNEL(bool, cut_count32, const CutInput<int32_t>& in, int64_t first, int64_t last,
                 int64_t* counts, int64_t* touched, int64_t* seen)
EMBERTIDE_KERNEL(bool, cut_count64, const CutInput<int64_t>& in, int64_t first, int64_t last,
                 int64_t* counts, int64_t* touched, int64_t* seen)

// Writes them from `at` and `row_at` [groups] on, which advance.
EMBERTIDE_KERNEL(void, cut_fill32, const CutInput<int32_t>& in, const CutOutput<int32_t>& out,
                 int64_t first, int64_t last, int64_t* at, int64_t* row_at, int64_t* seen)
EMBERTIDE_KERNEL(void, cut_fill64, const CutInput<int64_t>& in, const CutOutput<int64_t>& out,
                 int64_t first, int64_t last, int64_t* at, int64_t* row_at, int64_t* seen)

}  // namespace embertide
