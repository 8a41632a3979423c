#include "rows.hpp"

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 4096;

void gather(Matrix<float> to, InMatrix<float> from, In<int64_t> index) {
    require(to.shape(0) == index.shape(0), "to: one row for each index");
    require(to.shape(1) == from.shape(1), "to: as wide as from");
    const int64_t to_stride = row_stride(to, "to"), from_stride = row_stride(from, "from");
    const int64_t rows = from.shape(0);
    const int64_t* at = index.data();
    const auto run = EMBERTIDE_PICK(gather_rows);
    parallel_ranges(index.shape(0), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            require(at[i] >= 0 && at[i] < rows, "index: outside the rows of from");
        run(reinterpret_cast<const char*>(from.data()), 4 * from_stride, at, begin, end,
            reinterpret_cast<char*>(to.data()), 4 * to_stride, 4 * from.shape(1));
    });
}

}  // namespace

void bind_rows(nb::module_& m) {
    m.def("gather_rows", gather, nb::arg("to").noconvert(), nb::arg("from_").noconvert(),
          nb::arg("index").noconvert(), NoGil());
}

}  // namespace embertide
