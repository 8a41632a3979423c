#include "spmm.hpp"

#include "lanes.hpp"
#include "prefetch.hpp"
#include "wide.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

inline int64_t row_start(const Gather& g, int64_t row) {
    return g.wide_indptr ? static_cast<const int64_t*>(g.indptr)[row]
                         : static_cast<const int32_t*>(g.indptr)[row];
}

// Factors of a row, of what was reduced and of what is stored, and what is added between.
struct Ends {
    float first = 1.0f, last = 1.0f;
    const float* added = nullptr;
};

inline Ends ends_of(const Gather& g, const Epilogue& last, int64_t out) {
    return {g.target_scale ? g.target_scale[out] : 1.0f,
            last.row_scale ? last.row_scale[out] : 1.0f,
            last.added ? last.added + out * last.added_stride : nullptr};
}

// Columns [0, lanes * vectors) of non-zeros [begin, end), in registers.
template <int lanes, int vectors, bool maximum, typename Index, typename Value>
inline void reduce(const Gather& g, int64_t column, int64_t begin, int64_t end,
                   Vec<lanes> (&sums)[vectors]) {
    const Index* index = static_cast<const Index*>(g.indices);
    const Value* x = static_cast<const Value*>(g.x.data) + column;
    const float *weights = g.weights, *scale = g.source_scale;
    const int64_t stride = g.x_stride, nnz = g.nnz;
    const int64_t near = kAsksTwice ? nnz : 0;
    for (int64_t e = begin; e < end; ++e) {
        if (e + kFar < nnz) {
            const Index far = index[e + kFar];
            prefetch_far(x + far * stride, lanes * vectors);
            if (scale) __builtin_prefetch(scale + far);
        }
        if (e + kNear < near) prefetch_near(x + index[e + kNear] * stride, lanes * vectors);
        const Value* row = x + index[e] * stride;
        float factor = weights ? weights[e] : 1.0f;
        if (scale) factor *= scale[index[e]];
        const Vec<lanes> f = splat<lanes>(factor);
        for (int v = 0; v < vectors; ++v) {
            const Vec<lanes> value = load<lanes>(row + v * lanes);
            if constexpr (maximum)
                sums[v] = larger<lanes>(f * value, sums[v]);
            else
                sums[v] += f * value;
        }
    }
}

template <int lanes>
inline void finish(const Gather& g, const Epilogue& last, int64_t column, Ends ends,
                   Vec<lanes> value, float* to) {
    value *= splat<lanes>(ends.first);
    if (last.accumulate) {
        const Vec<lanes> there = load<lanes>(to + column);
        value = g.maximum ? larger<lanes>(value, there) : value + there;
    }
    if (ends.added) value += splat<lanes>(last.share) * load<lanes>(ends.added + column);
    if (last.bias) value += load<lanes>(last.bias + column);
    finished<lanes>(to + column, activate<lanes>(value, last) * splat<lanes>(ends.last), last);
}

template <int lanes, int vectors, bool maximum, typename Index, typename Value>
inline void reduce_columns(const Gather& g, const Epilogue& last, int64_t column, int64_t begin,
                           int64_t end, Ends ends, float* to) {
    const float start = !maximum ? 0.0f : begin == end ? g.empty : -__builtin_inff();
    Vec<lanes> sums[vectors];
    for (int v = 0; v < vectors; ++v) sums[v] = splat<lanes>(start);
    reduce<lanes, vectors, maximum, Index, Value>(g, column, begin, end, sums);
    for (int v = 0; v < vectors; ++v)
        finish<lanes>(g, last, column + v * lanes, ends, sums[v], to);
}

// As reduce_columns, for a sum of more than kRun non-zeros: in float64, two runs at a time.
template <int lanes, int vectors, typename Index, typename Value>
void sum_columns(const Gather& g, const Epilogue& last, int64_t column, int64_t begin,
                        int64_t end, Ends ends, float* to) {
    const Index* index = static_cast<const Index*>(g.indices);
    const Value* x = static_cast<const Value*>(g.x.data) + column;
    const int64_t stride = g.x_stride, final = g.nnz - 1;
    alignas(64) double total[lanes * vectors];
    alignas(64) float earlier[lanes * vectors];
    float ones[kRun], products[kRun];
    for (float& one : ones) one = 1.0f;
    for (int v = 0; v < vectors; ++v) set_to<lanes>(total + v * lanes, Vec<lanes>{});
    bool second = false;
    for (int64_t at = begin; at < end; at += kRun, second = !second) {
        const int64_t count = end - at < kRun ? end - at : kRun;
        const float* factors = g.weights ? g.weights + at : ones;
        if (g.source_scale) {
            for (int64_t i = 0; i < count; ++i) {
                const int64_t far = at + i + kFar;
                __builtin_prefetch(g.source_scale + index[far < final ? far : final]);
                products[i] = factors[i] * g.source_scale[index[at + i]];
            }
            factors = products;
        }
        Vec<lanes> sums[vectors];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) sums[v] = Vec<lanes>{};
        for (int64_t i = 0; i < count; ++i) {
            const int64_t e = at + i, far = e + kFar < final ? e + kFar : final;
            prefetch_far(x + index[far] * stride, lanes * vectors);
            if (kAsksTwice) {
                const int64_t near = e + kNear < final ? e + kNear : final;
                prefetch_near(x + index[near] * stride, lanes * vectors);
            }
            const Value* row = x + index[e] * stride;
            const Vec<lanes> f = splat<lanes>(factors[i]);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) sums[v] += f * load<lanes>(row + v * lanes);
        }
        if (second)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) sums[v] += load<lanes>(earlier + v * lanes);
        if (!second && at + kRun < end)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) store<lanes>(earlier + v * lanes, sums[v]);
        else
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) add_to<lanes>(total + v * lanes, sums[v]);
    }
    for (int v = 0; v < vectors; ++v)
        finish<lanes>(g, last, column + v * lanes, ends,
                      rounded<lanes, Vec<lanes>>(total + v * lanes), to);
}

template <int lanes, int vectors, bool maximum, bool many, typename Index, typename Value>
inline void make_columns(const Gather& g, const Epilogue& last, int64_t column, int64_t begin,
                         int64_t end, Ends ends, float* to) {
    if constexpr (many)
        sum_columns<lanes, vectors, Index, Value>(g, last, column, begin, end, ends, to);
    else
        reduce_columns<lanes, vectors, maximum, Index, Value>(g, last, column, begin, end, ends, to);
}

// All columns of one row: the widest runs of registers first. With `many`, a sum of several runs.
template <bool maximum, bool many, typename Index, typename Value>
void make_row(const Gather& g, const Epilogue& last, int64_t begin, int64_t end, Ends ends,
              float* to) {
    constexpr int lanes = EMBERTIDE_LANES, most = EMBERTIDE_SUM_VECTORS;
    int64_t at = 0;
    const int64_t width = g.width;
    for (; at + lanes * most <= width; at += lanes * most)
        make_columns<lanes, most, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    for (; at + lanes * most / 2 <= width; at += lanes * most / 2)
        make_columns<lanes, most / 2, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    for (; at + lanes * most / 4 <= width; at += lanes * most / 4)
        make_columns<lanes, most / 4, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    for (; at + lanes <= width; at += lanes)
        make_columns<lanes, 1, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    if constexpr (lanes > 8)
        for (; at + 8 <= width; at += 8)
            make_columns<8, 1, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    if constexpr (lanes > 4)
        for (; at + 4 <= width; at += 4)
            make_columns<4, 1, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
    for (; at < width; ++at)
        make_columns<1, 1, maximum, many, Index, Value>(g, last, at, begin, end, ends, to);
}

template <bool maximum, typename Index, typename Value>
void reduce_row(const Gather& g, const Epilogue& last, int64_t begin, int64_t end, Ends ends,
                float* to) {
    if constexpr (!maximum)
        if (end - begin > kRun)
            return make_row<false, true, Index, Value>(g, last, begin, end, ends, to);
    make_row<maximum, false, Index, Value>(g, last, begin, end, ends, to);
}

using ReduceRow = void (*)(const Gather&, const Epilogue&, int64_t, int64_t, Ends, float*);

template <bool maximum, typename Value>
ReduceRow pick_index(const Gather& g) {
    return g.wide_indices ? reduce_row<maximum, int64_t, Value> : reduce_row<maximum, int32_t, Value>;
}

ReduceRow pick(const Gather& g) {
    if (g.maximum) return g.x.narrow ? pick_index<true, Bf16>(g) : pick_index<true, float>(g);
    return g.x.narrow ? pick_index<false, Bf16>(g) : pick_index<false, float>(g);
}

template <typename Index>
void range_of(const Index* values, int64_t count, int64_t* least, int64_t* most) {
    Index low = values[0], high = values[0];
    for (int64_t i = 1; i < count; ++i) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    *least = low;
    *most = high;
}

}  // namespace

void index_range(const void* values, bool wide, int64_t count, int64_t* least, int64_t* most) {
    if (wide)
        range_of(static_cast<const int64_t*>(values), count, least, most);
    else
        range_of(static_cast<const int32_t*>(values), count, least, most);
}

void gather_reduce(const Gather& g, const Epilogue& last, int64_t begin, int64_t end, bool packed,
                   float* to, int64_t stride) {
    const ReduceRow run = pick(g);
    for (int64_t row = begin; row < end; ++row) {
        const int64_t out = g.rows ? g.rows[row] : row;
        if (last.added && row + kOnce < end) {
            const int64_t next = g.rows ? g.rows[row + kOnce] : row + kOnce;
            prefetch_once(last.added + next * last.added_stride, g.width);
        }
        run(g, last, row_start(g, row), row_start(g, row + 1), ends_of(g, last, out),
            to + (packed ? row - begin : out) * stride);
    }
    if (last.past_cache) order_stores();
}

int64_t gather_filled(const Gather& g, int64_t begin, int64_t end, float* to, int64_t stride,
                      int32_t* filled) {
    const ReduceRow run = pick(g);
    const Epilogue none{};
    int64_t count = 0;
    for (int64_t row = begin, start = row_start(g, begin), stop; row < end; ++row, start = stop) {
        stop = row_start(g, row + 1);
        if (start == stop) continue;
        run(g, none, start, stop, ends_of(g, none, row), to + count * stride);
        filled[count++] = static_cast<int32_t>(row - begin);
    }
    return count;
}

void reduce_piece(const Gather& g, int64_t begin, int64_t end, float* to) {
    pick(g)(g, Epilogue{}, begin, end, Ends{}, to);
}

void round_rows(const float* from, int64_t from_stride, int64_t rows, int64_t width, Bf16* to,
                int64_t to_stride) {
    constexpr int lanes = EMBERTIDE_LANES;
    for (int64_t row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
        int64_t at = 0;
        for (; at + lanes <= width; at += lanes) store<lanes>(to + at, load<lanes>(from + at));
        for (; at < width; ++at) store<1>(to + at, from[at]);
    }
}

void join_pieces(const Gather& g, const Epilogue& last, int64_t row, const float* pieces,
                 int64_t count, float* to) {
    const int64_t out = g.rows ? g.rows[row] : row;
    const Ends ends = ends_of(g, last, out);
    for (int64_t column = 0; column < g.width; ++column) {
        double value = pieces[column];
        for (int64_t piece = 1; piece < count; ++piece) {
            const float other = pieces[piece * g.width + column];
            value = g.maximum ? (other > value ? other : value) : value + other;
        }
        finish<1>(g, last, column, ends, static_cast<float>(value), to);
    }
}

}  // namespace embertide::EMBERTIDE_ISA
