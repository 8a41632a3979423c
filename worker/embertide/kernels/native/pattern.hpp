// The non-zeros of a sparse matrix, checked once and cut into tasks of equal work.
#pragma once

#include <optional>
#include <vector>

#include "arrays.hpp"
#include "spmm.hpp"

namespace embertide {

using Numbers = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class Pattern {
public:
    // Raises where indptr does not ascend from 0 to the number of indices, an index is negative,
    // or rows do not ascend. The arrays are kept, not copied; nobody may change them.
    Pattern(Numbers indptr, Numbers indices, std::optional<In<int32_t>> rows);

    int64_t rows() const { return rows_; }
    int64_t nnz() const { return static_cast<int64_t>(indices_.shape(0)); }
    int64_t sources() const { return sources_; }  // one more than the largest index
    int64_t outputs() const { return outputs_; }  // one more than the largest output row
    bool scatters() const { return numbers_.has_value(); }

    // Where the arrays are; the rest of a Gather is the caller's.
    Gather gather() const;

    // A row of more than kTask non-zeros is reduced in pieces, before the tasks.
    struct Long {
        int64_t row, first_piece, pieces;
    };
    struct Run {
        int64_t begin, end;
    };
    const std::vector<Run>& pieces() const { return pieces_; }
    // Rows of each task, about kTask rows and non-zeros together; a long row is the last one of its
    // task, and `long_row` tells which of them ends this task, or null.
    const std::vector<Run>& tasks() const { return tasks_; }
    const Long* long_row(int64_t task) const;

    // The first non-zero of a row; of rows(), one past the last.
    int64_t start(int64_t row) const;

private:
    void check_order() const;
    void find_sources();
    void cut();
    void add_task(int64_t begin, int64_t end);

    Numbers indptr_, indices_;
    std::optional<In<int32_t>> numbers_;
    int64_t rows_ = 0, sources_ = 0, outputs_ = 0;
    std::vector<Run> tasks_, pieces_;
    std::vector<Long> long_rows_;
    std::vector<int32_t> long_of_task_;
};

}  // namespace embertide
