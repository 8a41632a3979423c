#include "sddmm.hpp"

#include "pair_lanes.hpp"
#include "prefetch.hpp"
#include "wide.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

// Stores scores of heads from h on, as far as there are some.
inline void put(float* out, int64_t heads, int64_t h, Four scores) {
    for (int64_t i = 0; i < 4 && h + i < heads; ++i) out[h + i] = scores[i];
}

template <bool kDot, typename Key>
void score_row(const PairScores& p, int64_t row, int64_t begin, int64_t end) {
    const Key* keys = static_cast<const Key*>(p.key.data);
    const int64_t width = p.heads * p.per_head;
    const float* query = p.query + (p.rows.data ? at(p.rows, row) : row) * p.query_stride;
    for (int64_t e = begin; e < end; ++e) {
        if (e + kFar < p.nonzeros)
            prefetch_far(keys + at(p.indices, e + kFar) * p.key_stride, width);
        if (kAsksTwice && e + kNear < p.nonzeros)
            prefetch_near(keys + at(p.indices, e + kNear) * p.key_stride, width);
        const Key* key = keys + at(p.indices, e) * p.key_stride;
        float* out = p.out + (p.edges.data ? at(p.edges, e) : e) * p.heads;
        pair_scores<kDot>(key, query, p.vector, p.heads, p.per_head, p.slope, p.scale,
                          [&](int64_t h, Four scores) { put(out, p.heads, h, scores); });
    }
}

inline int lanes_from(int64_t head, int64_t heads) {
    return static_cast<int>(heads - head < kLanes ? heads - head : kLanes);
}

}  // namespace

void score_pairs(const PairScores& p, int64_t row, int64_t begin, int64_t end) {
    const auto of_floats = p.vector ? score_row<false, float> : score_row<true, float>;
    const auto of_bf16 = p.vector ? score_row<false, Bf16> : score_row<true, Bf16>;
    (p.key.narrow ? of_bf16 : of_floats)(p, row, begin, end);
}

void dot_heads(const float* x, int64_t stride, int64_t rows, const float* vector, int64_t heads,
               int64_t per_head, float* out) {
    for (int64_t row = 0; row < rows; ++row, x += stride, out += heads)
        pair_scores<true>(x, vector, nullptr, heads, per_head, 0.0f, 1.0f,
                          [&](int64_t h, Four scores) { put(out, heads, h, scores); });
}

void measure_scores(const float* scores, int64_t count, int64_t heads, float* top, double* total) {
    for (int64_t h = 0; h < heads; h += kLanes) {
        const int lanes = lanes_from(h, heads);
        Floats most = all(-__builtin_inff());
        for (int64_t i = 0; i < count; ++i)
            most = larger(most, load_some(scores + i * heads + h, lanes));
        alignas(64) double sums[kLanes] = {};
        for (int64_t from = 0; from < count; from += kRun) {
            Floats run{};
            for (int64_t i = from; i < count && i < from + kRun; ++i)
                run += exp_lanes(load_some(scores + i * heads + h, lanes) - most);
            add_to<kLanes>(sums, run);
        }
        store_some(top + h, most, lanes);
        for (int i = 0; i < lanes; ++i) total[h + i] = sums[i];
    }
}

void join_measures(float* top, double* total, const float* other_top, const double* other_total,
                   int64_t heads) {
    for (int64_t h = 0; h < heads; h += kLanes) {
        const int lanes = lanes_from(h, heads);
        const Floats a = load_some(top + h, lanes), b = load_some(other_top + h, lanes);
        const Floats most = larger(a, b), ours = exp_lanes(a - most), theirs = exp_lanes(b - most);
        for (int i = 0; i < lanes; ++i)
            total[h + i] = total[h + i] * ours[i] + other_total[h + i] * theirs[i];
        store_some(top + h, most, lanes);
    }
}

void divide_scores(float* scores, int64_t count, int64_t heads, const float* top,
                   const double* total) {
    for (int64_t h = 0; h < heads; h += kLanes) {
        const int lanes = lanes_from(h, heads);
        const Floats most = load_some(top + h, lanes);
        Floats inverse{};
        for (int i = 0; i < lanes; ++i) inverse[i] = 1.0f / static_cast<float>(total[h + i]);
        for (int64_t i = 0; i < count; ++i) {
            float* at_edge = scores + i * heads + h;
            store_some(at_edge, exp_lanes(load_some(at_edge, lanes) - most) * inverse, lanes);
        }
    }
}

}  // namespace embertide::EMBERTIDE_ISA
