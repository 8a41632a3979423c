#include "snappy.hpp"

#include <cstring>

#include "varint.hpp"

namespace embertide {
namespace {

template <typename T>
T load(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <typename T>
void store(uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

struct Block {
    uint8_t bytes[16];
};

// The bytes from `offset` before `out` on, which may reach into those that are written.
void copy_back(uint8_t* out, uint64_t offset, uint64_t length) {
    const uint8_t* from = out - offset;
    if (length >= 4 && length <= 8 && offset >= length) {
        // Numbers that follow each other repeat a part of the last. What was just written is read
        // at once only where one store holds all of it, so read and write no more than is asked.
        const uint64_t low = load<uint32_t>(from), high = load<uint32_t>(from + length - 4);
        store<uint64_t>(out, low | high << (8 * (length - 4)));
        return;
    }
    if (offset >= 16) {
        for (uint64_t at = 0; at < length; at += 16) store(out + at, load<Block>(from + at));
        return;
    }
    if (offset >= 8) {
        for (uint64_t at = 0; at < length; at += 8) store(out + at, load<uint64_t>(from + at));
        return;
    }
    for (uint64_t at = 0; at < length; ++at) out[at] = from[at];
}

}  // namespace

bool unpack_snappy(const uint8_t* in, int64_t given, uint8_t* out, int64_t size) {
    const uint8_t* const end = in + given;
    uint64_t told = 0;
    if (!read_varint(in, end, 5, told) || told != static_cast<uint64_t>(size)) return false;
    uint8_t* const begin = out;
    uint8_t* const stop = out + size;
    while (in < end) {
        const uint64_t tag = *in++;
        const uint64_t room = stop - out;
        if ((tag & 3) == 0) {
            uint64_t length = (tag >> 2) + 1;
            if (length <= 16) {
                store(out, load<Block>(in));
            } else {
                if (length > 60) {
                    const uint64_t more = length - 60;
                    length = (load<uint64_t>(in) & ((uint64_t{1} << (8 * more)) - 1)) + 1;
                    in += more;
                }
                if (in > end || length > room || length > static_cast<uint64_t>(end - in))
                    return false;
                std::memcpy(out, in, length);
            }
            if (length > room) return false;
            in += length;
            out += length;
            continue;
        }
        uint64_t length, offset;
        if ((tag & 3) == 1) {
            length = (tag >> 2 & 7) + 4;
            offset = (tag >> 5) << 8 | *in++;
        } else {
            const bool far = (tag & 3) == 3;
            length = (tag >> 2) + 1;
            offset = far ? load<uint32_t>(in) : load<uint16_t>(in);
            in += far ? 4 : 2;
        }
        if (offset == 0 || offset > static_cast<uint64_t>(out - begin) || length > room)
            return false;
        copy_back(out, offset, length);
        out += length;
    }
    return in == end && out == stop;
}

}  // namespace embertide
