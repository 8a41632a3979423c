// Unsigned numbers of seven bits a byte, the lowest first; the highest bit says that more follow.
#pragma once

#include <cstdint>

namespace embertide {

// Reads one of at most `most` bytes and goes on to its end; false where it is not whole or longer.
inline bool read_varint(const uint8_t*& at, const uint8_t* end, int most, uint64_t& value) {
    value = 0;
    for (int i = 0; i < most && at < end; ++i) {
        const uint8_t next = *at++;
        value |= uint64_t{next & 0x7fu} << (7 * i);
        if (!(next & 0x80)) return true;
    }
    return false;
}

}  // namespace embertide
