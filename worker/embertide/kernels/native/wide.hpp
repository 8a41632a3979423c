// Sums of many float32 whose error does not grow with their number, for files named *_isa.cpp.
//
// A run of kRun terms is summed in float32, one after the other; two runs are added in float32, and
// those pairs in float64. So a row is off by at most kRun roundings of the sum of its terms'
// magnitudes, however many they are. Runs are counted from a row's first term: the order of the
// additions depends on the row alone, and a row of one run is summed as if there were no others.
#pragma once

#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int64_t kRun = 16;

// use(at, values) for each register of float64 that `value`, of `lanes` float32, is widened to.
template <int lanes, typename Vector, typename Use>
inline void widen(Vector value, const Use& use) {
    typedef double Two __attribute__((vector_size(16)));
    typedef float TwoNarrow __attribute__((vector_size(8)));
    if constexpr (lanes == 1) {
        use(0, static_cast<double>(value));
#ifdef __AVX512F__
    } else if constexpr (lanes == 16) {
        use(0, _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)value)));
        use(8, _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)value, 1)));
#endif
#ifdef __AVX2__
    } else if constexpr (lanes == 8) {
        use(0, _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)value)));
        use(4, _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)value, 1)));
    } else if constexpr (lanes == 4) {
        use(0, _mm256_cvtps_pd((__m128)value));
#endif
    } else {
        for (int at = 0; at < lanes; at += 2)
            use(at, __builtin_convertvector((TwoNarrow{value[at], value[at + 1]}), Two));
    }
}

// to[i] = value[i] for i < lanes.
template <int lanes, typename Vector>
inline void set_to(double* to, Vector value) {
    widen<lanes>(value, [to](int at, auto wide) { __builtin_memcpy(to + at, &wide, sizeof wide); });
}

// to[i] += value[i] for i < lanes.
template <int lanes, typename Vector>
inline void add_to(double* to, Vector value) {
    widen<lanes>(value, [to](int at, auto wide) {
        auto sum = wide;
        __builtin_memcpy(&sum, to + at, sizeof sum);
        sum += wide;
        __builtin_memcpy(to + at, &sum, sizeof sum);
    });
}

// to[i] *= factor[i] for i < lanes.
template <int lanes, typename Vector>
inline void scale_by(double* to, Vector factor) {
    widen<lanes>(factor, [to](int at, auto wide) {
        auto product = wide;
        __builtin_memcpy(&product, to + at, sizeof product);
        product *= wide;
        __builtin_memcpy(to + at, &product, sizeof product);
    });
}

// The nearest float32 of from[i] for i < lanes.
template <int lanes, typename Vector>
inline Vector rounded(const double* from) {
    if constexpr (lanes == 1) {
        return static_cast<float>(*from);
#ifdef __AVX512F__
    } else if constexpr (lanes == 16) {
        const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_loadu_pd(from)));
        return (Vector)_mm512_insertf32x8(low, _mm512_cvtpd_ps(_mm512_loadu_pd(from + 8)), 1);
#endif
#ifdef __AVX2__
    } else if constexpr (lanes == 8) {
        return (Vector)_mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(from + 4)),
                                       _mm256_cvtpd_ps(_mm256_loadu_pd(from)));
    } else if constexpr (lanes == 4) {
        return (Vector)_mm256_cvtpd_ps(_mm256_loadu_pd(from));
#endif
    } else {
        Vector value{};
        for (int i = 0; i < lanes; ++i) value[i] = static_cast<float>(from[i]);
        return value;
    }
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
