// Nodes by the rank that owns them, and where their features are.
#include <algorithm>
#include <atomic>
#include <vector>

#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "ids_partition.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kAhead = 16;  // nodes between asking for a place in memory and writing it

// A stable order by owner of ids in [bounds[0], bounds[owners]), and rows within their owners.
template <typename Id>
std::vector<int64_t> split_by_owner(In<Id> nodes, In<int64_t> bounds, Vector<int64_t> order,
                                    Vector<int64_t> rows) {
    const int64_t size = nodes.shape(0), owners = static_cast<int64_t>(bounds.shape(0)) - 1;
    require(owners > 0, "bounds: of at least one range");
    require(static_cast<int64_t>(order.shape(0)) == size, "order: one for each node");
    require(static_cast<int64_t>(rows.shape(0)) == size, "rows: one for each node");
    const int64_t* cuts = bounds.data();
    const auto owner_of = [&](int64_t i) -> int64_t {
        const int64_t node = nodes.data()[i];
        require(node >= cuts[0] && node < cuts[owners], "nodes: outside all ranges");
        return std::upper_bound(cuts, cuts + owners, node) - cuts - 1;
    };
    const auto place = [&](int64_t i, int64_t owner, int64_t to) {
        order.data()[to] = i;
        rows.data()[to] = nodes.data()[i] - cuts[owner];
    };
    const auto starts = partition(size, owners, owner_of, place);
    std::vector<int64_t> counts(owners);
    for (int64_t owner = 0; owner < owners; ++owner)
        counts[owner] = starts[owner + 1] - starts[owner];
    return counts;
}

// Sets a row's location to (rank, place), or, where it has one, the rank to -2.
template <typename T>
void place_one(T* locations, int64_t rows, int64_t row, int64_t rank, int64_t place) {
    require(row >= 0 && row < rows, "pairs: outside the rows");
    T* at = locations + 2 * row;
    at[0] = at[0] == -1 ? static_cast<T>(rank) : -2;
    at[1] = static_cast<T>(place);
}

// locations[row] = (rank, place) for each pair (row, place); a row that has one gets rank -2.
template <typename T>
void place_locations(Vector<T> locations, In<T> pairs, int64_t rank) {
    const int64_t rows = locations.shape(0) / 2;
    require(locations.shape(0) % 2 == 0 && pairs.shape(0) % 2 == 0, "pairs: of two values");
    for (size_t i = 0; i < pairs.shape(0); i += 2)
        place_one(locations.data(), rows, pairs.data()[i], rank, pairs.data()[i + 1]);
}

// locations[nodes[i]] = (rank, i); of a row that several nodes have, i is any of theirs.
template <typename T>
void place_in_order(Vector<T> locations, In<int64_t> nodes, int64_t rank) {
    const int64_t size = nodes.shape(0), rows = locations.shape(0) / 2;
    require(locations.shape(0) % 2 == 0, "locations: of two values");
    parallel_ranges(size, 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t later = nodes.data()[std::min(i + kAhead, end - 1)];
            if (later >= 0 && later < rows) __builtin_prefetch(locations.data() + 2 * later, 1);
            const int64_t row = nodes.data()[i];
            require(row >= 0 && row < rows, "nodes: outside the rows");
            T* at = locations.data() + 2 * row;
            T none = -1;
            if (!std::atomic_ref(at[0]).compare_exchange_strong(none, static_cast<T>(rank),
                                                                std::memory_order_relaxed))
                std::atomic_ref(at[0]).store(-2, std::memory_order_relaxed);
            std::atomic_ref(at[1]).store(static_cast<T>(i), std::memory_order_relaxed);
        }
    });
}

// locations[i] = (rank, i) for all rows if the nodes are just 0, 1, 2 and so on; else returns false,
// and locations are anything.
template <typename T>
bool place_sequence(Vector<T> locations, In<int64_t> nodes, int64_t rank) {
    const int64_t size = nodes.shape(0);
    require(locations.shape(0) % 2 == 0, "locations: of two values");
    if (static_cast<int64_t>(locations.shape(0)) != 2 * size) return false;
    std::atomic<bool> sequence{true};
    parallel_ranges(size, 1 << 18, [&](int64_t begin, int64_t end) {
        if (!sequence.load(std::memory_order_relaxed)) return;
        int64_t others = 0;
        for (int64_t i = begin; i < end; ++i) {
            others |= nodes.data()[i] ^ i;
            locations.data()[2 * i] = static_cast<T>(rank);
            locations.data()[2 * i + 1] = static_cast<T>(i);
        }
        if (others) sequence.store(false, std::memory_order_relaxed);
    });
    return sequence.load();
}

}  // namespace

void bind_id_owners(nb::module_& m) {
    const auto nodes = nb::arg("nodes").noconvert();
    const auto bounds = nb::arg("bounds").noconvert();
    const auto order = nb::arg("order").noconvert();
    const auto rows = nb::arg("rows").noconvert();
    const auto rank = nb::arg("rank");
    const auto locations = nb::arg("locations").noconvert();
    const auto pairs = nb::arg("pairs").noconvert();
    m.def("split_by_owner", split_by_owner<int32_t>, nodes, bounds, order, rows, NoGil());
    m.def("split_by_owner", split_by_owner<int64_t>, nodes, bounds, order, rows, NoGil());
    m.def("place_in_order", place_in_order<int32_t>, locations, nodes, rank, NoGil());
    m.def("place_in_order", place_in_order<int64_t>, locations, nodes, rank, NoGil());
    m.def("place_sequence", place_sequence<int32_t>, locations, nodes, rank, NoGil());
    m.def("place_sequence", place_sequence<int64_t>, locations, nodes, rank, NoGil());
    m.def("place_locations", place_locations<int32_t>, locations, pairs, rank, NoGil());
    m.def("place_locations", place_locations<int64_t>, locations, pairs, rank, NoGil());
}

}  // namespace embertide
