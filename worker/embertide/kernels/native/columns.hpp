// One row's columns in order, and their weights with them; any number of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace embertide {

constexpr int64_t kSortedAtOnce = 1 << 16;  // columns; with their temporaries in the cache
constexpr int64_t kInserted = 32;           // columns that are sorted without temporaries

template <typename C>
struct Entries {
    C* cols;
    float* weights;  // or null
};

// Orders floats as numbers, and equal ones by their bits: the same for any order of arrival.
inline bool lighter(float a, float b) {
    auto order = [](float x) {
        const auto bits = std::bit_cast<int32_t>(x);
        return bits < 0 ? bits ^ 0x7fffffff : bits;
    };
    return order(a) < order(b);
}

template <bool kWeights, typename C>
void insertion_sort(const Entries<C>& a, int64_t n) {
    for (int64_t i = 1; i < n; ++i) {
        const C col = a.cols[i];
        const float weight = kWeights ? a.weights[i] : 0;
        int64_t j = i;
        for (; j > 0 && (a.cols[j - 1] > col || (kWeights && a.cols[j - 1] == col &&
                                                 lighter(weight, a.weights[j - 1])));
             --j) {
            a.cols[j] = a.cols[j - 1];
            if (kWeights) a.weights[j] = a.weights[j - 1];
        }
        a.cols[j] = col;
        if (kWeights) a.weights[j] = weight;
    }
}

// Sorts by the lowest `bits`, least significant digit first; returns which of the two arrays holds
// the result.
template <int kDigit, bool kWeights, typename C>
Entries<C> radix_sort(Entries<C> a, Entries<C> other, int64_t n, int bits) {
    constexpr int kBins = 1 << kDigit;
    constexpr int kPasses = (8 * static_cast<int>(sizeof(C)) - 1 + kDigit - 1) / kDigit;
    static thread_local uint32_t counts[kPasses][kBins];
    using Bits = std::make_unsigned_t<C>;
    const auto digit = [](C col, int shift) {
        return static_cast<int>(static_cast<Bits>(col) >> shift & (kBins - 1));
    };
    const int passes = (bits + kDigit - 1) / kDigit;
    std::memset(counts, 0, sizeof counts[0] * passes);
    for (int64_t i = 0; i < n; ++i)
        for (int pass = 0; pass < passes; ++pass) ++counts[pass][digit(a.cols[i], pass * kDigit)];
    for (int pass = 0; pass < passes; ++pass) {
        const int shift = pass * kDigit;
        uint32_t* at = counts[pass];
        if (at[digit(a.cols[0], shift)] == n) continue;
        uint32_t sum = 0;
        for (int b = 0; b < kBins; ++b) sum += std::exchange(at[b], sum);
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t place = at[digit(a.cols[i], shift)]++;
            other.cols[place] = a.cols[i];
            if (kWeights) other.weights[place] = a.weights[i];
        }
        std::swap(a, other);
    }
    return a;
}

template <typename C>
void sort_ties(const Entries<C>& a, int64_t n) {
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && a.cols[j] == a.cols[i]; ++j) {}
        if (j - i > 1) std::sort(a.weights + i, a.weights + j, lighter);
    }
}

// A row of at most kSortedAtOnce, whose columns differ in their lowest `bits`.
template <bool kWeights, typename C>
void sort_many(const Entries<C>& a, int64_t n, int bits) {
    static thread_local std::vector<C> cols(kSortedAtOnce);
    static thread_local std::vector<float> weights;
    if (kWeights) weights.resize(kSortedAtOnce);
    const Entries<C> other{cols.data(), kWeights ? weights.data() : nullptr};
    const Entries<C> sorted = n < 4096 ? radix_sort<8, kWeights>(a, other, n, bits)
                                       : radix_sort<11, kWeights>(a, other, n, bits);
    if (sorted.cols != a.cols) {
        std::copy_n(sorted.cols, n, a.cols);
        if (kWeights) std::copy_n(sorted.weights, n, a.weights);
    }
    if (kWeights) sort_ties(a, n);
}

// By column, and equal ones by weight. With bits, of at most kSortedAtOnce; without, of any number
// of one column.
template <typename C>
void sort_row(const Entries<C>& a, int64_t n, int bits) {
    if (bits == 0) {
        if (a.weights) std::sort(a.weights, a.weights + n, lighter);
    } else if (a.weights) {
        n <= kInserted ? insertion_sort<true>(a, n) : sort_many<true>(a, n, bits);
    } else {
        n <= kInserted ? insertion_sort<false>(a, n) : sort_many<false>(a, n, bits);
    }
}

// Moves the last of equal columns to `to` and on, in their order; returns how many.
template <typename C>
int64_t keep_last(const Entries<C>& from, int64_t n, const Entries<C>& to) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (i + 1 < n && from.cols[i + 1] == from.cols[i]) continue;
        to.cols[kept] = from.cols[i];
        if (from.weights) to.weights[kept] = from.weights[i];
        ++kept;
    }
    return kept;
}

}  // namespace embertide
