// The product of rows with a packed weight. A panel holds 2 vectors of columns for all k, so that a
// tile of rows x 2 vectors stays in registers and each packed value is read once per tile.
#include "spmm.hpp"

#include "lanes.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int kLanes = EMBERTIDE_LANES, kPanel = 2 * kLanes, kRows = EMBERTIDE_TILE_ROWS;
using Wide = Vec<kLanes>;

// Rows of a result, and which of them a product's rows go to: all in order where `to` is null.
struct Rows {
    float* out;
    int64_t stride;
    const int32_t* to;

    inline int64_t number(int64_t row) const { return to ? to[row] : row; }
};

// One tile: `rows` <= kRows rows of x from number `at` on, with the panel; only `columns` <= kPanel of
// it are stored.
inline void tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, const float* panel,
                 int64_t first, int64_t columns, const Rows& out, int64_t at,
                 const Epilogue& last) {
    const float* from[kRows];
    // Rows beyond the end repeat the last one and are not stored.
    for (int r = 0; r < kRows; ++r) from[r] = x + (r < rows ? r : rows - 1) * x_stride;
    Wide low[kRows] = {}, high[kRows] = {};
    for (int64_t step = 0; step < k; ++step) {
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
                int64_t n, float* out, int64_t out_stride, const int32_t* to, const Epilogue& last) {
    const Rows result{out, out_stride, to};
    for (int64_t first = 0; first < n; first += kPanel, packed += kPanel * k) {
        const int64_t columns = n - first < kPanel ? n - first : kPanel;
        for (int64_t row = 0; row < rows; row += kRows)
            tile(x + row * x_stride, x_stride, rows - row < kRows ? rows - row : kRows, k, packed,
                 first, columns, result, row, last);
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
