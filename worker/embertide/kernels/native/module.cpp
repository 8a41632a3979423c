#include "arrays.hpp"
#include "bindings.hpp"
#include "isa.hpp"
#include "pool.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
    using namespace embertide;
    m.doc() = "Native kernels of Embertide; embertide.kernels.native chooses when they are used.";
    m.def("set_threads", &set_threads, nb::arg("count"));
    m.def("threads", &threads);
    m.def("work_alone", &work_alone);
    m.def("isa", &isa_name);
    m.def("done", [] {
        const Done found = done();
        return nb::make_tuple(found.tasks, found.entries);
    });
    bind_reading(m);
    bind_memory(m);
    bind_parquet(m);
    bind_parquet_footer(m);
    bind_shared_memory(m);
    bind_ids(m);
    bind_rows(m);
    bind_row_pairs(m);
    bind_spmm(m);
    bind_csr(m);
    bind_csr_ranges(m);
    bind_csr_rows(m);
    bind_csr_some(m);
    bind_csr_sort(m);
    bind_cut(m);
    bind_node_set(m);
    bind_sample(m);
    bind_attention(m);
    bind_sddmm(m);
}
