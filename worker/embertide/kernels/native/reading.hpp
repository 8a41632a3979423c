// What is done to a batch that was just read, while it is in the cache: one pass, one thread.
// Readers have threads of their own, a batch each.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

// to[rows[i]] = from[i] for `width` values each; strides in values. Values are seen as their bits.
// Returns whether all of them are finite.
EMBERTIDE_KERNEL(bool, place_rows, const uint32_t* from, int64_t from_stride, const int64_t* rows,
                 int64_t count, uint32_t* to, int64_t to_stride, int64_t width)

// to[i] = from[i]
EMBERTIDE_KERNEL(void, narrow_ids, const int64_t* from, int64_t count, int32_t* to)

}  // namespace embertide
