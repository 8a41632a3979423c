// Edges into bins of a few neighbouring rows.
#include "csr.hpp"

#include <atomic>
#include <optional>
#include <vector>

#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 15;  // so that a batch of edges is enough for a few threads
constexpr int64_t kBinGrain = 64;     // edges of a task for each bin, on average

// Where the keys of each bin go, and the next free place of each.
template <typename Key>
struct Target {
    Vector<int64_t> cursors;
    Vector<Key> keys;
    std::optional<Vector<float>> weights;
};

// Edges by both ends, or packed, and their weights or null.
template <typename T>
struct Ends {
    const T *rows, *cols;
    const float* weights;
    int64_t size;
};
struct Keys {
    const int64_t* keys;
    const float* weights;
    int64_t size;
};

// Part of an array of edges.
struct Span {
    size_t array;
    int64_t begin, end;
};

// All edges, cut into tasks: of so many, of one array or of several.
template <typename Edges>
std::vector<std::vector<Span>> tasks_of(const std::vector<Edges>& arrays, int64_t grain) {
    std::vector<std::vector<Span>> tasks;
    int64_t room = 0;
    for (size_t array = 0; array < arrays.size(); ++array)
        for (int64_t at = 0, end; at < arrays[array].size; room -= end - at, at = end) {
            if (room == 0) {
                tasks.emplace_back();
                room = grain;
            }
            end = std::min(arrays[array].size, at + room);
            tasks.back().push_back({array, at, end});
        }
    return tasks;
}

// Tasks reserve places bin by bin as they come: the order within a bin is any.
template <typename Edges, typename Key, typename Bin, typename Pack>
void scatter(const std::vector<Edges>& arrays, const Target<Key>& to, const Bin& bin_of,
             const Pack& key_of) {
    const int64_t bins = to.cursors.shape(0), room = to.keys.shape(0);
    if (to.weights)
        require(static_cast<int64_t>(to.weights->shape(0)) == room, "weights: one for each key");
    for (const Edges& edges : arrays)
        require((edges.weights != nullptr) == to.weights.has_value() || edges.size == 0,
                "weights: on both sides or neither");
    int64_t* const cursors = to.cursors.data();
    Key* const keys = to.keys.data();
    float* const to_weights = to.weights ? to.weights->data() : nullptr;
    // A bin's share of a task fills a few cache lines.
    const auto tasks = tasks_of(arrays, std::max(kGrain, kBinGrain * bins));
    parallel_for(tasks.size(), [&](int64_t task) {
        std::vector<int64_t> at(bins);
        for (const auto& [array, begin, end] : tasks[task])
            for (int64_t i = begin; i < end; ++i) {
                const int64_t bin = bin_of(arrays[array], i);
                require(bin >= 0 && bin < bins, "edges: outside all bins");
                ++at[bin];
            }
        for (int64_t bin = 0; bin < bins; ++bin) {
            const int64_t count = at[bin];
            if (!count) continue;
            at[bin] = std::atomic_ref(cursors[bin]).fetch_add(count, std::memory_order_relaxed);
            require(at[bin] >= 0 && at[bin] + count <= room, "keys: too few");
        }
        for (const auto& [array, begin, end] : tasks[task]) {
            const float* const weights = arrays[array].weights;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t place = at[bin_of(arrays[array], i)]++;
                keys[place] = static_cast<Key>(key_of(arrays[array], i));
                if (to_weights) to_weights[place] = weights[i];
            }
        }
    });
}

template <typename T>
Ends<T> ends_of(const In<T>& rows, const In<T>& cols, const std::optional<In<float>>& weights) {
    require(rows.shape(0) == cols.shape(0), "cols: one for each row");
    require(!weights || weights->shape(0) == rows.shape(0), "weights: one for each edge");
    return {rows.data(), cols.data(), weights ? weights->data() : nullptr,
            static_cast<int64_t>(rows.shape(0))};
}

// Keys that are narrower lack the highest bits, which all in a bucket share.
template <typename T, typename Key>
void bucket_edges(const std::vector<In<T>>& rows, const std::vector<In<T>>& cols,
                  const std::vector<std::optional<In<float>>>& weights, int64_t first, int bits,
                  int shift, Vector<int64_t> cursors, Vector<Key> keys,
                  std::optional<Vector<float>> out_weights) {
    require(rows.size() == cols.size() && rows.size() == weights.size(), "rows: as many as cols");
    std::vector<Ends<T>> arrays;
    for (size_t i = 0; i < rows.size(); ++i)
        arrays.push_back(ends_of(rows[i], cols[i], weights[i]));
    scatter(
        arrays, Target<Key>{cursors, keys, out_weights},
        [&](const Ends<T>& edges, int64_t i) { return (edges.rows[i] - first) >> shift; },
        [&](const Ends<T>& edges, int64_t i) {
            return (edges.rows[i] - first) << bits | int64_t{edges.cols[i]};
        });
}

template <typename Key>
void bucket_keys(In<int64_t> from, std::optional<In<float>> weights, int bits, int shift,
                 Vector<int64_t> cursors, Vector<Key> keys,
                 std::optional<Vector<float>> out_weights) {
    require(!weights || weights->shape(0) == from.shape(0), "weights: one for each edge");
    const Keys all{from.data(), weights ? weights->data() : nullptr,
                   static_cast<int64_t>(from.shape(0))};
    scatter(
        std::vector{all}, Target<Key>{cursors, keys, out_weights},
        [&](const Keys& edges, int64_t i) { return edges.keys[i] >> (bits + shift); },
        [](const Keys& edges, int64_t i) { return edges.keys[i]; });
}

template <typename T, typename Key>
void bind_bucket_edges(nb::module_& m) {
    m.def("bucket_edges", bucket_edges<T, Key>, nb::arg("rows").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights"), nb::arg("first"), nb::arg("bits"),
          nb::arg("shift"), nb::arg("cursors").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("out_weights").none(), NoGil());
}

template <typename Key>
void bind_bucket_keys(nb::module_& m) {
    m.def("bucket_keys", bucket_keys<Key>, nb::arg("from_").noconvert(), nb::arg("weights").none(),
          nb::arg("bits"), nb::arg("shift"), nb::arg("cursors").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("out_weights").none(), NoGil());
}

}  // namespace

void bind_csr(nb::module_& m) {
    bind_bucket_edges<int32_t, uint32_t>(m);
    bind_bucket_edges<int32_t, int64_t>(m);
    bind_bucket_edges<int64_t, uint32_t>(m);
    bind_bucket_edges<int64_t, int64_t>(m);
    bind_bucket_keys<uint32_t>(m);
    bind_bucket_keys<int64_t>(m);
}

}  // namespace embertide
