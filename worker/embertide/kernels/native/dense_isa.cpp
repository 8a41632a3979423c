// The product of rows with a packed weight. A panel holds 2 vectors of columns for all k, so that a
// tile of rows x 2 vectors stays in registers and each packed value is read once per tile.
#include "spmm.hpp"

#include "lanes.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int kLanes = EMBERTIDE_LANES, kPanel = 2 * kLanes, kRows = EMBERTIDE_TILE_ROWS;
using Wide = Vec<kLanes>;

// One tile: `rows` <= kRows rows of x with the panel; only `columns` <= kPanel of it are stored.
inline void tile(const float* x, int64_t x_stride, int64_t rows, int64_t k, const float* panel,
                 int64_t first, int64_t columns, float* out, int64_t out_stride,
                 const Epilogue& last) {
    const float* from[kRows];
    // Rows beyond the end repeat the last one and are not stored.
    for (int r = 0; r < kRows; ++r) from[r] = x + (r < rows ? r : rows - 1) * x_stride;
    Wide low[kRows] = {}, high[kRows] = {};
    for (int64_t at = 0; at < k; ++at) {
        const Wide a = load<kLanes>(panel + at * kPanel);
        const Wide b = load<kLanes>(panel + at * kPanel + kLanes);
        for (int r = 0; r < kRows; ++r) {
            const Wide f = splat<kLanes>(from[r][at]);
            low[r] += f * a;
            high[r] += f * b;
        }
    }
    for (int r = 0; r < kRows; ++r) {
        if (r >= rows) break;
        float values[kPanel];
        float* to = out + r * out_stride + first;
        if (columns == kPanel) {
            for (int half = 0; half < 2; ++half) {
                Wide value = half ? high[r] : low[r];
                const int64_t at = half * kLanes;
                if (last.accumulate) value += load<kLanes>(to + at);
                if (last.bias) value += load<kLanes>(last.bias + first + at);
                store<kLanes>(to + at, activate<kLanes>(value, last));
            }
            continue;
        }
        store<kLanes>(values, low[r]);
        store<kLanes>(values + kLanes, high[r]);
        for (int64_t c = 0; c < columns; ++c) {
            float value = values[c];
            if (last.accumulate) value += to[c];
            if (last.bias) value += last.bias[first + c];
            to[c] = activate<1>(value, last);
        }
    }
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
                int64_t n, float* out, int64_t out_stride, const Epilogue& last) {
    for (int64_t first = 0; first < n; first += kPanel, packed += kPanel * k) {
        const int64_t columns = n - first < kPanel ? n - first : kPanel;
        for (int64_t row = 0; row < rows; row += kRows)
            tile(x + row * x_stride, x_stride, rows - row < kRows ? rows - row : kRows, k, packed,
                 first, columns, out + row * out_stride, out_stride, last);
    }
}

}  // namespace embertide::EMBERTIDE_ISA
