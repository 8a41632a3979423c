// Scores of keys and queries, four heads at a time; for *_isa.cpp only.
#pragma once

#include "attention_lanes.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

typedef float Four __attribute__((vector_size(16)));

// The sum of each of four vectors, in half the steps of one sum after the other.
inline Four sums(const Floats (&v)[4]) {
#if defined(__AVX512F__)
    const auto pairs = [](Floats a, Floats b) {
        return _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b),
                             _mm512_unpackhi_ps((__m512)a, (__m512)b));
    };
    const __m512d ab = _mm512_castps_pd(pairs(v[0], v[1]));
    const __m512d cd = _mm512_castps_pd(pairs(v[2], v[3]));
    const __m512 quarters = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                                          _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
    return (Four)_mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
#elif defined(__AVX2__)
    const __m256 ab = _mm256_hadd_ps((__m256)v[0], (__m256)v[1]);
    const __m256 cd = _mm256_hadd_ps((__m256)v[2], (__m256)v[3]);
    const __m256 halves = _mm256_hadd_ps(ab, cd);
    return (Four)_mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
#else
    return Four{sum(v[0]), sum(v[1]), sum(v[2]), sum(v[3])};
#endif
}

// What is added up to the score of one head of a key and a query, [width] each: key * query, or
// with a vector vector * leaky_relu(key + query).
template <bool kDot, typename Key>
inline Floats pair_terms(const Key* key, const float* query, const float* vector, int64_t width,
                         float slope) {
    const auto part = [&](auto&& get, int64_t f) {
        if constexpr (kDot) return get(key + f) * get(query + f);
        else return get(vector + f) * leaky(get(key + f) + get(query + f), slope);
    };
    Floats total{};
    int64_t f = 0;
    for (; f + kLanes <= width; f += kLanes)
        total += part([](const auto* from) { return load(from); }, f);
    if (f < width) {
        const int rest = static_cast<int>(width - f);
        total += part([rest](const auto* from) { return load_some(from, rest); }, f);
    }
    return total;
}

// Calls put(h, scores) with those of heads h to h + 3 of a key and a query [heads, width] for every
// fourth h; heads that do not exist have zeros.
template <bool kDot, typename Key, typename Put>
inline void pair_scores(const Key* key, const float* query, const float* vector, int64_t heads,
                        int64_t width, float slope, float scale, const Put& put) {
    for (int64_t h = 0; h < heads; h += 4) {
        Floats terms[4] = {};
        for (int64_t i = 0; i < 4 && h + i < heads; ++i) {
            const int64_t f = (h + i) * width;
            terms[i] = pair_terms<kDot>(key + f, query + f, kDot ? nullptr : vector + f, width,
                                        slope);
        }
        put(h, sums(terms) * scale);
    }
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
