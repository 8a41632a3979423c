#include "rows.hpp"

#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 4096;

// Every index of [begin, end) is one of `rows`.
void check(const int64_t* index, int64_t begin, int64_t end, int64_t rows, const char* what) {
    bool inside = true;
    for (int64_t i = begin; i < end; ++i) inside &= index[i] >= 0 && index[i] < rows;
    require(inside, what);
}

// Bytes of a value of both, which must be of one type.
template <typename A, typename B>
int64_t value_bytes(const A& to, const B& from) {
    const bool narrow = is_narrow(from, "from");
    require(is_narrow(to, "to") == narrow, "to: of the type of from");
    return narrow ? sizeof(Bf16) : sizeof(float);
}

void gather(Rows to, InRows from, In<int64_t> index, std::optional<In<float>> scale) {
    require(to.shape(0) == index.shape(0), "to: one row for each index");
    require(to.shape(1) == from.shape(1), "to: as wide as from");
    require(!scale || scale->shape(0) == from.shape(0), "scale: one for each row of from");
    const int64_t to_stride = row_stride(to, "to"), from_stride = row_stride(from, "from");
    const int64_t rows = from.shape(0), width = from.shape(1), value = value_bytes(to, from);
    const Values given = values_of(from, "from");
    const int64_t* at = index.data();
    const auto plain = EMBERTIDE_PICK(gather_rows);
    const auto scaled = EMBERTIDE_PICK(gather_scaled_rows);
    parallel_ranges(index.shape(0), kGrain, [&](int64_t begin, int64_t end) {
        check(at, begin, end, rows, "index: outside the rows of from");
        if (scale)
            scaled(given, from_stride, scale->data(), at, begin, end, to.data(), to_stride, width);
        else
            plain(static_cast<const char*>(from.data()), value * from_stride, at, begin, end,
                  static_cast<char*>(to.data()), value * to_stride, value * width);
    });
}

void scatter(Rows to, In<int64_t> index, InRows from) {
    require(from.shape(0) == index.shape(0), "from: one row for each index");
    require(to.shape(1) == from.shape(1), "to: as wide as from");
    const int64_t to_stride = row_stride(to, "to"), from_stride = row_stride(from, "from");
    const int64_t rows = to.shape(0), value = value_bytes(to, from);
    const int64_t* at = index.data();
    const auto run = EMBERTIDE_PICK(scatter_rows);
    parallel_ranges(index.shape(0), kGrain, [&](int64_t begin, int64_t end) {
        check(at, begin, end, rows, "index: outside the rows of to");
        run(static_cast<const char*>(from.data()), value * from_stride, at, begin, end,
            static_cast<char*>(to.data()), value * to_stride, value * from.shape(1));
    });
}

}  // namespace

void bind_rows(nb::module_& m) {
    m.def("gather_rows", gather, nb::arg("to").noconvert(), nb::arg("from_").noconvert(),
          nb::arg("index").noconvert(), nb::arg("scale").noconvert() = nb::none(), NoGil());
    m.def("scatter_rows", scatter, nb::arg("to").noconvert(), nb::arg("index").noconvert(),
          nb::arg("from_").noconvert(), NoGil());
}

}  // namespace embertide
