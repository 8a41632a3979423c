// Rows by themselves, and beside those of an earlier version: each is read once.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

// What is known of a row beside the earlier one; see kernels/row_pairs.py.
enum RowState : uint8_t { kMatched = 1, kSame = 2, kEarlierZero = 4 };

// For each row of the earlier version: its state, and of those that are matched the squared distance
// and 1 - cosine.
struct RowMoves {
    uint8_t* states;
    double* squares;
    double* distances;
};

// Counts finite values by the bin that they are in: bin i + 1 is from edges[i] on, of `bins` ascending
// ones; what is less than the first counts in bin 0, and the last bin has no end.
EMBERTIDE_KERNEL(void, count_bins, const double* values, int64_t count, const double* edges,
                 int64_t bins, int64_t* counts)

// Lengths, and hashes of the bits, of rows [begin, end) of `width` values; `factors` has one for each
// two values.
EMBERTIDE_KERNEL(void, look_at_rows, const float* rows, int64_t stride, int64_t width, int64_t begin,
                 int64_t end, const uint64_t* factors, float* norms, uint64_t* prints)

// Compares earlier rows [begin, end) with the rows at their places; a place of -1 is none.
EMBERTIDE_KERNEL(void, compare_rows, const float* rows, int64_t stride, const int64_t* places,
                 const float* earlier, int64_t earlier_stride, int64_t width, int64_t begin,
                 int64_t end, RowMoves out)

}  // namespace embertide
