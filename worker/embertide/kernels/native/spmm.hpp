// Sums and maxima of source rows over the non-zeros of a sparse matrix, and the dense product that
// may follow each row while it is still in the cache.
#pragma once

#include <cstdint>

#include "bf16.hpp"
#include "isa.hpp"

namespace embertide {

enum class Activation : int { none, relu, leaky_relu, elu };

constexpr int64_t kCacheLine = 64;

// What happens to a row before it is stored:
// out = row_scale * activation(value [+ out] [+ share * added] + bias).
struct Epilogue {
    const float* bias;       // one value per column, or null
    Activation activation;
    float slope;             // of leaky_relu; alpha of elu
    bool accumulate;         // add to (for maxima: keep the larger of) what is there
    const float* row_scale;  // factor of each output row, or null
    const float* added;      // a row for each output row, or null; sums only
    int64_t added_stride;
    float share;             // of what is added
    bool past_cache;         // store past the caches: rows lie at multiples of kCacheLine bytes
};

// The non-zeros and their sources; the same for every row of a call.
struct Gather {
    const void* indptr;
    const void* indices;
    bool wide_indptr, wide_indices;  // int64, else int32
    const int32_t* rows;             // output row of each row, or null: the same number
    const float* weights;            // per non-zero, or null
    const float* source_scale;       // per source row, or null
    const float* target_scale;       // per output row, or null
    Values x;
    int64_t x_stride, width, nnz;
    bool maximum;
    float empty;  // maximum of a row without non-zeros, before the epilogue
};

// Smallest and largest of `count` int32 or int64 values; count is at least 1.
EMBERTIDE_KERNEL(void, index_range, const void* values, bool wide, int64_t count, int64_t* least,
                 int64_t* most)

// Rows [begin, end) of the matrix, reduced; row i goes to `to + (i - begin) * stride` where `packed`
// says so, else to its output row.
EMBERTIDE_KERNEL(void, gather_reduce, const Gather& g, const Epilogue& last, int64_t begin,
                 int64_t end, bool packed, float* to, int64_t stride)

// The rows among [begin, end) that have non-zeros, reduced, side by side at `to`. Their numbers, less
// `begin`, go to `filled`; returns how many there are.
EMBERTIDE_KERNEL(int64_t, gather_filled, const Gather& g, int64_t begin, int64_t end, float* to,
                 int64_t stride, int32_t* filled)

// Non-zeros [begin, end), all of one row, reduced without any epilogue.
EMBERTIDE_KERNEL(void, reduce_piece, const Gather& g, int64_t begin, int64_t end, float* to)

// Joins the pieces of row `row` in order, then as gather_reduce stores it to `to`.
EMBERTIDE_KERNEL(void, join_pieces, const Gather& g, const Epilogue& last, int64_t row,
                 const float* pieces, int64_t count, float* to)

// Floats that a packed weight takes, and packing weight [n, k] (rows of k values) for dense_rows.
EMBERTIDE_KERNEL(int64_t, packed_floats, int64_t n, int64_t k)
EMBERTIDE_KERNEL(void, pack_weight, const float* weight, int64_t n, int64_t k, float* packed)

// out[to[i]] = epilogue(x[i] @ weight.T) for `rows` rows; without `to`, out[i].
EMBERTIDE_KERNEL(void, dense_rows, const float* x, int64_t x_stride, int64_t rows, int64_t k,
                 const float* packed, int64_t n, float* out, int64_t out_stride, const int32_t* to,
                 const Epilogue& last)

// The same for the rows among `rows` that are not among the `count` ascending ones of `filled`: of
// each the product is zero.
EMBERTIDE_KERNEL(void, finish_empty, int64_t n, float* out, int64_t out_stride, int64_t rows,
                 const int32_t* filled, int64_t count, const Epilogue& last)

// Rows of `width` values, rounded to bfloat16; strides count values.
EMBERTIDE_KERNEL(void, round_rows, const float* from, int64_t from_stride, int64_t rows,
                 int64_t width, Bf16* to, int64_t to_stride)

}  // namespace embertide
