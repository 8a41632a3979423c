// Passes over the rows of a graph: self-loops, degrees.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>

#include "bindings.hpp"
#include "csr.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 17;
constexpr int64_t kOwnCounts = 32 << 20;  // bytes of all threads

template <typename F>
void for_rows(const int64_t* indptr, int64_t rows, int64_t nnz, const F& body) {
    const RowTasks tasks{indptr, rows, kGrain};
    parallel_for(tasks.count(), [&](int64_t task) {
        for (int64_t row = tasks.first(task), stop = tasks.first(task + 1); row < stop; ++row) {
            check_row(indptr, row, nnz);
            body(row, indptr[row], indptr[row + 1]);
        }
    });
}

// How each row gets its self-loop: the only one, last in the row; the only one, in its place among
// the ascending columns; one more than there were, in its place.
enum Loops { kLast = 0, kOne = 1, kMore = 2 };

int64_t added(int64_t loops, int how) { return how == kMore ? 1 : 1 - loops; }

// The rows' ends when each has its self-loop.
template <typename C>
void count_loops(In<int64_t> indptr, In<C> cols, int64_t first, int how,
                 Vector<int64_t> out) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz);
    require(out.shape(0) == indptr.shape(0), "out: as long as indptr");
    for_rows(indptr.data(), rows, nnz, [&](int64_t row, int64_t begin, int64_t end) {
        int64_t loops = 0;
        for (int64_t i = begin; i < end; ++i) loops += cols.data()[i] == row + first;
        out.data()[row + 1] = end - begin + added(loops, how);
    });
    out.data()[0] = 0;
    for (int64_t row = 0; row < rows; ++row) out.data()[row + 1] += out.data()[row];
}

template <typename C>
struct Row {
    const C* cols;
    const float* weights;
    int64_t size;
};

// One loop, last, with the heaviest weight of those there were.
template <typename C>
void single_loop(const Row<C>& row, C own, float weight, C* cols, float* weights) {
    float heaviest = -std::numeric_limits<float>::infinity();
    bool found = false;
    for (int64_t i = 0; i < row.size; ++i) {
        if (row.cols[i] != own) {
            *cols++ = row.cols[i];
            if (weights) *weights++ = row.weights[i];
        } else if (weights) {
            heaviest = std::max(heaviest, row.weights[i]);
            found = true;
        }
    }
    *cols = own;
    if (weights) *weights = found ? heaviest : weight;
}

// A new loop behind those that stay: all where one `more` is asked for, else the last of them,
// which is the heaviest, since equal columns ascend by weight.
template <typename C>
void loop_in_place(const Row<C>& row, C own, float weight, C* cols, float* weights, bool more) {
    const auto [low, high] = std::equal_range(row.cols, row.cols + row.size, own);
    const int64_t at = low - row.cols, past = high - row.cols, loops = past - at;
    const int64_t kept = more ? loops : std::min<int64_t>(loops, 1);
    const bool fresh = more || loops == 0;
    const auto copy = [&](const auto* from, auto* to, auto value) {
        to = std::copy_n(from, at, to);
        to = std::copy_n(from + past - kept, kept, to);
        if (fresh) *to++ = value;
        std::copy_n(from + past, row.size - past, to);
    };
    copy(row.cols, cols, own);
    if (weights) copy(row.weights, weights, weight);
}

template <typename C>
void fill_loops(In<int64_t> indptr, In<C> cols, std::optional<In<float>> weights, int64_t first,
                int how, float weight, In<int64_t> out_indptr, Vector<C> out_cols,
                std::optional<Vector<float>> out_weights) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz);
    const int64_t filled = out_cols.shape(0);
    require(checked_rows(out_indptr, filled) == rows, "out_indptr: of as many rows");
    require(weights.has_value() == out_weights.has_value(), "weights: on both sides or neither");
    if (weights)
        require(static_cast<int64_t>(weights->shape(0)) == nnz &&
                    static_cast<int64_t>(out_weights->shape(0)) == filled,
                "weights: one for each column");
    for_rows(indptr.data(), rows, nnz, [&](int64_t row, int64_t begin, int64_t end) {
        check_row(out_indptr.data(), row, filled);
        const C own = static_cast<C>(row + first);
        const int64_t to = out_indptr.data()[row], size = out_indptr.data()[row + 1] - to;
        const Row<C> in{cols.data() + begin, weights ? weights->data() + begin : nullptr,
                        end - begin};
        const int64_t loops = std::count(in.cols, in.cols + in.size, own);
        require(size == in.size + added(loops, how), "out_indptr: not counted");
        float* to_weights = weights ? out_weights->data() + to : nullptr;
        if (how == kLast)
            single_loop(in, own, weight, out_cols.data() + to, to_weights);
        else
            loop_in_place(in, own, weight, out_cols.data() + to, to_weights, how == kMore);
    });
}

// Counts of values [begin, end): small ones of this thread's own, which carry into the shared ones,
// since the few values that come most often would wander from core to core.
template <typename C>
void count_apart(const C* values, int64_t begin, int64_t end, int64_t size, int32_t* counts) {
    const std::unique_ptr<uint8_t[]> own(new uint8_t[size]());
    const auto carry = [&](int64_t value, int32_t count) {
        std::atomic_ref(counts[value]).fetch_add(count, std::memory_order_relaxed);
    };
    for (int64_t i = begin; i < end; ++i) {
        const int64_t value = values[i];
        require(value >= 0 && value < size, "values: outside the counts");
        if (++own[value] == 0) carry(value, 256);
    }
    for (int64_t value = 0; value < size; ++value)
        if (own[value]) carry(value, own[value]);
}

template <typename C>
void count_values(In<C> values, Vector<int32_t> counts) {
    const int64_t size = counts.shape(0), given = values.shape(0);
    // A few passes over all counts are little beside the values, and their memory is bounded.
    const int64_t parts = size && size <= kOwnCounts / threads() && size <= given ? threads() : 0;
    parallel_for(parts, [&](int64_t part) {
        count_apart(values.data(), given * part / parts, given * (part + 1) / parts, size,
                    counts.data());
    });
    if (parts) return;
    parallel_ranges(given, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t value = values.data()[i];
            require(value >= 0 && value < size, "values: outside the counts");
            std::atomic_ref(counts.data()[value]).fetch_add(1, std::memory_order_relaxed);
        }
    });
}

void row_lengths(In<int64_t> indptr, Vector<float> out) {
    require(indptr.shape(0) == out.shape(0) + 1, "out: one for each row");
    parallel_ranges(out.shape(0), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
            out.data()[row] = static_cast<float>(indptr.data()[row + 1] - indptr.data()[row]);
    });
}

void row_sums(In<int64_t> indptr, In<float> values, Vector<float> out) {
    const int64_t nnz = values.shape(0), rows = checked_rows(indptr, nnz);
    require(static_cast<int64_t>(out.shape(0)) == rows, "out: one for each row");
    for_rows(indptr.data(), rows, nnz, [&](int64_t row, int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) sum += values.data()[i];
        out.data()[row] = static_cast<float>(sum);
    });
}

template <typename C>
void bind_rows_of(nb::module_& m) {
    m.def("count_loops", count_loops<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("first"), nb::arg("how"),
          nb::arg("out").noconvert(), NoGil());
    m.def("fill_loops", fill_loops<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("first"),
          nb::arg("how"), nb::arg("weight"), nb::arg("out_indptr").noconvert(),
          nb::arg("out_cols").noconvert(), nb::arg("out_weights").none(), NoGil());
    m.def("count_values", count_values<C>, nb::arg("values").noconvert(),
          nb::arg("counts").noconvert(), NoGil());
}

}  // namespace

void bind_csr_rows(nb::module_& m) {
    bind_rows_of<int32_t>(m);
    bind_rows_of<int64_t>(m);
    m.def("row_lengths", row_lengths, nb::arg("indptr").noconvert(), nb::arg("out").noconvert(),
          NoGil());
    m.def("row_sums", row_sums, nb::arg("indptr").noconvert(), nb::arg("values").noconvert(),
          nb::arg("out").noconvert(), NoGil());
}

}  // namespace embertide
