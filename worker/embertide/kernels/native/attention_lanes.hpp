// Vectors of floats as wide as the instruction set's registers; for *_isa.cpp only.
#pragma once

#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "attention.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));

inline int64_t at(const Numbers& numbers, int64_t i) {
    return numbers.wide ? static_cast<const int64_t*>(numbers.data)[i]
                        : static_cast<const int32_t*>(numbers.data)[i];
}

inline Floats all(float value) { return Floats{} + value; }

inline Floats load(const float* from) {
    Floats v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

// bfloat16 are the upper halves of float32.
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

inline Floats widen(Halves v) {
#if defined(__AVX512F__)
    // The compiler would widen two parts and join them.
    return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)v), 16);
#else
    typedef uint32_t Wholes __attribute__((vector_size(4 * kLanes)));
    return (Floats)(__builtin_convertvector(v, Wholes) << 16);
#endif
}

inline Floats load(const Bf16* from) {
    Halves v;
    __builtin_memcpy(&v, from, sizeof v);
    return widen(v);
}

inline void store(float* to, Floats v) { __builtin_memcpy(to, &v, sizeof v); }

// The first `count` lanes; the others are zero and their memory is not touched. A load of all lanes,
// masked or not, that crosses a line of the cache waits for both, so few lanes are loaded as few.
inline Floats load_some(const float* from, int count) {
#if defined(__AVX512F__)
    if (count == 1) return (Floats)_mm512_zextps128_ps512(_mm_load_ss(from));
    if (count == 2) return (Floats)_mm512_zextps128_ps512((__m128)_mm_loadu_si64(from));
    const auto mask = (__mmask16)((1u << count) - 1);
    if (count <= 4) return (Floats)_mm512_zextps128_ps512(_mm_maskz_loadu_ps((__mmask8)mask, from));
    if (count <= 8) return (Floats)_mm512_zextps256_ps512(_mm256_maskz_loadu_ps((__mmask8)mask, from));
    return (Floats)_mm512_maskz_loadu_ps(mask, from);
#elif defined(__AVX2__)
    if (count == 1) return (Floats)_mm256_zextps128_ps256(_mm_load_ss(from));
    if (count == 2) return (Floats)_mm256_zextps128_ps256((__m128)_mm_loadu_si64(from));
    if (count == 4) return (Floats)_mm256_zextps128_ps256(_mm_loadu_ps(from));
    const Lanes mask = Lanes{0, 1, 2, 3, 4, 5, 6, 7} < count;
    return (Floats)_mm256_maskload_ps(from, (__m256i)mask);
#else
    Floats v{};
    if (count == kLanes) return load(from);
    for (int i = 0; i < count; ++i) v[i] = from[i];
    return v;
#endif
}

inline Floats load_some(const Bf16* from, int count) {
#if defined(__AVX512F__)
    return widen((Halves)_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from));
#else
    Halves v{};
    for (int i = 0; i < count; ++i) v[i] = from[i].bits;
    return widen(v);
#endif
}

inline void store_some(float* to, Floats v, int count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)v);
#elif defined(__AVX2__)
    const Lanes mask = Lanes{0, 1, 2, 3, 4, 5, 6, 7} < count;
    _mm256_maskstore_ps(to, (__m256i)mask, (__m256)v);
#else
    for (int i = 0; i < count; ++i) to[i] = v[i];
#endif
}

// v[lanes[i]] in lane i.
inline Floats permute(Floats v, Lanes lanes) {
#if defined(__AVX512F__)
    return (Floats)_mm512_permutexvar_ps((__m512i)lanes, (__m512)v);
#elif defined(__AVX2__)
    return (Floats)_mm256_permutevar8x32_ps((__m256)v, (__m256i)lanes);
#else
    Floats result;
    for (int i = 0; i < kLanes; ++i) result[i] = v[lanes[i] & (kLanes - 1)];
    return result;
#endif
}

inline float sum(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float half[kLanes];
    store(half, v);
    for (int width = kLanes / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) half[i] += half[i + width];
    return half[0];
#endif
}

inline Floats larger(Floats a, Floats b) { return a < b ? b : a; }
inline Floats leaky(Floats v, float slope) { return v > 0.0f ? v : v * slope; }

// exp to two units in the last place for v <= 88; below -87 a number next to zero; NaN stays.
inline Floats exp_lanes(Floats v) {
    v = v < -87.0f ? all(-87.0f) : v;
    const Floats shifter = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Floats n = (v * 1.44269504088896341f + shifter) - shifter;
    const Floats r = (v - n * 0.693359375f) - n * -2.12194440e-4f;
    Floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const Lanes exponent = (__builtin_convertvector(n, Lanes) + 127) << 23;
    return p * (Floats)exponent;
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
