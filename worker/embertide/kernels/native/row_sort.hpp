// Sorting the columns of short rows where they are.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

constexpr int64_t kShortRow = 16;  // columns, which fit one register

// Sorts each row of at most kShortRow columns; the others stay as they are. The first row begins
// at `begin` of `cols`, and each ends where the next one begins.
EMBERTIDE_KERNEL(void, sort_short_rows, int32_t* cols, int64_t begin, const int64_t* ends,
                 int64_t rows)

}  // namespace embertide
