// Gathering and scattering rows of values: what exchange buffers are filled from and emptied to.
#pragma once

#include <cstdint>

#include "bf16.hpp"
#include "isa.hpp"

namespace embertide {

// to[i] = from[index[i]] for i in [begin, end), `bytes` each; strides in bytes.
EMBERTIDE_KERNEL(void, gather_rows, const char* from, int64_t from_stride, const int64_t* index,
                 int64_t begin, int64_t end, char* to, int64_t to_stride, int64_t bytes)

// to[i] = scale[index[i]] * from[index[i]] for i in [begin, end), of the values that `from` has;
// strides in values.
EMBERTIDE_KERNEL(void, gather_scaled_rows, Values from, int64_t from_stride, const float* scale,
                 const int64_t* index, int64_t begin, int64_t end, void* to, int64_t to_stride,
                 int64_t width)

// to[index[i]] = from[i] for i in [begin, end), `bytes` each; strides in bytes.
EMBERTIDE_KERNEL(void, scatter_rows, const char* from, int64_t from_stride, const int64_t* index,
                 int64_t begin, int64_t end, char* to, int64_t to_stride, int64_t bytes)

}  // namespace embertide
