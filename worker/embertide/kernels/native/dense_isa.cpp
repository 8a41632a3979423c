// The product of rows with a packed weight. A panel holds 2 vectors of columns for all k, so that a
// tile of rows x 2 vectors stays in registers and each packed value is read once per tile.
#include "spmm.hpp"

#include "lanes.hpp"
#include "prefetch.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int kLanes = EMBERTIDE_LANES, kPanel = 2 * kLanes, kRows = EMBERTIDE_TILE_ROWS;
using Wide = Vec<kLanes>;

// Asks for what lies ahead, a row every few steps of the innermost loop.
template <typename Index>
struct Asking {
    const Index* next;
    const Index* end;
    const char* x;
    int64_t stride, width, every;  // bytes, but for the last

    inline void step(int64_t at) {
        if (next < end && at % every == 0) prefetch_far(x + *next++ * stride, width);
    }
};
struct Silent {
    inline void step(int64_t) {}
};

// Rows of a result, and which of them a product's rows go to: all in order where `to` is null.
struct Rows {
    float* out;
    int64_t stride;
    const int32_t* to;

    inline int64_t number(int64_t row) const { return to ? to[row] : row; }
};

// One tile: `rows` <= kRows rows of x from number `at` on, with the panel; only `columns` <= kPanel of
// it are stored.
template <typename Meanwhile>
inline void tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, const float* panel,
                 int64_t first, int64_t columns, const Rows& out, int64_t at, const Epilogue& last,
                 Meanwhile& meanwhile) {
    const float* from[kRows];
    // Rows beyond the end repeat the last one and are not stored.
    for (int r = 0; r < kRows; ++r) from[r] = x + (r < rows ? r : rows - 1) * x_stride;
    Wide low[kRows] = {}, high[kRows] = {};
    for (int64_t step = 0; step < k; ++step) {
        meanwhile.step(step);
        const Wide a = load<kLanes>(panel + step * kPanel);
        const Wide b = load<kLanes>(panel + step * kPanel + kLanes);
        for (int r = 0; r < kRows; ++r) {
            const Wide f = splat<kLanes>(from[r][step]);
            low[r] += f * a;
            high[r] += f * b;
        }
    }
    for (int r = 0; r < kRows; ++r) {
        if (r >= rows) break;
        float values[kPanel];
        const int64_t row = out.number(at + r);
        float* to = out.out + row * out.stride + first;
        const float factor = last.row_scale ? last.row_scale[row] : 1.0f;
        if (columns == kPanel) {
            for (int half = 0; half < 2; ++half) {
                Wide value = half ? high[r] : low[r];
                const int64_t c = half * kLanes;
                if (last.accumulate) value += load<kLanes>(to + c);
                if (last.bias) value += load<kLanes>(last.bias + first + c);
                finished<kLanes>(to + c, activate<kLanes>(value, last) * splat<kLanes>(factor), last);
            }
            continue;
        }
        store<kLanes>(values, low[r]);
        store<kLanes>(values + kLanes, high[r]);
        for (int64_t c = 0; c < columns; ++c) {
            float value = values[c];
            if (last.accumulate) value += to[c];
            if (last.bias) value += last.bias[first + c];
            to[c] = activate<1>(value, last) * factor;
        }
    }
}

struct Tiles {
    const float* x;
    int64_t x_stride, rows, k;
    const float* packed;
    int64_t n;
    Rows out;
};

template <typename Meanwhile>
void run(const Tiles& t, const Epilogue& last, Meanwhile& meanwhile) {
    const float* panel = t.packed;
    for (int64_t first = 0; first < t.n; first += kPanel, panel += kPanel * t.k) {
        const int64_t columns = t.n - first < kPanel ? t.n - first : kPanel;
        for (int64_t row = 0; row < t.rows; row += kRows)
            tile(t.x + row * t.x_stride, t.x_stride, t.rows - row < kRows ? t.rows - row : kRows,
                 t.k, panel, first, columns, t.out, row, last, meanwhile);
    }
}

template <typename Index>
void ask_meanwhile(const Tiles& t, const Epilogue& last, Ahead& ahead) {
    const Gather& g = *ahead.of;
    const Index* indices = static_cast<const Index*>(g.indices);
    const int64_t steps = (t.rows + kRows - 1) / kRows * ((t.n + kPanel - 1) / kPanel) * t.k;
    const int64_t count = ahead.end - ahead.next;
    const int64_t every = count > 0 && steps > count ? steps / count : 1;
    const int64_t value = g.x.narrow ? sizeof(Bf16) : sizeof(float);
    Asking<Index> asking{indices + ahead.next, indices + ahead.end,
                         static_cast<const char*>(g.x.data), g.x_stride * value, g.width * value,
                         every};
    run(t, last, asking);
    ahead.next = asking.next - indices;
}

// Columns of a row whose product is zero.
template <int lanes>
inline void finish_zero(const Epilogue& last, int64_t column, float factor, float* to) {
    Vec<lanes> value = last.accumulate ? load<lanes>(to + column) : splat<lanes>(0.0f);
    if (last.bias) value += load<lanes>(last.bias + column);
    finished<lanes>(to + column, activate<lanes>(value, last) * splat<lanes>(factor), last);
}

}  // namespace

int64_t packed_floats(int64_t n, int64_t k) { return (n + kPanel - 1) / kPanel * kPanel * k; }

void pack_weight(const float* weight, int64_t n, int64_t k, float* packed) {
    for (int64_t first = 0; first < n; first += kPanel)
        for (int64_t at = 0; at < k; ++at)
            for (int64_t c = first; c < first + kPanel; ++c)
                *packed++ = c < n ? weight[c * k + at] : 0.0f;
}

void dense_rows(const float* x, int64_t x_stride, int64_t rows, int64_t k, const float* packed,
                int64_t n, float* out, int64_t out_stride, const int32_t* to, const Epilogue& last,
                Ahead* ahead) {
    const Tiles tiles{x, x_stride, rows, k, packed, n, {out, out_stride, to}};
    if (!ahead) {
        Silent silent;
        run(tiles, last, silent);
    } else if (ahead->of->wide_indices) {
        ask_meanwhile<int64_t>(tiles, last, *ahead);
    } else {
        ask_meanwhile<int32_t>(tiles, last, *ahead);
    }
    if (last.past_cache) order_stores();
}

void finish_empty(int64_t n, float* out, int64_t out_stride, int64_t rows, const int32_t* filled,
                  int64_t count, const Epilogue& last) {
    const bool stays = last.accumulate && !last.bias && last.activation == Activation::none;
    if (stays && !last.row_scale) return;
    const int32_t* const stop = filled + count;
    for (int64_t row = 0; row < rows; ++row) {
        if (filled < stop && *filled == row) {
            ++filled;
            continue;
        }
        float* to = out + row * out_stride;
        const float factor = last.row_scale ? last.row_scale[row] : 1.0f;
        int64_t column = 0;
        for (; column + kLanes <= n; column += kLanes) finish_zero<kLanes>(last, column, factor, to);
        for (; column < n; ++column) finish_zero<1>(last, column, factor, to);
    }
    if (last.past_cache) order_stores();
}

}  // namespace embertide::EMBERTIDE_ISA
