// Edges by the range of rows that their destination is in: which rank they go to.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 15;  // so that a batch of edges is enough for a few threads
constexpr int64_t kBlock = 2048;     // edges that are put in order in the nearest cache
constexpr int64_t kFew = 3;          // ranges that are gone over one by one
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
    int64_t stop(int64_t owner) const { return bounds_[owner + 1]; }
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

// Edges by both ends, and their weights or null.
template <typename T>
struct Edges {
    const T *rows, *cols;
    const float* weights;
};

// Some edges as they go out, packed: rows are counted from their range's first.
struct Packed {
    int64_t keys[kBlock];
    float weights[kBlock];
};

// Where the packed edges of a range go.
class Ranges {
public:
    Ranges(Vector<int64_t> cursors, Vector<int64_t> keys, std::optional<Vector<float>> weights)
        : cursors_(cursors.data()), keys_(keys.data()),
          weights_(weights ? weights->data() : nullptr), room_(keys.shape(0)) {
        require(!weights || static_cast<int64_t>(weights->shape(0)) == room_,
                "weights: one for each key");
    }

    bool weighted() const { return weights_ != nullptr; }

    // Appends `count` edges of a block to a range; the order within it is any.
    void append(int64_t range, const Packed& block, int64_t first, int64_t count) const {
        if (!count) return;
        const int64_t at =
            std::atomic_ref(cursors_[range]).fetch_add(count, std::memory_order_relaxed);
        require(at >= 0 && at + count <= room_, "keys: too few");
        std::memcpy(keys_ + at, block.keys + first, count * sizeof(int64_t));
        if (weights_) std::memcpy(weights_ + at, block.weights + first, count * sizeof(float));
    }

private:
    int64_t* cursors_;
    int64_t* keys_;
    float* weights_;
    int64_t room_;
};

// Range by range, without a branch that depends on an edge.
template <typename T>
void partition_few(const Owners& owners, const Edges<T>& edges, int64_t size, int bits,
                   const Ranges& to, Packed& block) {
    int64_t found = 0;
    for (int64_t owner = 0; owner < owners.count(); ++owner) {
        const int64_t low = owners.start(owner);
        const auto rows = static_cast<uint64_t>(owners.stop(owner) - low);
        int64_t count = 0;
        for (int64_t i = 0; i < size; ++i) {
            const auto row = static_cast<uint64_t>(int64_t{edges.rows[i]} - low);
            block.keys[count] = static_cast<int64_t>(row << bits) | int64_t{edges.cols[i]};
            if (edges.weights) block.weights[count] = edges.weights[i];
            count += row < rows;
        }
        to.append(owner, block, 0, count);
        found += count;
    }
    require(found == size, "rows: outside all ranges");
}

// Each edge to its place behind those of its range that came before.
template <typename T>
void partition_many(const Owners& owners, const Edges<T>& edges, int64_t size, int bits,
                    const Ranges& to, Packed& block, std::vector<int64_t>& ends) {
    int64_t owner_of[kBlock];
    ends.assign(owners.count(), 0);
    for (int64_t i = 0; i < size; ++i) {
        require(owners.has(edges.rows[i]), "rows: outside all ranges");
        ++ends[owner_of[i] = owners.of(edges.rows[i])];
    }
    int64_t sum = 0;
    for (int64_t& end : ends) sum += std::exchange(end, sum);
    for (int64_t i = 0; i < size; ++i) {
        const int64_t owner = owner_of[i], place = ends[owner]++;
        block.keys[place] = (edges.rows[i] - owners.start(owner)) << bits | int64_t{edges.cols[i]};
        if (edges.weights) block.weights[place] = edges.weights[i];
    }
    int64_t first = 0;
    for (int64_t owner = 0; owner < owners.count(); first = ends[owner++])
        to.append(owner, block, first, ends[owner] - first);
}

template <typename T>
void partition_edges(In<T> rows, In<T> cols, std::optional<In<float>> weights, In<int64_t> bounds,
                     int bits, Vector<int64_t> cursors, Vector<int64_t> keys,
                     std::optional<Vector<float>> out_weights) {
    const Owners owners(bounds);
    const Ranges to(cursors, keys, out_weights);
    const int64_t size = rows.shape(0);
    require(static_cast<int64_t>(cursors.shape(0)) == owners.count(), "cursors: one per range");
    require(static_cast<int64_t>(cols.shape(0)) == size, "cols: one for each row");
    require(!weights || static_cast<int64_t>(weights->shape(0)) == size,
            "weights: one for each edge");
    require(weights.has_value() == to.weighted() || size == 0, "weights: on both sides or neither");
    require(bits >= 0 && bits < 63, "bits: out of range");
    parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
        Packed block;
        std::vector<int64_t> ends;
        for (int64_t at = begin; at < end; at += kBlock) {
            const Edges<T> some{rows.data() + at, cols.data() + at,
                                weights ? weights->data() + at : nullptr};
            const int64_t count = std::min(kBlock, end - at);
            if (owners.count() <= kFew)
                partition_few(owners, some, count, bits, to, block);
            else
                partition_many(owners, some, count, bits, to, block, ends);
        }
    });
}

template <typename T>
void bind(nb::module_& m) {
    m.def("count_edges", count_edges<T>, nb::arg("rows").noconvert(),
          nb::arg("bounds").noconvert(), nb::arg("shift"), nb::arg("counts").noconvert(),
          NoGil());
    m.def("partition_edges", partition_edges<T>, nb::arg("rows").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("bounds").noconvert(),
          nb::arg("bits"), nb::arg("cursors").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("out_weights").none(), NoGil());
}

}  // namespace

void bind_csr_ranges(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace embertide
