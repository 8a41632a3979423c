#include "row_sort.hpp"

#ifdef __AVX512VL__
#include <immintrin.h>
#endif

namespace embertide::EMBERTIDE_ISA {
namespace {

#ifdef __AVX512VL__

// Bitonic sorting networks, a row in one register: lane i is compared with lane i ^ `apart`, and
// runs of `sorted` lanes come to be in order. Lanes beyond the row hold the largest number.
template <int lanes>
constexpr uint32_t larger_lanes(int sorted, int apart) {
    uint32_t found = 0;
    for (int i = 0; i < lanes; ++i)
        if (((i & apart) != 0) == ((i & sorted) == 0)) found |= 1u << i;
    return found;
}

template <int sorted, int apart>
__m256i step(__m256i v) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i other =
        _mm256_permutexvar_epi32(_mm256_xor_si256(lane, _mm256_set1_epi32(apart)), v);
    return _mm256_mask_max_epi32(_mm256_min_epi32(v, other), larger_lanes<8>(sorted, apart), v,
                                 other);
}

template <int sorted, int apart>
__m512i step(__m512i v) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i other =
        _mm512_permutexvar_epi32(_mm512_xor_si512(lane, _mm512_set1_epi32(apart)), v);
    return _mm512_mask_max_epi32(_mm512_min_epi32(v, other), larger_lanes<16>(sorted, apart), v,
                                 other);
}

template <typename V>
V sorted_eight(V v) {
    v = step<2, 1>(v);
    v = step<4, 1>(step<4, 2>(v));
    return step<8, 1>(step<8, 2>(step<8, 4>(v)));
}

void sort_one(int32_t* cols, int64_t n) {
    if (n <= 8) {
        const __mmask8 row = (1u << n) - 1;
        const __m256i v = _mm256_mask_loadu_epi32(_mm256_set1_epi32(INT32_MAX), row, cols);
        _mm256_mask_storeu_epi32(cols, row, sorted_eight(v));
    } else {
        const __mmask16 row = (1u << n) - 1;
        __m512i v = _mm512_mask_loadu_epi32(_mm512_set1_epi32(INT32_MAX), row, cols);
        v = sorted_eight(v);
        v = step<16, 1>(step<16, 2>(step<16, 4>(step<16, 8>(v))));
        _mm512_mask_storeu_epi32(cols, row, v);
    }
}

#else

void sort_one(int32_t* cols, int64_t n) {
    for (int64_t i = 1; i < n; ++i) {
        const int32_t col = cols[i];
        int64_t j = i;
        for (; j > 0 && cols[j - 1] > col; --j) cols[j] = cols[j - 1];
        cols[j] = col;
    }
}

#endif

}  // namespace

void sort_short_rows(int32_t* cols, int64_t begin, const int64_t* ends, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t n = ends[row] - begin;
        if (n > 1 && n <= kShortRow) sort_one(cols + begin, n);
        begin = ends[row];
    }
}

}  // namespace embertide::EMBERTIDE_ISA
