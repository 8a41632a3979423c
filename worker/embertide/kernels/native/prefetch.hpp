// Asking for rows before they are needed, for files named *_isa.cpp.
//
// A row is asked for far ahead into the second-level cache, which has many more misses under way at
// a time than the first; on processors that gain by it once more shortly before its use. Measured on
// rows of 512 bytes: 0.6 of the time that one request into the first-level cache takes; on an Intel
// Xeon only if asked for twice, on an AMD EPYC the second request costs a fifth of the time.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int64_t kFar = 32, kNear = 4;  // rows ahead
constexpr int64_t kLine = 64;            // bytes

template <typename Value>
inline void prefetch_far(const Value* row, int64_t values) {
    constexpr int64_t step = kLine / sizeof(Value);
    for (int64_t v = 0; v < values; v += step) __builtin_prefetch(row + v, 0, 2);
}
template <typename Value>
inline void prefetch_near(const Value* row, int64_t values) {
    constexpr int64_t step = kLine / sizeof(Value);
    for (int64_t v = 0; v < values; v += step) __builtin_prefetch(row + v, 0, 3);
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
