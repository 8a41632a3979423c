// Thrift's compact protocol, as far as parquet uses it.
#pragma once

#include <cstdint>

#include "varint.hpp"

namespace embertide {

// What is left to read; `good` is false from the first byte on that is not there.
struct Compact {
    const uint8_t* at;
    const uint8_t* end;
    bool good = true;

    uint8_t byte() {
        if (at >= end) {
            good = false;
            return 0;
        }
        return *at++;
    }
    uint64_t varint() {
        uint64_t value = 0;
        good &= read_varint(at, end, 10, value);
        return good ? value : 0;
    }
    int64_t number() {
        const uint64_t value = varint();
        return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
    }
    void pass(uint64_t bytes) {
        if (bytes > static_cast<uint64_t>(end - at)) good = false;
        else at += bytes;
    }

    // The type of the next field and its number; 0 at the end of a struct.
    int field(int64_t& number_of) {
        const uint8_t head = byte();
        if (!good || head == 0) return 0;
        number_of = head >> 4 ? number_of + (head >> 4) : number();
        return head & 15;
    }
    void skip(int type, int depth) {
        if (depth > 8) good = false;
        if (!good) return;
        if (type == 3) byte();
        else if (type >= 4 && type <= 6) varint();
        else if (type == 7) pass(8);
        else if (type == 8) pass(varint());
        else if (type == 9 || type == 10) skip_list(depth);
        else if (type == 12) skip_struct(depth);
        else if (type != 1 && type != 2) good = false;  // parquet has no maps
    }
    // The type of a list's elements, and how many there are.
    int list(uint64_t& count) {
        const uint8_t head = byte();
        count = head >> 4 == 15 ? varint() : head >> 4;
        return head & 15;
    }
    void skip_elements(int type, uint64_t count, int depth) {
        for (uint64_t i = 0; good && i < count; ++i) {
            if (type <= 2) byte();
            else skip(type, depth + 1);
        }
    }
    void skip_list(int depth) {
        uint64_t count = 0;
        const int type = list(count);
        skip_elements(type, count, depth);
    }
    void skip_struct(int depth) {
        int64_t id = 0;
        while (const int type = field(id)) skip(type, depth + 1);
    }
};

}  // namespace embertide
