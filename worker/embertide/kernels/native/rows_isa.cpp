#include "rows.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int64_t kAhead = 8;  // rows; enough to hide a miss at 512 bytes a row

void prefetch(const char* row, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

}  // namespace

void gather_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                 int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kAhead < end) prefetch(from + index[i + kAhead] * from_stride, bytes);
        __builtin_memcpy(to + i * to_stride, from + index[i] * from_stride, bytes);
    }
}

void gather_scaled_rows(const float* from, int64_t from_stride, const float* scale,
                        const int64_t* index, int64_t begin, int64_t end, float* to,
                        int64_t to_stride, int64_t width) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kAhead < end) {
            const int64_t next = index[i + kAhead];
            prefetch(reinterpret_cast<const char*>(from + next * from_stride), 4 * width);
        }
        const float* row = from + index[i] * from_stride;
        const float factor = scale[index[i]];
        float* out = to + i * to_stride;
        for (int64_t k = 0; k < width; ++k) out[k] = factor * row[k];
    }
}

void scatter_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                  int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i)
        __builtin_memcpy(to + index[i] * to_stride, from + i * from_stride, bytes);
}

}  // namespace embertide::EMBERTIDE_ISA
