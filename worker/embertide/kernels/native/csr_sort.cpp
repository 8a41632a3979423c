// Packed edges, in buckets of neighbouring rows, to compressed sparse rows.
//
// A bucket larger than the cache is first split in place by its keys' next bits, so that the
// temporaries are those of a few small sorts, whatever a hub's row has. Small runs are sorted by
// radix, least significant digit first.
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "csr.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kCached = 1 << 16;  // keys of one sort; with its temporary 1 MiB

// Keys that agree above their lowest `bits`.
struct Run {
    int64_t begin, end;
    int bits;
};

struct Arrays {
    uint64_t* keys;
    float* weights;  // or null
};

void swap_places(const Arrays& a, int64_t i, int64_t j) {
    std::swap(a.keys[i], a.keys[j]);
    if (a.weights) std::swap(a.weights[i], a.weights[j]);
}

// In place by the next eight bits ("American flag"), until runs fit the cache.
void split(const Arrays& a, Run run, std::vector<Run>& out) {
    if (run.begin == run.end) return;
    if (run.end - run.begin <= kCached || run.bits == 0) {
        out.push_back(run);
        return;
    }
    const int digit = std::min(8, run.bits), shift = run.bits - digit, bins = 1 << digit;
    const uint64_t mask = bins - 1;
    int64_t next[256], stop[256] = {};
    for (int64_t i = run.begin; i < run.end; ++i) ++stop[a.keys[i] >> shift & mask];
    int64_t at = run.begin;
    for (int b = 0; b < bins; ++b) {
        next[b] = at;
        stop[b] = at += stop[b];
    }
    for (int b = 0; b < bins; ++b)
        while (next[b] < stop[b]) {
            const int to = static_cast<int>(a.keys[next[b]] >> shift & mask);
            if (to == b)
                ++next[b];
            else
                swap_places(a, next[b], next[to]++);
        }
    at = run.begin;
    for (int b = 0; b < bins; ++b) {
        split(a, {at, stop[b], shift}, out);
        at = stop[b];
    }
}

template <bool kWeights>
void insertion_sort(const Arrays& a, int64_t n) {
    for (int64_t i = 1; i < n; ++i) {
        const uint64_t key = a.keys[i];
        const float weight = kWeights ? a.weights[i] : 0;
        int64_t j = i;
        for (; j > 0 && a.keys[j - 1] > key; --j) {
            a.keys[j] = a.keys[j - 1];
            if (kWeights) a.weights[j] = a.weights[j - 1];
        }
        a.keys[j] = key;
        if (kWeights) a.weights[j] = weight;
    }
}

// Sorts by the lowest `bits`; returns which of the two arrays holds the result.
template <int kDigit, bool kWeights>
Arrays radix_sort(Arrays a, Arrays other, int64_t n, int bits) {
    constexpr int kBins = 1 << kDigit;
    constexpr int kPasses = (63 + kDigit - 1) / kDigit;
    static thread_local uint32_t counts[kPasses][kBins];
    const int passes = (bits + kDigit - 1) / kDigit;
    std::memset(counts, 0, sizeof counts[0] * passes);
    for (int64_t i = 0; i < n; ++i)
        for (int pass = 0; pass < passes; ++pass)
            ++counts[pass][a.keys[i] >> (pass * kDigit) & (kBins - 1)];
    for (int pass = 0; pass < passes; ++pass) {
        const int shift = pass * kDigit;
        uint32_t* at = counts[pass];
        if (at[a.keys[0] >> shift & (kBins - 1)] == n) continue;
        uint32_t sum = 0;
        for (int b = 0; b < kBins; ++b) sum += std::exchange(at[b], sum);
        for (int64_t i = 0; i < n; ++i) {
            const uint32_t place = at[a.keys[i] >> shift & (kBins - 1)]++;
            other.keys[place] = a.keys[i];
            if (kWeights) other.weights[place] = a.weights[i];
        }
        std::swap(a, other);
    }
    return a;
}

template <bool kWeights>
Arrays sort_run(const Arrays& a, int64_t n, int bits) {
    if (n <= 48) {
        insertion_sort<kWeights>(a, n);
        return a;
    }
    static thread_local std::vector<uint64_t> keys(kCached);
    static thread_local std::vector<float> weights;
    if (kWeights) weights.resize(kCached);
    const Arrays other{keys.data(), kWeights ? weights.data() : nullptr};
    if (n < 4096) return radix_sort<8, kWeights>(a, other, n, bits);
    // Larger digits where they save a pass.
    return (bits + 11) / 12 < (bits + 10) / 11 ? radix_sort<12, kWeights>(a, other, n, bits)
                                               : radix_sort<11, kWeights>(a, other, n, bits);
}

// Orders floats as numbers, and equal ones by their bits: the same for any order of arrival.
bool lighter(float a, float b) {
    auto order = [](float x) {
        const auto bits = std::bit_cast<int32_t>(x);
        return bits < 0 ? bits ^ 0x7fffffff : bits;
    };
    return order(a) < order(b);
}

void sort_ties(const Arrays& a, int64_t n) {
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && a.keys[j] == a.keys[i]; ++j) {}
        if (j - i > 1) std::sort(a.weights + i, a.weights + j, lighter);
    }
}

template <typename C>
struct Output {
    C* cols;
    int64_t* indptr;
    int64_t rows, nodes;
    int bits;
    bool unique;

    // Writes a sorted run from its place on and counts its rows; returns how many it kept.
    int64_t write(const Arrays& sorted, int64_t n, int64_t begin, float* weights) const {
        const uint64_t mask = (uint64_t{1} << bits) - 1;
        int64_t kept = 0;
        for (int64_t i = 0; i < n;) {
            const int64_t row = static_cast<int64_t>(sorted.keys[i] >> bits), before = kept;
            require(row < rows, "keys: a row outside the rows");
            for (; i < n && static_cast<int64_t>(sorted.keys[i] >> bits) == row; ++i) {
                if (unique && i + 1 < n && sorted.keys[i + 1] == sorted.keys[i]) continue;
                const auto col = static_cast<int64_t>(sorted.keys[i] & mask);
                require(col < nodes, "keys: a column that is no node");
                cols[begin + kept] = static_cast<C>(col);
                if (weights) weights[begin + kept] = sorted.weights[i];
                ++kept;
            }
            // A hub's row may be spread over several runs.
            std::atomic_ref(indptr[row + 1]).fetch_add(kept - before, std::memory_order_relaxed);
        }
        return kept;
    }
};

template <typename C>
int64_t sort_one(const Arrays& all, const Run& run, const Output<C>& out) {
    const int64_t n = run.end - run.begin;
    const Arrays a{all.keys + run.begin, all.weights ? all.weights + run.begin : nullptr};
    Arrays sorted = a;
    if (run.bits > 0 && a.weights)
        sorted = sort_run<true>(a, n, run.bits);
    else if (run.bits > 0)
        sorted = sort_run<false>(a, n, run.bits);
    if (a.weights) sort_ties(sorted, n);
    return out.write(sorted, n, run.begin, all.weights);
}

template <typename C>
int64_t sort_buckets(Vector<int64_t> keys, std::optional<Vector<float>> weights,
                     In<int64_t> starts, int64_t nodes, int bits, int shift, bool unique,
                     Vector<int64_t> indptr, Vector<C> cols) {
    const int64_t size = keys.shape(0);
    const int64_t buckets = static_cast<int64_t>(starts.shape(0)) - 1;
    require(static_cast<int64_t>(cols.shape(0)) == size, "cols: one for each key");
    require(!weights || static_cast<int64_t>(weights->shape(0)) == size, "weights: one per key");
    require(buckets >= 0 && indptr.shape(0) > 0, "starts, indptr: too short");
    require(bits > 0 && shift >= 0 && bits + shift < 64, "bits: too many");
    for (int64_t b = 0; b < buckets; ++b)
        require(0 <= starts.data()[b] && starts.data()[b] <= starts.data()[b + 1] &&
                    starts.data()[b + 1] <= size,
                "starts: descend");
    const Arrays all{reinterpret_cast<uint64_t*>(keys.data()),
                     weights ? weights->data() : nullptr};
    std::vector<std::vector<Run>> split_runs(buckets);
    parallel_for(buckets, [&](int64_t b) {
        split(all, {starts.data()[b], starts.data()[b + 1], bits + shift}, split_runs[b]);
    });
    std::vector<Run> runs;
    for (auto& some : split_runs) runs.insert(runs.end(), some.begin(), some.end());
    const int64_t rows = static_cast<int64_t>(indptr.shape(0)) - 1;
    std::fill_n(indptr.data(), rows + 1, 0);
    const Output<C> out{cols.data(), indptr.data(), rows, nodes, bits, unique};
    std::vector<int64_t> kept(runs.size());
    parallel_for(runs.size(), [&](int64_t i) { kept[i] = sort_one(all, runs[i], out); });
    int64_t at = 0;
    for (size_t i = 0; i < runs.size(); at += kept[i++]) {
        if (at == runs[i].begin) continue;
        std::memmove(cols.data() + at, cols.data() + runs[i].begin, kept[i] * sizeof(C));
        if (all.weights)
            std::memmove(all.weights + at, all.weights + runs[i].begin, kept[i] * sizeof(float));
    }
    for (int64_t row = 0; row < rows; ++row) indptr.data()[row + 1] += indptr.data()[row];
    return at;
}

template <typename C>
void bind_sort(nb::module_& m) {
    m.def("sort_buckets", sort_buckets<C>, nb::arg("keys").noconvert(),
          nb::arg("weights").none(), nb::arg("starts").noconvert(), nb::arg("nodes"),
          nb::arg("bits"), nb::arg("shift"), nb::arg("unique"), nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), NoGil());
}

}  // namespace

void bind_csr_sort(nb::module_& m) {
    bind_sort<int32_t>(m);
    bind_sort<int64_t>(m);
}

}  // namespace embertide
