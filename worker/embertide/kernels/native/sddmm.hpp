// Scores of non-zeros from the features of both ends, and the softmax over a row's scores.
#pragma once

#include "attention.hpp"

namespace embertide {

// Strides count values.
struct PairScores {
    int64_t nonzeros;
    Numbers rows, indptr, indices, edges;
    Values key;
    const float *query, *vector;  // vector: GATv2's, null for dot products
    int64_t key_stride, query_stride, heads, per_head;
    float slope, scale;
    float* out;  // [positions, heads]
};

// Of non-zeros [begin, end) of one row of the block.
EMBERTIDE_KERNEL(void, score_pairs, const PairScores& p, int64_t row, int64_t begin, int64_t end)
// out[i, h] = the dot product of head h of row i of x [rows, heads * per_head] with its vector.
EMBERTIDE_KERNEL(void, dot_heads, const float* x, int64_t stride, int64_t rows,
                 const float* vector, int64_t heads, int64_t per_head, float* out)
// Maximum and sum of exp(score - maximum) of scores [count, heads], per head.
EMBERTIDE_KERNEL(void, measure_scores, const float* scores, int64_t count, int64_t heads,
                 float* top, double* total)
// Joins a second run's maximum and sum with the first's.
EMBERTIDE_KERNEL(void, join_measures, float* top, double* total, const float* other_top,
                 const double* other_total, int64_t heads)
// exp(score - top) / total, in place.
EMBERTIDE_KERNEL(void, divide_scores, float* scores, int64_t count, int64_t heads,
                 const float* top, const double* total)

}  // namespace embertide
