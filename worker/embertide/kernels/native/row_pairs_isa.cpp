#include "row_pairs.hpp"

#include "spmm.hpp"

#include "lanes.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

// As many values as there are float64 in a vector: sums are float64, in which no square of a float32
// is too small or too large.
constexpr int kHalf = EMBERTIDE_LANES / 2;
typedef double Doubles __attribute__((vector_size(8 * kHalf)));

inline Doubles widened(const float* at) {
    return __builtin_convertvector(load<kHalf>(at), Doubles);
}
inline double total(Doubles values) {
    double sum = 0;
    for (int i = 0; i < kHalf; ++i) sum += values[i];
    return sum;
}

inline uint32_t bits_at(const float* row, int64_t k) {
    uint32_t bits;
    __builtin_memcpy(&bits, row + k, sizeof bits);
    return bits;
}

// Bits in which any value differs; a row without differences has the same bits.
inline uint32_t differing(const float* a, const float* b, int64_t width) {
    uint32_t differences = 0;
    for (int64_t k = 0; k < width; ++k) differences |= bits_at(a, k) ^ bits_at(b, k);
    return differences;
}

// Bits of any value but for signs: 0 of a zero vector alone.
inline uint32_t magnitudes(const float* row, int64_t width) {
    uint32_t bits = 0;
    for (int64_t k = 0; k < width; ++k) bits |= bits_at(row, k);
    return bits & 0x7fffffff;
}

inline double squared_length(const float* row, int64_t width) {
    Doubles low = {}, high = {};
    int64_t k = 0;
    for (; k + 2 * kHalf <= width; k += 2 * kHalf) {
        const Doubles a = widened(row + k), b = widened(row + k + kHalf);
        low += a * a;
        high += b * b;
    }
    double sum = total(low + high);
    for (; k < width; ++k) sum += double(row[k]) * double(row[k]);
    return sum;
}

inline uint64_t mixed(uint64_t word) {
    word += 0x9E3779B97F4A7C15;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
}

inline uint64_t print_of(const float* row, int64_t width, const uint64_t* factors) {
    uint64_t sum = 0;
    const int64_t words = width / 2;
    for (int64_t i = 0; i < words; ++i) {
        uint64_t word;
        __builtin_memcpy(&word, row + 2 * i, sizeof word);
        sum += (word ^ (word >> 29)) * factors[i];
    }
    if (width % 2) {
        const uint64_t word = bits_at(row, width - 1);
        sum += (word ^ (word >> 29)) * factors[words];
    }
    return mixed(sum);
}

// Squared lengths of two rows and of their difference.
struct Squares {
    double a, b, apart;
};

inline Squares squares_of(const float* a, const float* b, int64_t width) {
    Doubles of_a = {}, of_b = {}, apart = {};
    int64_t k = 0;
    for (; k + kHalf <= width; k += kHalf) {
        const Doubles x = widened(a + k), y = widened(b + k), d = x - y;
        of_a += x * x;
        of_b += y * y;
        apart += d * d;
    }
    Squares sums{total(of_a), total(of_b), total(apart)};
    for (; k < width; ++k) {
        const double x = a[k], y = b[k];
        sums.a += x * x;
        sums.b += y * y;
        sums.apart += (x - y) * (x - y);
    }
    return sums;
}

// 1 - cosine without cancellation: |a - b|^2 - (|a| - |b|)^2 is 2 |a| |b| (1 - cosine).
inline double distance_of(const Squares& sums) {
    const double a = __builtin_sqrt(sums.a), b = __builtin_sqrt(sums.b), product = 2 * a * b;
    if (!(product > 0)) return a == b ? 0 : 1;
    const double distance = (sums.apart - (a - b) * (a - b)) / product;
    return distance < 0 ? 0 : distance;
}

// The binary logarithm, to 0.09: exponent and mantissa read as one number.
inline double rough_log2(double value) {
    int64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return static_cast<double>(bits) / (int64_t{1} << 52) - 1023;
}

}  // namespace

void count_bins(const double* values, int64_t count, const double* edges, int64_t bins,
                int64_t* counts) {
    const double first = rough_log2(edges[0]);
    const double steps = (bins - 1) / (rough_log2(edges[bins - 1]) - first);
    for (int64_t i = 0; i < count; ++i) {
        const double value = values[i];
        if (!(value - value == 0)) continue;  // NaN or infinite
        if (!(value >= edges[0])) {
            ++counts[0];
            continue;
        }
        int64_t bin = static_cast<int64_t>((rough_log2(value) - first) * steps);
        bin = bin < bins ? bin : bins - 1;
        while (bin > 0 && value < edges[bin]) --bin;
        while (bin + 1 < bins && value >= edges[bin + 1]) ++bin;
        ++counts[bin + 1];
    }
}

void look_at_rows(const float* rows, int64_t stride, int64_t width, int64_t begin, int64_t end,
                  const uint64_t* factors, float* norms, uint64_t* prints) {
    for (int64_t i = begin; i < end; ++i) {
        const float* row = rows + i * stride;
        norms[i] = static_cast<float>(__builtin_sqrt(squared_length(row, width)));
        prints[i] = print_of(row, width, factors);
    }
}

void compare_rows(const float* rows, int64_t stride, const int64_t* places, const float* earlier,
                  int64_t earlier_stride, int64_t width, int64_t begin, int64_t end, RowMoves out) {
    for (int64_t i = begin; i < end; ++i) {
        const float* old = earlier + i * earlier_stride;
        out.squares[i] = out.distances[i] = 0;
        if (places[i] < 0) {
            out.states[i] = magnitudes(old, width) ? 0 : kEarlierZero;
            continue;
        }
        const float* row = rows + places[i] * stride;
        if (!differing(row, old, width)) {
            out.states[i] = kMatched | kSame | (magnitudes(old, width) ? 0 : kEarlierZero);
            continue;
        }
        const Squares sums = squares_of(row, old, width);
        out.states[i] = kMatched | (sums.b == 0 ? kEarlierZero : 0);
        out.squares[i] = sums.apart;
        out.distances[i] = distance_of(sums);
    }
}

}  // namespace embertide::EMBERTIDE_ISA
