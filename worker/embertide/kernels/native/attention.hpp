// Attention over in-edges: scores, softmax and the weighted sum in one pass over a row's non-zeros.
#pragma once

#include <cstdint>

#include "bf16.hpp"
#include "isa.hpp"

namespace embertide {

// int32 or int64 numbers; none where data is null.
struct Numbers {
    const void* data;
    bool wide;
};

// additive: leaky_relu(source[j, h] + target[i, h]); gatv2 and dot: of key j and query i;
// shares: given for each non-zero, taken as they are.
enum class Scoring { additive, gatv2, dot, shares };

// Strides count values. A softmax over groups of non-zeros is carried in `top` and `total`; `out`
// is always normalised by `total`, so that no pass over all rows divides it in the end.
struct Attention {
    Numbers rows, indptr, indices, edges;
    const float* weights;    // [nnz], multiplied after the softmax, or null
    Values x;                // rows of the sources; keys of pairs are of the same type
    int64_t x_stride;
    float* out;
    int64_t out_stride, columns;
    float *top, *total;      // [outputs, heads] maximum and sum so far, or null
    bool fresh;              // nothing has been summed yet: what `out` and the state hold is ignored
    int64_t heads, nonzeros;
    const int32_t* head_of;  // [columns + kPadding] head of each column
    Scoring scoring;
    const void* source;      // scalars or shares, float32; or keys
    const float *target, *vector;  // scalars or queries; GATv2's
    int64_t source_stride, target_stride, per_head;  // columns of a head of keys and queries
    float slope, scale;
};

constexpr int64_t kPadding = 16;  // entries past the last column, as many as a vector may have lanes

// Floats that a thread needs for the sums of a long row, at a cache line: `room` below.
constexpr int64_t room_for(int64_t columns) { return 3 * (columns + kPadding); }

// All non-zeros of the block's rows [first, last).
EMBERTIDE_KERNEL(void, attend_rows, const Attention& a, int64_t first, int64_t last, float* room)
// Non-zeros [begin, end) of one row, as columns sums (not normalised), heads maxima, heads totals.
EMBERTIDE_KERNEL(void, attend_piece, const Attention& a, int64_t row, int64_t begin, int64_t end,
                 float* piece, float* room)
// A row from its pieces, in order.
EMBERTIDE_KERNEL(void, attend_merge, const Attention& a, int64_t row, const float* pieces,
                 int64_t count, float* room)

}  // namespace embertide
