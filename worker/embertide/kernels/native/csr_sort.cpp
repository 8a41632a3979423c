// Packed edges, in buckets of neighbouring rows, to compressed sparse rows.
//
// A bucket larger than the cache is first split in place by its keys' next bits, so that the
// temporaries are those of a few small sorts, whatever a hub's row has. The columns of a small run
// are put behind each other row by row, where they stay, and each row is sorted there.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "columns.hpp"
#include "csr.hpp"
#include "pool.hpp"
#include "row_sort.hpp"

namespace embertide {
namespace {

// Keys that agree above their lowest `bits`; `first` is the lowest that could be among them.
struct Run {
    int64_t begin, end;
    uint64_t first;
    int bits;

    int64_t size() const { return end - begin; }
};

template <typename Key>
struct Packed {
    Key* keys;       // row and column, of which all in a bucket may lack the highest bits
    float* weights;  // or null
};

template <typename Key>
void swap_places(const Packed<Key>& a, int64_t i, int64_t j) {
    std::swap(a.keys[i], a.keys[j]);
    if (a.weights) std::swap(a.weights[i], a.weights[j]);
}

// In place by the next eight bits ("American flag"), until runs fit the cache. Runs without keys
// are among them: of whole rows, too.
template <typename Key>
void split(const Packed<Key>& a, const Run& run, std::vector<Run>& out) {
    if (run.size() <= kSortedAtOnce || run.bits == 0) {
        out.push_back(run);
        return;
    }
    const int digit = std::min(8, run.bits), shift = run.bits - digit, bins = 1 << digit;
    const uint64_t mask = bins - 1;
    const auto bin_of = [&](int64_t i) { return static_cast<int>(a.keys[i] >> shift & mask); };
    int64_t next[256], stop[256] = {};
    for (int64_t i = run.begin; i < run.end; ++i) ++stop[bin_of(i)];
    int64_t at = run.begin;
    for (int b = 0; b < bins; ++b) {
        next[b] = at;
        stop[b] = at += stop[b];
    }
    for (int b = 0; b < bins; ++b)
        while (next[b] < stop[b]) {
            const int to = bin_of(next[b]);
            if (to == b)
                ++next[b];
            else
                swap_places(a, next[b], next[to]++);
        }
    at = run.begin;
    for (int b = 0; b < bins; ++b) {
        split(a, {at, stop[b], run.first | static_cast<uint64_t>(b) << shift, shift}, out);
        at = stop[b];
    }
}

template <typename Key, typename C>
struct Sorter {
    Packed<Key> from;
    C* cols;
    int64_t* indptr;
    int64_t rows, nodes;
    int bits;
    bool unique;

    bool whole_rows(const Run& run) const { return run.bits >= bits; }
    int64_t first_row(const Run& run) const { return static_cast<int64_t>(run.first >> bits); }
    // The ends of a run's rows.
    int64_t* ends(const Run& run) const { return indptr + first_row(run) + 1; }
    int64_t row_count(const Run& run) const {
        const int64_t most = int64_t{1} << (run.bits - bits);
        return std::max<int64_t>(0, std::min(most, rows - first_row(run)));
    }
    Entries<C> at(int64_t i) const {
        return {cols + i, from.weights ? from.weights + i : nullptr};
    }

    // Columns by row in their places, the rows' ends and how many were kept.
    int64_t sort(const Run& run) const {
        if (!whole_rows(run)) return sort_part(run);
        int64_t* const end = ends(run);
        const int64_t count = row_count(run);
        place(run, end, count);
        const int64_t sorted = sort_short(run.begin, end, count);
        int64_t begin = run.begin, kept = run.begin;
        for (int64_t row = 0; row < count; ++row) {
            const int64_t size = end[row] - begin;
            if (size > sorted) sort_row(at(begin), size, bits);
            if (unique) {
                begin = end[row];
                end[row] = kept += keep_last(at(begin - size), size, at(kept));
            } else {
                begin = end[row];
            }
        }
        return (unique ? kept : begin) - run.begin;
    }

    // Sorts short rows; returns how long the longest of these are.
    int64_t sort_short(int64_t begin, const int64_t* end, int64_t count) const {
        if constexpr (std::is_same_v<C, int32_t>)
            if (!from.weights) {
                EMBERTIDE_PICK(sort_short_rows)(cols, begin, end, count);
                return kShortRow;
            }
        return 1;
    }

    // Some columns of one row, whose end is set when all are there.
    int64_t sort_part(const Run& run) const {
        const uint64_t mask = (uint64_t{1} << bits) - 1;
        require(first_row(run) < rows || run.size() == 0, "keys: a row outside the rows");
        for (int64_t i = run.begin; i < run.end; ++i) {
            const auto col = static_cast<int64_t>(from.keys[i] & mask);
            require(col < nodes, "keys: a column that is no node");
            cols[i] = static_cast<C>(col);
        }
        sort_row(at(run.begin), run.size(), run.bits);
        return unique ? keep_last(at(run.begin), run.size(), at(run.begin)) : run.size();
    }

    // Counts `end` up from the rows' beginnings to their ends, while columns are put there.
    void place(const Run& run, int64_t* end, int64_t count) const {
        const uint64_t row_mask = (uint64_t{1} << (run.bits - bits)) - 1;
        const uint64_t col_mask = (uint64_t{1} << bits) - 1;
        const auto row_of = [&](int64_t i) {
            return static_cast<int64_t>(static_cast<uint64_t>(from.keys[i]) >> bits & row_mask);
        };
        std::fill_n(end, count, 0);
        for (int64_t i = run.begin; i < run.end; ++i) {
            require(row_of(i) < count, "keys: a row outside the rows");
            ++end[row_of(i)];
        }
        int64_t sum = run.begin;
        for (int64_t row = 0; row < count; ++row) sum += std::exchange(end[row], sum);
        const float* const weights = from.weights ? aside(run) : nullptr;
        uint64_t last = 0;
        for (int64_t i = run.begin; i < run.end; ++i) {
            const uint64_t col = from.keys[i] & col_mask;
            const int64_t to = end[row_of(i)]++;
            cols[to] = static_cast<C>(col);
            if (weights) from.weights[to] = weights[i - run.begin];
            last = std::max(last, col);
        }
        require(run.size() == 0 || last < static_cast<uint64_t>(nodes),
                "keys: a column that is no node");
    }

    // A copy of a run's weights.
    const float* aside(const Run& run) const {
        static thread_local std::vector<float> held(kSortedAtOnce);
        return static_cast<const float*>(std::memcpy(held.data(), from.weights + run.begin,
                                                     run.size() * sizeof(float)));
    }

    // Closes the gaps that duplicates left; sets the ends of rows. Returns all that were kept.
    int64_t join(const std::vector<Run>& runs, const std::vector<int64_t>& kept) const {
        std::vector<int64_t> to(runs.size());
        int64_t sum = 0;
        for (size_t i = 0; i < runs.size(); sum += kept[i++]) {
            to[i] = sum;
            if (sum == runs[i].begin) continue;
            std::memmove(cols + sum, cols + runs[i].begin, kept[i] * sizeof(C));
            if (from.weights)
                std::memmove(from.weights + sum, from.weights + runs[i].begin,
                             kept[i] * sizeof(float));
        }
        parallel_for(runs.size(), [&](int64_t i) {
            if (to[i] == runs[i].begin || !whole_rows(runs[i])) return;
            int64_t* const end = ends(runs[i]);
            for (int64_t row = 0; row < row_count(runs[i]); ++row)
                end[row] -= runs[i].begin - to[i];
        });
        for (size_t i = 0; i < runs.size(); ++i)
            if (!whole_rows(runs[i]) && first_row(runs[i]) < rows) *ends(runs[i]) = to[i] + kept[i];
        return sum;
    }
};

template <typename Key, typename C>
int64_t sort_buckets(Vector<Key> keys, std::optional<Vector<float>> weights, In<int64_t> starts,
                     int64_t nodes, int bits, int shift, bool unique, Vector<int64_t> indptr,
                     Vector<C> cols) {
    const int64_t size = keys.shape(0), *start = starts.data();
    const int64_t buckets = static_cast<int64_t>(starts.shape(0)) - 1;
    require(static_cast<int64_t>(cols.shape(0)) == size, "cols: one for each key");
    require(!weights || static_cast<int64_t>(weights->shape(0)) == size, "weights: one per key");
    require(buckets >= 0 && indptr.shape(0) > 0, "starts, indptr: too short");
    require(bits > 0 && shift >= 0 && bits + shift < 64, "bits: too many");
    const int64_t rows = static_cast<int64_t>(indptr.shape(0)) - 1;
    require(rows == 0 || (rows - 1) >> shift < buckets, "starts: too few buckets");
    for (int64_t b = 0; b < buckets; ++b)
        require(0 <= start[b] && start[b] <= start[b + 1] && start[b + 1] <= size,
                "starts: descend");
    require(buckets == 0 || (start[0] == 0 && start[buckets] == size), "starts: not of all keys");
    const Sorter<Key, C> sorter{{keys.data(), weights ? weights->data() : nullptr},
                                cols.data(),
                                indptr.data(),
                                rows,
                                nodes,
                                bits,
                                unique};
    std::vector<std::vector<Run>> split_runs(buckets);
    parallel_for(buckets, [&](int64_t b) {
        const uint64_t first = static_cast<uint64_t>(b) << (bits + shift);
        split(sorter.from, {start[b], start[b + 1], first, bits + shift}, split_runs[b]);
    });
    std::vector<Run> runs;
    for (auto& some : split_runs) runs.insert(runs.end(), some.begin(), some.end());
    std::vector<int64_t> kept(runs.size());
    indptr.data()[0] = 0;
    parallel_for(runs.size(), [&](int64_t i) { kept[i] = sorter.sort(runs[i]); });
    return sorter.join(runs, kept);
}

template <typename Key, typename C>
void bind_sort(nb::module_& m) {
    m.def("sort_buckets", sort_buckets<Key, C>, nb::arg("keys").noconvert(),
          nb::arg("weights").none(), nb::arg("starts").noconvert(), nb::arg("nodes"),
          nb::arg("bits"), nb::arg("shift"), nb::arg("unique"), nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), NoGil());
}

}  // namespace

void bind_csr_sort(nb::module_& m) {
    bind_sort<uint32_t, int32_t>(m);
    bind_sort<int64_t, int32_t>(m);
    bind_sort<int64_t, int64_t>(m);
}

}  // namespace embertide
