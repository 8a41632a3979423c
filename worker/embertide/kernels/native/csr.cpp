// Edges into bins: by the rank that owns their destination, or by a few neighbouring rows.
#include "csr.hpp"

#include <atomic>
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 15;  // so that a batch of edges is enough for a few threads
constexpr int64_t kTable = 1 << 12;

// The range that a node is in: a small table says where to start looking.
class Owners {
public:
    explicit Owners(const In<int64_t>& bounds)
        : bounds_(bounds.data()), count_(static_cast<int64_t>(bounds.shape(0)) - 1) {
        require(count_ > 0 && bounds_[0] >= 0, "bounds: at least one range");
        for (int64_t i = 0; i < count_; ++i)
            require(bounds_[i] <= bounds_[i + 1], "bounds: descend");
        while ((bounds_[count_] >> shift_) >= kTable) ++shift_;
        first_.resize((bounds_[count_] >> shift_) + 1);
        int64_t owner = 0;
        for (size_t i = 0; i < first_.size(); ++i) {
            const int64_t node = static_cast<int64_t>(i) << shift_;
            while (owner + 1 < count_ && bounds_[owner + 1] <= node) ++owner;
            first_[i] = static_cast<int32_t>(owner);
        }
    }

    int64_t count() const { return count_; }
    int64_t start(int64_t owner) const { return bounds_[owner]; }
    bool has(int64_t node) const { return node >= bounds_[0] && node < bounds_[count_]; }
    int64_t of(int64_t node) const {
        int64_t owner = first_[node >> shift_];
        while (node >= bounds_[owner + 1]) ++owner;
        return owner;
    }

private:
    const int64_t* bounds_;
    int64_t count_;
    int shift_ = 0;
    std::vector<int32_t> first_;
};

void add(int64_t& to, int64_t count) {
    std::atomic_ref(to).fetch_add(count, std::memory_order_relaxed);
}

template <typename T>
void count_edges(In<T> rows, In<int64_t> bounds, int shift, Matrix<int64_t> counts) {
    const Owners owners(bounds);
    const int64_t bins = counts.shape(1), stride = row_stride(counts, "counts");
    require(shift >= 0 && shift < 63, "shift: out of range");
    require(static_cast<int64_t>(counts.shape(0)) == owners.count(), "counts: a row per range");
    parallel_ranges(rows.shape(0), kGrain, [&](int64_t begin, int64_t end) {
        std::vector<int64_t> found(owners.count() * bins);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = rows.data()[i];
            require(owners.has(row), "rows: outside all ranges");
            const int64_t owner = owners.of(row), bin = (row - owners.start(owner)) >> shift;
            require(bin < bins, "counts: too few bins");
            ++found[owner * bins + bin];
        }
        for (int64_t at = 0; at < static_cast<int64_t>(found.size()); ++at)
            if (found[at]) add(counts.data()[at / bins * stride + at % bins], found[at]);
    });
}

// Where the keys of each bin go, and the next free place of each.
struct Target {
    Vector<int64_t> cursors, keys;
    std::optional<Vector<float>> weights;
};

// Tasks reserve places bin by bin as they come: the order within a bin is any.
template <typename Bin, typename Key>
void scatter(int64_t size, const std::optional<In<float>>& weights, const Target& to,
             const Bin& bin_of, const Key& key_of) {
    const int64_t bins = to.cursors.shape(0), room = to.keys.shape(0);
    require(weights.has_value() == to.weights.has_value(), "weights: on both sides or neither");
    if (weights) {
        require(static_cast<int64_t>(weights->shape(0)) == size, "weights: one for each edge");
        require(static_cast<int64_t>(to.weights->shape(0)) == room, "weights: one for each key");
    }
    const float* from_weights = weights ? weights->data() : nullptr;
    float* to_weights = weights ? to.weights->data() : nullptr;
    int64_t *const cursors = to.cursors.data(), *const keys = to.keys.data();
    parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
        std::vector<int64_t> at(bins);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t bin = bin_of(i);
            require(bin >= 0 && bin < bins, "edges: outside all bins");
            ++at[bin];
        }
        for (int64_t bin = 0; bin < bins; ++bin) {
            const int64_t count = at[bin];
            if (!count) continue;
            at[bin] = std::atomic_ref(cursors[bin]).fetch_add(count, std::memory_order_relaxed);
            require(at[bin] >= 0 && at[bin] + count <= room, "keys: too few");
        }
        for (int64_t i = begin; i < end; ++i) {
            const int64_t place = at[bin_of(i)]++;
            keys[place] = key_of(i);
            if (from_weights) to_weights[place] = from_weights[i];
        }
    });
}

template <typename T>
void partition_edges(In<T> rows, In<T> cols, std::optional<In<float>> weights, In<int64_t> bounds,
                     int bits, Vector<int64_t> cursors, Vector<int64_t> keys,
                     std::optional<Vector<float>> out_weights) {
    const Owners owners(bounds);
    require(rows.shape(0) == cols.shape(0), "cols: one for each row");
    require(static_cast<int64_t>(cursors.shape(0)) == owners.count(), "cursors: one per range");
    const T *row = rows.data(), *col = cols.data();
    scatter(
        rows.shape(0), weights, Target{cursors, keys, out_weights},
        [&](int64_t i) { return owners.has(row[i]) ? owners.of(row[i]) : -1; },
        [&](int64_t i) {
            return (row[i] - owners.start(owners.of(row[i]))) << bits | int64_t{col[i]};
        });
}

template <typename T>
void bucket_edges(In<T> rows, In<T> cols, std::optional<In<float>> weights, int64_t first,
                  int bits, int shift, Vector<int64_t> cursors, Vector<int64_t> keys,
                  std::optional<Vector<float>> out_weights) {
    require(rows.shape(0) == cols.shape(0), "cols: one for each row");
    const T *row = rows.data(), *col = cols.data();
    scatter(
        rows.shape(0), weights, Target{cursors, keys, out_weights},
        [&](int64_t i) { return (row[i] - first) >> shift; },
        [&](int64_t i) { return (row[i] - first) << bits | int64_t{col[i]}; });
}

void bucket_keys(In<int64_t> from, std::optional<In<float>> weights, int bits, int shift,
                 Vector<int64_t> cursors, Vector<int64_t> keys,
                 std::optional<Vector<float>> out_weights) {
    const int64_t* key = from.data();
    scatter(
        from.shape(0), weights, Target{cursors, keys, out_weights},
        [&](int64_t i) { return key[i] >> (bits + shift); }, [&](int64_t i) { return key[i]; });
}

template <typename T>
void bind_ends(nb::module_& m) {
    m.def("count_edges", count_edges<T>, nb::arg("rows").noconvert(),
          nb::arg("bounds").noconvert(), nb::arg("shift"), nb::arg("counts").noconvert(),
          NoGil());
    m.def("partition_edges", partition_edges<T>, nb::arg("rows").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("bounds").noconvert(),
          nb::arg("bits"), nb::arg("cursors").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("out_weights").none(), NoGil());
    m.def("bucket_edges", bucket_edges<T>, nb::arg("rows").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("first"),
          nb::arg("bits"), nb::arg("shift"), nb::arg("cursors").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("out_weights").none(), NoGil());
}

}  // namespace

void bind_csr(nb::module_& m) {
    bind_ends<int32_t>(m);
    bind_ends<int64_t>(m);
    m.def("bucket_keys", bucket_keys, nb::arg("from_").noconvert(), nb::arg("weights").none(),
          nb::arg("bits"), nb::arg("shift"), nb::arg("cursors").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("out_weights").none(), NoGil());
}

}  // namespace embertide
