#include "rows.hpp"

#include "prefetch.hpp"

namespace embertide::EMBERTIDE_ISA {
void gather_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                 int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kFar < end)
            prefetch_far(reinterpret_cast<const float*>(from + index[i + kFar] * from_stride),
                         bytes / 4);
        __builtin_memcpy(to + i * to_stride, from + index[i] * from_stride, bytes);
    }
}

void gather_scaled_rows(const float* from, int64_t from_stride, const float* scale,
                        const int64_t* index, int64_t begin, int64_t end, float* to,
                        int64_t to_stride, int64_t width) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kFar < end) prefetch_far(from + index[i + kFar] * from_stride, width);
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
