// Hashes of node ids, and the table from hashes to positions.
//
// An int64 id is hashed by a bijection, so one word stands for it; a string by two words. The
// table of n ids is their words in ascending order beside a directory: bucket b, the ids whose
// first word w has (w - base) >> shift == b, is found by the directory. Hashes are uniform, so a bucket
// has one to two ids; of one that has many (crafted ids) the rest is searched by halving.
//
// A line of the directory, 64 bytes, is a position and how much later each of kSlots buckets begins,
// 255 where it is that or more: a search that begins too early only takes longer. So the directory
// of millions of ids is of about as many bytes and stays near the cores, where one of positions
// would not.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace embertide {

constexpr int64_t kLineBytes = 64, kSlots = kLineBytes - 4;

struct Table {
    const uint64_t* words;  // [size * k], ascending
    const uint8_t* lines;   // [buckets / kSlots + 2]; bucket `buckets` is empty, for words outside
    int64_t size, buckets;
    uint64_t base, span;  // the first word of the first id; the last id's less that
    int shift;
};

EMBERTIDE_KERNEL(void, hash_integers, const int64_t* ids, int64_t count, uint64_t* out)
EMBERTIDE_KERNEL(void, unhash_integers, const uint64_t* words, int64_t count, int64_t* out)

// [2 * count] words of strings data[offsets[i]:offsets[i + 1]], which lie within `bytes`.
EMBERTIDE_KERNEL(void, hash_strings32, const int32_t* offsets, const uint8_t* data, int64_t bytes,
                 int64_t count, uint64_t* out)
EMBERTIDE_KERNEL(void, hash_strings64, const int64_t* offsets, const uint8_t* data, int64_t bytes,
                 int64_t count, uint64_t* out)

// [count, columns] rows that are drawn by the keys, kernels/drawn.py: -size, 0 or size.
EMBERTIDE_KERNEL(void, draw_rows, const uint64_t* keys, int64_t count, int64_t columns, float size,
                 float* out, int64_t stride)

// Positions of ids in a table of one or of two words an id; -1 where there is none.
EMBERTIDE_KERNEL(void, look_up1, const Table& table, const uint64_t* wanted, int64_t count,
                 int64_t* out)
EMBERTIDE_KERNEL(void, look_up2, const Table& table, const uint64_t* wanted, int64_t count,
                 int64_t* out)

// The same, hashed on the way.
EMBERTIDE_KERNEL(void, look_up_integers, const Table& table, const int64_t* ids, int64_t count,
                 int64_t* out)

}  // namespace embertide
