// Vectors of floats of this instruction set, for files named *_isa.cpp: declared inside
// an anonymous namespace of EMBERTIDE_ISA, so that no two instruction sets share code.
#pragma once

#include <cstdint>

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

template <int lanes>
inline Vec<lanes> load(const float* at) {
    return *reinterpret_cast<const Vec<lanes>*>(at);
}
template <int lanes>
inline void store(float* at, Vec<lanes> value) {
    *reinterpret_cast<Vec<lanes>*>(at) = value;
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
