// Values of rows that may be held in half the bytes; plain enough for files named *_isa.cpp.
#pragma once

#include <cstdint>

namespace embertide {

// The upper half of a float32: its sign, its exponent and 8 significant bits.
struct Bf16 {
    uint16_t bits;
};

// float32, or bfloat16 where `narrow` says so; strides between rows count values.
struct Values {
    const void* data;
    bool narrow;
};

}  // namespace embertide
