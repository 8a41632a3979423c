// What Python passes: contiguous CPU arrays of any library that speaks DLPack or the buffer
// protocol (torch, numpy), checked here and then handed on as raw pointers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "bf16.hpp"

namespace embertide {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Rows may be apart (column slices); a row itself is contiguous, see `stride`.
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <typename T>
using InMatrix = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;

// Every entry point with these releases the GIL; they must not touch Python objects.
using NoGil = nb::call_guard<nb::gil_scoped_release>;

// Values between the starts of two rows. Without rows, strides may be anything.
template <typename M>
int64_t row_stride(const M& matrix, const char* name) {
    if (matrix.shape(0) > 0 && matrix.shape(1) > 1 && matrix.stride(1) != 1)
        throw std::invalid_argument(std::string(name) + ": values of a row must be contiguous");
    return matrix.shape(0) > 1 ? matrix.stride(0) : static_cast<int64_t>(matrix.shape(1));
}

// Rows of float32 or of bfloat16.
using Rows = nb::ndarray<nb::ndim<2>, nb::device::cpu>;
using InRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;

// Whether rows are bfloat16.
template <typename M>
bool is_narrow(const M& rows, const char* name) {
    const auto type = rows.dtype();
    const auto is = [&](nb::dlpack::dtype_code code, int bits) {
        return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1;
    };
    if (is(nb::dlpack::dtype_code::Bfloat, 16)) return true;
    if (is(nb::dlpack::dtype_code::Float, 32)) return false;
    throw nb::type_error((std::string(name) + ": rows of float32 or bfloat16").c_str());
}

inline Values values_of(const InRows& rows, const char* name) {
    return {rows.data(), is_narrow(rows, name)};
}

// Memory of a thread for what it makes within a task, at a cache line: kept from task to task, since
// the system would clear it each time. Its content is anything; each use takes a slot of its own.
template <int slot>
float* scratch(int64_t floats) {
    struct Free {
        void operator()(float* held) const { std::free(held); }
    };
    static thread_local std::unique_ptr<float, Free> held;
    static thread_local int64_t size = 0;
    if (floats > size) {
        held.reset();
        size = 0;
        held.reset(static_cast<float*>(std::aligned_alloc(64, (floats + 15) / 16 * 64)));
        if (!held) throw std::bad_alloc();
        size = floats;
    }
    return held.get();
}

inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

}  // namespace embertide
