// Some rows of a graph: which nodes their edges come from, which rows have an edge from some nodes
// and what these add up to, and the rows alone, with their sources numbered by other numbers.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "bindings.hpp"
#include "csr.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 16;

template <typename C>
void mark_sources(In<int64_t> indptr, In<C> cols, In<int64_t> rows, Vector<uint8_t> marked) {
    const int64_t nnz = cols.shape(0), all = checked_rows(indptr, nnz);
    const int64_t size = marked.shape(0), count = rows.shape(0);
    // Rows may have many edges or few; hubs come in the order of hashes, so anywhere.
    parallel_ranges(count, kGrain / 64, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            const int64_t row = rows.data()[at];
            require(row >= 0 && row < all, "rows: outside the graph");
            check_row(indptr.data(), row, nnz);
            for (int64_t i = indptr.data()[row]; i < indptr.data()[row + 1]; ++i) {
                const int64_t source = cols.data()[i];
                require(source >= 0 && source < size, "cols: outside the nodes");
                std::atomic_ref mark(marked.data()[source]);
                if (!mark.load(std::memory_order_relaxed))
                    mark.store(1, std::memory_order_relaxed);
            }
        }
    });
}

template <typename C>
void mark_targets(In<int64_t> indptr, In<C> cols, In<uint8_t> sources, Vector<uint8_t> marked) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz);
    const int64_t size = sources.shape(0);
    require(static_cast<int64_t>(marked.shape(0)) == rows, "marked: one for each row");
    const RowTasks tasks{indptr.data(), rows, kGrain};
    parallel_for(tasks.count(), [&](int64_t task) {
        for (int64_t row = tasks.first(task), stop = tasks.first(task + 1); row < stop; ++row) {
            check_row(indptr.data(), row, nnz);
            uint8_t any = 0;
            for (int64_t i = indptr.data()[row]; i < indptr.data()[row + 1] && !any; ++i) {
                const int64_t source = cols.data()[i];
                require(source >= 0 && source < size, "cols: outside the nodes");
                any = sources.data()[source];
            }
            marked.data()[row] = any;
        }
    });
}

// The sum over the in-edges of each row of the source's number, of sources that are marked.
template <typename C>
void add_at_targets(In<int64_t> indptr, In<C> cols, std::optional<In<float>> weights,
                    In<uint8_t> marked, In<double> values, Vector<double> sums) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz);
    const int64_t size = values.shape(0);
    require(static_cast<int64_t>(sums.shape(0)) == rows, "sums: one for each row");
    require(static_cast<int64_t>(marked.shape(0)) == size, "marked: one for each value");
    require(!weights || static_cast<int64_t>(weights->shape(0)) == nnz,
            "weights: one for each column");
    const RowTasks tasks{indptr.data(), rows, kGrain};
    parallel_for(tasks.count(), [&](int64_t task) {
        for (int64_t row = tasks.first(task), stop = tasks.first(task + 1); row < stop; ++row) {
            check_row(indptr.data(), row, nnz);
            double sum = 0;
            for (int64_t i = indptr.data()[row]; i < indptr.data()[row + 1]; ++i) {
                const int64_t source = cols.data()[i];
                require(source >= 0 && source < size, "cols: outside the nodes");
                if (marked.data()[source])
                    sum += values.data()[source] *
                           (weights ? std::abs(double{weights->data()[i]}) : 1.0);
            }
            sums.data()[row] = sum;
        }
    });
}

// Row `rows[k]` becomes row k: with all of its edges, or with none where the new indptr has none.
template <typename C, typename D>
void take_rows(In<int64_t> indptr, In<C> cols, std::optional<In<float>> weights, In<int64_t> rows,
               In<int64_t> numbers, In<int64_t> out_indptr, Vector<D> out_cols,
               std::optional<Vector<float>> out_weights) {
    const int64_t nnz = cols.shape(0), all = checked_rows(indptr, nnz);
    const int64_t taken = out_cols.shape(0), count = rows.shape(0), size = numbers.shape(0);
    require(checked_rows(out_indptr, taken) == count, "out_indptr: of as many rows");
    require(weights.has_value() == out_weights.has_value(), "weights: on both sides or neither");
    if (weights)
        require(static_cast<int64_t>(weights->shape(0)) == nnz &&
                    static_cast<int64_t>(out_weights->shape(0)) == taken,
                "weights: one for each column");
    const RowTasks tasks{out_indptr.data(), count, kGrain};
    parallel_for(tasks.count(), [&](int64_t task) {
        for (int64_t at = tasks.first(task), stop = tasks.first(task + 1); at < stop; ++at) {
            check_row(out_indptr.data(), at, taken);
            const int64_t to = out_indptr.data()[at], length = out_indptr.data()[at + 1] - to;
            if (!length) continue;
            const int64_t row = rows.data()[at];
            require(row >= 0 && row < all, "rows: outside the graph");
            check_row(indptr.data(), row, nnz);
            const int64_t from = indptr.data()[row];
            require(length == indptr.data()[row + 1] - from, "out_indptr: not of these rows");
            for (int64_t i = 0; i < length; ++i) {
                const int64_t source = cols.data()[from + i];
                require(source >= 0 && source < size, "cols: outside the numbers");
                out_cols.data()[to + i] = static_cast<D>(numbers.data()[source]);
            }
            if (weights)
                std::copy_n(weights->data() + from, length, out_weights->data() + to);
        }
    });
}

template <typename C, typename D>
void bind_take(nb::module_& m) {
    m.def("take_rows", take_rows<C, D>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("rows").noconvert(),
          nb::arg("numbers").noconvert(), nb::arg("out_indptr").noconvert(),
          nb::arg("out_cols").noconvert(), nb::arg("out_weights").none(), NoGil());
}

template <typename C>
void bind_some_of(nb::module_& m) {
    m.def("mark_sources", mark_sources<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("marked").noconvert(), NoGil());
    m.def("mark_targets", mark_targets<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("sources").noconvert(),
          nb::arg("marked").noconvert(), NoGil());
    m.def("add_at_targets", add_at_targets<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("marked").noconvert(),
          nb::arg("values").noconvert(), nb::arg("sums").noconvert(), NoGil());
    bind_take<C, int32_t>(m);
    bind_take<C, int64_t>(m);
}

}  // namespace

void bind_csr_some(nb::module_& m) {
    bind_some_of<int32_t>(m);
    bind_some_of<int64_t>(m);
}

}  // namespace embertide
