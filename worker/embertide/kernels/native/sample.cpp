// k of a row's non-zeros by Floyd's algorithm, on words that a counter and the row's key give.
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "csr.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 15;

// SplitMix64's finaliser; embertide.kernels.hashing has the same.
uint64_t mix(uint64_t word) {
    word += 0x9E3779B97F4A7C15u;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

// Ascending distinct positions below `degree`, `fanout` of them.
void floyd(int64_t degree, int64_t fanout, uint64_t key, int64_t* picks) {
    const uint64_t row = mix(key);
    for (int64_t step = 0; step < fanout; ++step) {
        const int64_t top = degree - fanout + step;
        const uint64_t draw = mix(row + static_cast<uint64_t>(step)) >> 32;
        const auto pick = static_cast<int64_t>(draw * static_cast<uint64_t>(top + 1) >> 32);
        int64_t* at = std::lower_bound(picks, picks + step, pick);
        if (at != picks + step && *at == pick) {
            picks[step] = top;  // larger than all before
            continue;
        }
        std::copy_backward(at, picks + step, picks + step + 1);
        *at = pick;
    }
}

void sample_ends(In<int64_t> indptr, int64_t fanout, Vector<int64_t> out) {
    require(out.shape(0) == indptr.shape(0) && out.shape(0) > 0, "out: as long as indptr");
    out.data()[0] = 0;
    for (size_t row = 1; row < out.shape(0); ++row)
        out.data()[row] =
            out.data()[row - 1] + std::min(fanout, indptr.data()[row] - indptr.data()[row - 1]);
}

template <typename C>
void sample_rows(In<int64_t> indptr, In<C> cols, std::optional<In<float>> weights,
                 In<uint64_t> keys, int64_t fanout, uint64_t seed, uint64_t layer,
                 In<int64_t> out_indptr, Vector<C> out_cols,
                 std::optional<Vector<float>> out_weights) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz);
    const int64_t kept = out_cols.shape(0);
    require(checked_rows(out_indptr, kept) == rows, "out_indptr: of as many rows");
    require(static_cast<int64_t>(keys.shape(0)) == rows, "keys: one for each row");
    require(fanout > 0, "fanout: positive");
    require(weights.has_value() == out_weights.has_value(), "weights: on both sides or neither");
    if (weights)
        require(static_cast<int64_t>(weights->shape(0)) == nnz &&
                    static_cast<int64_t>(out_weights->shape(0)) == kept,
                "weights: one for each column");
    const uint64_t stream = mix(mix(seed) ^ layer);
    const RowTasks tasks{out_indptr.data(), rows, kGrain};
    parallel_for(tasks.count(), [&](int64_t task) {
        std::vector<int64_t> picks(fanout);
        for (int64_t row = tasks.first(task), stop = tasks.first(task + 1); row < stop; ++row) {
            check_row(indptr.data(), row, nnz);
            check_row(out_indptr.data(), row, kept);
            const int64_t from = indptr.data()[row], degree = indptr.data()[row + 1] - from;
            const int64_t to = out_indptr.data()[row], count = std::min(fanout, degree);
            require(out_indptr.data()[row + 1] - to == count, "out_indptr: not counted");
            if (degree > fanout) floyd(degree, fanout, keys.data()[row] ^ stream, picks.data());
            for (int64_t i = 0; i < count; ++i) {
                const int64_t at = from + (degree > fanout ? picks[i] : i);
                out_cols.data()[to + i] = cols.data()[at];
                if (weights) out_weights->data()[to + i] = weights->data()[at];
            }
        }
    });
}

template <typename C>
void bind_sample_of(nb::module_& m) {
    m.def("sample_rows", sample_rows<C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("keys").noconvert(),
          nb::arg("fanout"), nb::arg("seed"), nb::arg("layer"),
          nb::arg("out_indptr").noconvert(), nb::arg("out_cols").noconvert(),
          nb::arg("out_weights").none(), NoGil());
}

}  // namespace

void bind_sample(nb::module_& m) {
    m.def("sample_ends", sample_ends, nb::arg("indptr").noconvert(), nb::arg("fanout"),
          nb::arg("out").noconvert(), NoGil());
    bind_sample_of<int32_t>(m);
    bind_sample_of<int64_t>(m);
}

}  // namespace embertide
