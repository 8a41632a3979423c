#include "rows.hpp"

#include "spmm.hpp"

#include "lanes.hpp"
#include "prefetch.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

template <typename Value>
void gather_scaled(const Value* from, int64_t from_stride, const float* scale, const int64_t* index,
                   int64_t begin, int64_t end, Value* to, int64_t to_stride, int64_t width) {
    constexpr int lanes = EMBERTIDE_LANES;
    for (int64_t i = begin; i < end; ++i) {
        if (i + kFar < end) prefetch_far(from + index[i + kFar] * from_stride, width);
        const Value* row = from + index[i] * from_stride;
        const float factor = scale[index[i]];
        Value* out = to + i * to_stride;
        int64_t k = 0;
        for (; k + lanes <= width; k += lanes)
            store<lanes>(out + k, splat<lanes>(factor) * load<lanes>(row + k));
        for (; k < width; ++k) store<1>(out + k, factor * load<1>(row + k));
    }
}

}  // namespace

void gather_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                 int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kFar < end)
            prefetch_far(from + index[i + kFar] * from_stride, bytes);
        __builtin_memcpy(to + i * to_stride, from + index[i] * from_stride, bytes);
    }
}

void gather_scaled_rows(Values from, int64_t from_stride, const float* scale, const int64_t* index,
                        int64_t begin, int64_t end, void* to, int64_t to_stride, int64_t width) {
    if (from.narrow)
        gather_scaled(static_cast<const Bf16*>(from.data), from_stride, scale, index, begin, end,
                      static_cast<Bf16*>(to), to_stride, width);
    else
        gather_scaled(static_cast<const float*>(from.data), from_stride, scale, index, begin, end,
                      static_cast<float*>(to), to_stride, width);
}

void scatter_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                  int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i)
        __builtin_memcpy(to + index[i] * to_stride, from + i * from_stride, bytes);
}

}  // namespace embertide::EMBERTIDE_ISA
