#include "ids.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15, kSecond = 0xD1B54A32D192ED03;
constexpr uint64_t kFirstFactor = 0xBF58476D1CE4E5B9, kSecondFactor = 0x94D049BB133111EB;
// Their inverses modulo 2^64.
constexpr uint64_t kFirstInverse = 0x96DE1B173F119089, kSecondInverse = 0x319642B2D24D8EC3;
static_assert(kFirstFactor * kFirstInverse == 1 && kSecondFactor * kSecondInverse == 1);

// SplitMix64's finaliser.
inline uint64_t mix(uint64_t word) {
    word += kGolden;
    word = (word ^ (word >> 30)) * kFirstFactor;
    word = (word ^ (word >> 27)) * kSecondFactor;
    return word ^ (word >> 31);
}

inline uint64_t unmix(uint64_t word) {
    word = (word ^ (word >> 31) ^ (word >> 62)) * kSecondInverse;
    word = (word ^ (word >> 27) ^ (word >> 54)) * kFirstInverse;
    return (word ^ (word >> 30) ^ (word >> 60)) - kGolden;
}

inline uint64_t load(const uint8_t* from) {
    uint64_t word;
    __builtin_memcpy(&word, from, 8);
    return word;
}

// The first `count` (1 to 8) bytes, zero-padded; reads all eight where they are in the array. Ids of
// 7 and 8 bytes take the same way: branches by length are guessed wrong again and again.
inline uint64_t load_some(const uint8_t* from, int64_t count, int64_t left) {
    if (left >= 8) return load(from) & (~uint64_t{0} >> (64 - 8 * count));
    uint64_t word = 0;
    for (int64_t i = 0; i < count; ++i) word |= uint64_t{from[i]} << (8 * i);
    return word;
}

// Both words of the string data[begin:end].
inline void hash_string(const uint8_t* data, int64_t begin, int64_t end, int64_t bytes,
                        uint64_t* out) {
    const uint64_t length = end - begin;
    uint64_t high = mix(length), low = mix(length ^ kSecond);
    const auto add = [&](uint64_t word) {
        high = mix(high ^ word);
        low = mix((low + kSecond) ^ word);
    };
    int64_t at = begin;
    for (; end - at > 8; at += 8) add(load(data + at));
    if (at < end) add(load_some(data + at, end - at, bytes - at));
    out[0] = high;
    out[1] = low;
}

template <typename Offset>
inline void hash_all(const Offset* offsets, const uint8_t* data, int64_t bytes, int64_t count,
                     uint64_t* out) {
    for (int64_t i = 0; i < count; ++i)
        hash_string(data, offsets[i], offsets[i + 1], bytes, out + 2 * i);
}

constexpr int kAhead = 16;  // ids between asking for a place in memory and reading it
constexpr uint32_t kLong = 16;  // ids after which halving is faster than going on

// The first position in [low, high) whose first word is not less than `word`.
template <int K>
inline uint32_t lower_bound(const uint64_t* words, uint32_t low, uint32_t high, uint64_t word,
                            uint64_t second) {
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const uint64_t* at = words + K * uint64_t{middle};
        const bool less = at[0] < word || (K == 2 && at[0] == word && at[K - 1] < second);
        if (less) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Where `line` of the directory begins.
inline uint32_t start_of(const Table& table, int64_t line) {
    uint32_t start;
    __builtin_memcpy(&start, table.lines + kLineBytes * line, sizeof start);
    return start;
}

// Of an id whose bucket is in `line` and begins at `low`, or a little later.
template <int K>
inline int64_t search(const Table& table, int64_t line, uint32_t low, const uint64_t* wanted) {
    const uint64_t word = wanted[0], second = wanted[K - 1];
    const int64_t size = table.size;
    const int64_t stop = int64_t{low} + kLong < size ? int64_t{low} + kLong : size;
    int64_t at = low;
    for (; at < stop; ++at) {
        const uint64_t* here = table.words + K * at;
        if (here[0] == word && here[K - 1] == second) return at;
        if (here[0] > word) return -1;
    }
    if (at == size) return -1;
    const uint32_t end = start_of(table, line + 1);
    at = lower_bound<K>(table.words, static_cast<uint32_t>(at), end, word, second);
    const uint64_t* here = table.words + K * at;
    return at < end && here[0] == word && here[K - 1] == second ? at : -1;
}

// Three steps of three ids at a time: take one's hash and ask for its bucket's line in the directory,
// read that of the one kAhead before and ask for the bucket's words, search those of the one before
// that. So the cache misses of many ids overlap.
template <int K, typename HashOf>
inline void look_up(const Table& table, int64_t count, const HashOf& hash_of, int64_t* out) {
    constexpr int kRing = 4 * kAhead;
    uint64_t words[K * kRing], line[kRing];
    uint32_t slot[kRing], low[kRing];
    for (int64_t last = 0; last < count + 2 * kAhead; ++last) {
        if (last < count) {
            const int at = last % kRing;
            hash_of(last, words + K * at);
            const uint64_t offset = words[K * at] - table.base;
            const uint64_t bucket = offset <= table.span ? offset >> table.shift : table.buckets;
            line[at] = bucket / kSlots;
            slot[at] = static_cast<uint32_t>(bucket % kSlots);
            __builtin_prefetch(table.lines + kLineBytes * line[at]);
        }
        const int64_t read = last - kAhead, found = read - kAhead;
        if (read >= 0 && read < count) {
            const int at = read % kRing;
            const uint8_t later = table.lines[kLineBytes * line[at] + sizeof low[at] + slot[at]];
            low[at] = start_of(table, line[at]) + later;
            const uint64_t* first = table.words + K * uint64_t{low[at]};
            __builtin_prefetch(first);
            __builtin_prefetch(first + 2 * K - 1);
        }
        if (found >= 0) {
            const int at = found % kRing;
            out[found] = search<K>(table, line[at], low[at], words + K * at);
        }
    }
}

template <int K>
inline void look_up_words(const Table& table, const uint64_t* wanted, int64_t count,
                          int64_t* out) {
    const auto copy = [&](int64_t i, uint64_t* to) {
        to[0] = wanted[K * i];
        to[K - 1] = wanted[K * i + K - 1];
    };
    look_up<K>(table, count, copy, out);
}

}  // namespace

void hash_integers(const int64_t* ids, int64_t count, uint64_t* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = mix(static_cast<uint64_t>(ids[i]));
}

void unhash_integers(const uint64_t* words, int64_t count, int64_t* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int64_t>(unmix(words[i]));
}

void hash_strings32(const int32_t* offsets, const uint8_t* data, int64_t bytes, int64_t count,
                    uint64_t* out) {
    hash_all(offsets, data, bytes, count, out);
}

void hash_strings64(const int64_t* offsets, const uint8_t* data, int64_t bytes, int64_t count,
                    uint64_t* out) {
    hash_all(offsets, data, bytes, count, out);
}

void draw_rows(const uint64_t* keys, int64_t count, int64_t columns, float size, float* out,
               int64_t stride) {
    const auto value = [size](uint64_t half) {
        const uint64_t side = half * 6 >> 32;
        return side == 0 ? size : side == 1 ? -size : 0.0f;
    };
    for (int64_t i = 0; i < count; ++i, out += stride) {
        const uint64_t key = keys[i];
        for (int64_t c = 0; c < columns / 2; ++c) {
            const uint64_t word = mix(key + static_cast<uint64_t>(c) * kGolden);
            out[2 * c] = value(word & 0xffffffff);
            out[2 * c + 1] = value(word >> 32);
        }
        if (columns % 2) {
            const uint64_t word = mix(key + static_cast<uint64_t>(columns / 2) * kGolden);
            out[columns - 1] = value(word & 0xffffffff);
        }
    }
}

void look_up1(const Table& table, const uint64_t* wanted, int64_t count, int64_t* out) {
    look_up_words<1>(table, wanted, count, out);
}

void look_up2(const Table& table, const uint64_t* wanted, int64_t count, int64_t* out) {
    look_up_words<2>(table, wanted, count, out);
}

void look_up_integers(const Table& table, const int64_t* ids, int64_t count, int64_t* out) {
    const auto hash = [&](int64_t i, uint64_t* to) { *to = mix(static_cast<uint64_t>(ids[i])); };
    look_up<1>(table, count, hash, out);
}

}  // namespace embertide::EMBERTIDE_ISA
