// Vectors of floats of this instruction set, for files named *_isa.cpp: declared inside
// an anonymous namespace of EMBERTIDE_ISA, so that no two instruction sets share code.
#pragma once

#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "bf16.hpp"

#if defined(__AVX512F__)
#define EMBERTIDE_LANES 16
#define EMBERTIDE_SUM_VECTORS 16
#define EMBERTIDE_TILE_ROWS 8
#elif defined(__AVX2__)
#define EMBERTIDE_LANES 8
#define EMBERTIDE_SUM_VECTORS 8
#define EMBERTIDE_TILE_ROWS 6
#elif defined(__aarch64__)
#define EMBERTIDE_LANES 4
#define EMBERTIDE_SUM_VECTORS 16
#define EMBERTIDE_TILE_ROWS 8
#else
#define EMBERTIDE_LANES 4
#define EMBERTIDE_SUM_VECTORS 8
#define EMBERTIDE_TILE_ROWS 4
#endif

namespace embertide::EMBERTIDE_ISA {
namespace {

// Loads and stores need no alignment.
template <int lanes>
struct Lanes {
    typedef float type __attribute__((vector_size(4 * lanes), aligned(4), may_alias));
};
template <>
struct Lanes<1> {
    typedef float type;
};
template <int lanes>
using Vec = typename Lanes<lanes>::type;

// The bits of as many float32, and of as many bfloat16 in memory.
template <int lanes>
struct Bits {
    typedef uint32_t wide __attribute__((vector_size(4 * lanes)));
    typedef uint16_t narrow __attribute__((vector_size(2 * lanes)));
};

template <int lanes>
inline Vec<lanes> load(const float* at) {
    return *reinterpret_cast<const Vec<lanes>*>(at);
}
template <int lanes>
inline Vec<lanes> load(const Bf16* at) {
    if constexpr (lanes == 1) {
        return __builtin_bit_cast(float, static_cast<uint32_t>(at->bits) << 16);
#ifdef __AVX512F__
    } else if constexpr (lanes == 16) {
        // The compiler would widen two halves and join them.
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        return (Vec<lanes>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
#endif
    } else {
        using Wide = typename Bits<lanes>::wide;
        typename Bits<lanes>::narrow narrow;
        __builtin_memcpy(&narrow, at, sizeof narrow);
        return (Vec<lanes>)(__builtin_convertvector(narrow, Wide) << 16);
    }
}
template <int lanes>
inline void store(float* at, Vec<lanes> value) {
    *reinterpret_cast<Vec<lanes>*>(at) = value;
}
// Rounded to the nearest, of two that are as near to the even one; NaN stays one.
template <int lanes>
inline void store(Bf16* at, Vec<lanes> value) {
    if constexpr (lanes == 1) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, value);
        const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        at->bits = static_cast<uint16_t>(value == value ? rounded : 0x7fc0);
    } else {
        using Wide = typename Bits<lanes>::wide;
        const Wide bits = (Wide)value;
        const Wide rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const Wide kept = value == value ? rounded : Wide{} + 0x7fc0;
        const auto narrow = __builtin_convertvector(kept, typename Bits<lanes>::narrow);
        __builtin_memcpy(at, &narrow, sizeof narrow);
    }
}
// As store; past the caches where the row lies as it must for that.
template <int lanes>
inline void finished(float* at, Vec<lanes> value, [[maybe_unused]] const Epilogue& last) {
#if defined(__AVX512F__)
    if constexpr (lanes == 16)
        if (last.past_cache) return _mm512_stream_ps(at, (__m512)value);
#elif defined(__AVX2__)
    if constexpr (lanes == 8)
        if (last.past_cache) return _mm256_stream_ps(at, (__m256)value);
#endif
    store<lanes>(at, value);
}
// What was stored past the caches is seen by other threads before anything that is stored later.
inline void order_stores() {
#ifdef __SSE2__
    __builtin_ia32_sfence();
#endif
}
template <int lanes>
inline Vec<lanes> splat(float value) {
    return value - Vec<lanes>{};
}
template <int lanes>
inline Vec<lanes> larger(Vec<lanes> a, Vec<lanes> b) {
    return a > b ? a : b;
}

template <int lanes>
inline Vec<lanes> activate(Vec<lanes> v, const Epilogue& last) {
    const Vec<lanes> zero = {};
    switch (last.activation) {
        case Activation::none: break;
        case Activation::relu: return v < zero ? zero : v;
        case Activation::leaky_relu: return v < zero ? v * splat<lanes>(last.slope) : v;
        case Activation::elu: {
            float values[lanes];
            store<lanes>(values, v);
            for (int i = 0; i < lanes; ++i)
                if (values[i] < 0) values[i] = last.slope * __builtin_expm1f(values[i]);
            return load<lanes>(values);
        }
    }
    return v;
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
