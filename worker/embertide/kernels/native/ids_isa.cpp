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

// The first `count` (1 to 7) bytes, zero-padded; reads all eight where they are in the array.
inline uint64_t load_some(const uint8_t* from, int64_t count, int64_t left) {
    if (left >= 8) return load(from) & ((uint64_t{1} << (8 * count)) - 1);
    uint64_t word = 0;
    for (int64_t i = 0; i < count; ++i) word |= uint64_t{from[i]} << (8 * i);
    return word;
}

template <typename Offset>
inline void hash_all(const Offset* offsets, const uint8_t* data, int64_t bytes, int64_t count,
                     uint64_t* out) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t begin = offsets[i], end = offsets[i + 1];
        const uint64_t length = end - begin;
        uint64_t high = mix(length), low = mix(length ^ kSecond);
        for (int64_t at = begin; at < end; at += 8) {
            const uint64_t word = at + 8 <= end ? load(data + at)
                                                : load_some(data + at, end - at, bytes - at);
            high = mix(high ^ word);
            low = mix((low + kSecond) ^ word);
        }
        out[2 * i] = high;
        out[2 * i + 1] = low;
    }
}

constexpr int kGroup = 32;  // probes whose cache misses overlap
constexpr uint32_t kLong = 16;  // ids in a bucket from which halving is faster than a scan

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

template <int K>
inline int64_t search(const Table& table, uint32_t low, uint32_t high, const uint64_t* wanted) {
    const uint64_t word = wanted[0], second = wanted[K - 1];
    if (high - low > kLong) {
        low = lower_bound<K>(table.words, low, high, word, second);
        high = low + (low < high);
    }
    int64_t found = -1;
    for (uint32_t at = low; at < high; ++at) {
        const uint64_t* here = table.words + K * uint64_t{at};
        if (here[0] == word && here[K - 1] == second) found = at;
    }
    return found;
}

template <int K>
inline void look_up(const Table& table, const uint64_t* wanted, int64_t count, int64_t* out) {
    uint32_t low[kGroup], high[kGroup];
    uint64_t bucket[kGroup];
    for (int64_t from = 0; from < count; from += kGroup) {
        const int size = static_cast<int>(count - from < kGroup ? count - from : kGroup);
        const uint64_t* group = wanted + K * from;
        for (int i = 0; i < size; ++i) {
            const uint64_t offset = group[K * i] - table.base;
            bucket[i] = offset <= table.span ? offset >> table.shift : table.buckets;
            __builtin_prefetch(table.starts + bucket[i]);
        }
        for (int i = 0; i < size; ++i) {
            low[i] = table.starts[bucket[i]];
            high[i] = table.starts[bucket[i] + 1];
            const uint64_t* first = table.words + K * uint64_t{low[i]};
            __builtin_prefetch(first);
            __builtin_prefetch(first + K * (high[i] - low[i] > 4 ? 4 : high[i] - low[i]) - 1);
        }
        for (int i = 0; i < size; ++i)
            out[from + i] = search<K>(table, low[i], high[i], group + K * i);
    }
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

void look_up1(const Table& table, const uint64_t* wanted, int64_t count, int64_t* out) {
    look_up<1>(table, wanted, count, out);
}

void look_up2(const Table& table, const uint64_t* wanted, int64_t count, int64_t* out) {
    look_up<2>(table, wanted, count, out);
}

}  // namespace embertide::EMBERTIDE_ISA
