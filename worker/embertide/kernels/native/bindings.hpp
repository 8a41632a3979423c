// One function for each area, which adds its entry points to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace embertide {

void bind_attention(nanobind::module_& m);
void bind_rows(nanobind::module_& m);
void bind_sddmm(nanobind::module_& m);

}  // namespace embertide
