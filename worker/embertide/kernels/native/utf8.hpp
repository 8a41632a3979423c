// Whether bytes are text, while they are in the cache: one pass, one thread.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

EMBERTIDE_KERNEL(bool, is_ascii, const uint8_t* text, int64_t count)

// As RFC 3629 has it: no surrogates, and no character in more bytes than it needs.
EMBERTIDE_KERNEL(bool, is_utf8, const uint8_t* text, int64_t count)

}  // namespace embertide
