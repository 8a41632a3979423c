#include "reading.hpp"

#include "arrays.hpp"
#include "bindings.hpp"

namespace embertide {
namespace {

bool place(Matrix<float> to, InMatrix<float> from, In<int64_t> rows) {
    require(from.shape(0) == rows.shape(0), "from: one row for each index");
    require(to.shape(1) == from.shape(1), "to: as wide as from");
    // Arrays without values have any strides.
    if (from.shape(0) == 0) return true;
    const int64_t to_stride = row_stride(to, "to"), from_stride = row_stride(from, "from");
    const int64_t count = rows.shape(0), limit = to.shape(0);
    const int64_t* at = rows.data();
    for (int64_t i = 0; i < count; ++i)
        require(at[i] >= 0 && at[i] < limit, "rows: outside the rows of to");
    return EMBERTIDE_PICK(place_rows)(reinterpret_cast<const uint32_t*>(from.data()), from_stride,
                                      at, count, reinterpret_cast<uint32_t*>(to.data()), to_stride,
                                      from.shape(1));
}

void narrow(Vector<int32_t> to, In<int64_t> from) {
    require(to.shape(0) == from.shape(0), "to: as long as from");
    EMBERTIDE_PICK(narrow_ids)(from.data(), from.shape(0), to.data());
}

template <typename Id>
void count_ids(Vector<int64_t> counts, In<Id> ids, int shift) {
    require(shift >= 0 && shift < 64, "shift: 0 to 63");
    const auto buckets = static_cast<uint64_t>(counts.shape(0));
    int64_t* out = counts.data();
    const Id* id = ids.data();
    const int64_t size = ids.shape(0);
    for (int64_t i = 0; i < size; ++i) {
        const uint64_t bucket = static_cast<uint64_t>(static_cast<int64_t>(id[i]) >> shift);
        require(bucket < buckets, "ids: beyond the last bucket");
        ++out[bucket];
    }
}

}  // namespace

void bind_reading(nb::module_& m) {
    const auto to = nb::arg("to").noconvert(), from = nb::arg("from_").noconvert();
    m.def("place_rows", place, to, from, nb::arg("rows").noconvert(), NoGil());
    m.def("narrow_ids", narrow, to, from, NoGil());
    const auto counts = nb::arg("counts").noconvert(), ids = nb::arg("ids").noconvert();
    m.def("count_ids", count_ids<int32_t>, counts, ids, nb::arg("shift"), NoGil());
    m.def("count_ids", count_ids<int64_t>, counts, ids, nb::arg("shift"), NoGil());
}

}  // namespace embertide
