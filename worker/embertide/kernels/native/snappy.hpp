// Snappy's raw format: https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include <cstdint>

namespace embertide {

// Bytes after the end of every buffer here that may be read, or written with anything.
constexpr int64_t kSlack = 64;

// Fills `out` with exactly `size` bytes; whether the input is whole and holds as many. Both buffers
// have kSlack bytes more.
bool unpack_snappy(const uint8_t* in, int64_t given, uint8_t* out, int64_t size);

}  // namespace embertide
