// What the kernels over compressed rows share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arrays.hpp"

namespace embertide {

// Consecutive rows cut into tasks of about `grain` rows and non-zeros together. A row is never
// cut, and where the cuts are depends on the graph alone.
struct RowTasks {
    const int64_t* indptr;
    int64_t rows, grain;

    int64_t count() const { return (indptr[rows] + rows) / grain + 1; }

    // First row of task i; `count()` gives the end of the last.
    int64_t first(int64_t i) const {
        if (i >= count()) return rows;
        int64_t low = 0, high = rows;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (indptr[middle] + middle < i * grain)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
};

inline int64_t checked_rows(const In<int64_t>& indptr, int64_t nnz) {
    require(indptr.shape(0) > 0, "indptr: empty");
    const int64_t rows = static_cast<int64_t>(indptr.shape(0)) - 1;
    require(indptr.data()[0] == 0 && indptr.data()[rows] == nnz, "indptr: not of these columns");
    return rows;
}

// The non-zeros of a row; a task checks the rows it visits.
inline void check_row(const int64_t* indptr, int64_t row, int64_t nnz) {
    require(indptr[row] >= 0 && indptr[row] <= indptr[row + 1] && indptr[row + 1] <= nnz,
            "indptr: descends");
}

}  // namespace embertide
