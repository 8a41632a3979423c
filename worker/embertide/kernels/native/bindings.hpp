// One function for each area, which adds its entry points to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace embertide {

void bind_reading(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_parquet(nanobind::module_& m);
void bind_parquet_footer(nanobind::module_& m);
void bind_shared_memory(nanobind::module_& m);
void bind_ids(nanobind::module_& m);
void bind_id_groups(nanobind::module_& m);
void bind_id_owners(nanobind::module_& m);
void bind_rows(nanobind::module_& m);
void bind_row_pairs(nanobind::module_& m);
void bind_spmm(nanobind::module_& m);
void bind_csr(nanobind::module_& m);
void bind_csr_ranges(nanobind::module_& m);
void bind_csr_rows(nanobind::module_& m);
void bind_csr_some(nanobind::module_& m);
void bind_csr_sort(nanobind::module_& m);
void bind_cut(nanobind::module_& m);
void bind_node_set(nanobind::module_& m);
void bind_sample(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_sddmm(nanobind::module_& m);

}  // namespace embertide
