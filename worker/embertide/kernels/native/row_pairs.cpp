#include "row_pairs.hpp"

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 2048;

void look(InMatrix<float> rows, In<uint64_t> factors, Vector<float> norms, Vector<uint64_t> prints) {
    const int64_t count = rows.shape(0), width = rows.shape(1);
    const int64_t stride = row_stride(rows, "rows");
    require(static_cast<int64_t>(factors.shape(0)) == (width + 1) / 2,
            "factors: one for each two values");
    require(static_cast<int64_t>(norms.shape(0)) == count, "norms: one for each row");
    require(static_cast<int64_t>(prints.shape(0)) == count, "prints: one for each row");
    const auto run = EMBERTIDE_PICK(look_at_rows);
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
        run(rows.data(), stride, width, begin, end, factors.data(), norms.data(), prints.data());
    });
}

void compare(InMatrix<float> rows, In<int64_t> places, InMatrix<float> earlier,
             Vector<uint8_t> states, Vector<double> squares, Vector<double> distances) {
    const int64_t count = earlier.shape(0), there = rows.shape(0);
    const int64_t stride = row_stride(rows, "rows");
    const int64_t earlier_stride = row_stride(earlier, "earlier");
    require(rows.shape(1) == earlier.shape(1), "earlier: as wide as rows");
    for (const int64_t size : {places.shape(0), states.shape(0), squares.shape(0),
                               distances.shape(0)})
        require(size == count, "places, states, squares, distances: one for each earlier row");
    const RowMoves out{states.data(), squares.data(), distances.data()};
    const auto run = EMBERTIDE_PICK(compare_rows);
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
        bool inside = true;
        for (int64_t i = begin; i < end; ++i)
            inside &= places.data()[i] >= -1 && places.data()[i] < there;
        require(inside, "places: outside the rows");
        run(rows.data(), stride, places.data(), earlier.data(), earlier_stride, rows.shape(1), begin,
            end, out);
    });
}

void count(In<double> values, In<double> edges, Vector<int64_t> counts) {
    const int64_t bins = edges.shape(0);
    require(bins > 1, "edges: two at least");
    require(static_cast<int64_t>(counts.shape(0)) == bins + 1, "counts: one more than edges");
    for (int64_t i = 0; i < bins; ++i)
        require(edges.data()[i] > (i ? edges.data()[i - 1] : 0), "edges: positive and ascending");
    EMBERTIDE_PICK(count_bins)(values.data(), values.shape(0), edges.data(), bins, counts.data());
}

}  // namespace

void bind_row_pairs(nb::module_& m) {
    m.def("look_at_rows", look, nb::arg("rows").noconvert(), nb::arg("factors").noconvert(),
          nb::arg("norms").noconvert(), nb::arg("prints").noconvert(), NoGil());
    m.def("count_bins", count, nb::arg("values").noconvert(), nb::arg("edges").noconvert(),
          nb::arg("counts").noconvert(), NoGil());
    m.def("compare_rows", compare, nb::arg("rows").noconvert(), nb::arg("places").noconvert(),
          nb::arg("earlier").noconvert(), nb::arg("states").noconvert(),
          nb::arg("squares").noconvert(), nb::arg("distances").noconvert(), NoGil());
}

}  // namespace embertide
