// Cutting non-zeros by the group in which their source arrives; group 0 is what we hold.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

// Which group a source is in and at which place there.
//
// Either the sources' holders own ranges of nodes, and the k-th member of a range that is in the
// set arrives in the round whose cuts enclose k; or a table has, for each member of the set, its
// slot, or -1 - row for a row of ours.
struct Places {
    const uint64_t* lines;  // the set of sources, see pattern.hpp
    int64_t nodes, rounds, group_rows;
    // ranges
    const int64_t* bounds;    // [holders + 1] nodes
    const int32_t* first;     // [nodes >> shift] lowest holder of these nodes
    int shift;
    int64_t own;              // our own range
    const int64_t* base;      // [holders] members before the range
    const int64_t* cuts;      // [holders, rounds + 1] members of the range before each round
    const int64_t* before;    // [holders, rounds] places of the round before this holder's
    const double* per_member; // [holders] rounds / members
    // table, instead
    const int32_t* table32;
    const int64_t* table64;
    int64_t members;
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
