#include "pattern.hpp"

#include <algorithm>
#include <limits>

#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kTask = 1 << 14;   // rows and non-zeros; 8 MiB of sources at 512 bytes a row
constexpr int64_t kCheck = 1 << 20;  // values checked by one task

bool is_wide(const Numbers& values, const char* name) {
    const bool wide = values.dtype() == nb::dtype<int64_t>();
    if (!wide && values.dtype() != nb::dtype<int32_t>())
        throw std::invalid_argument(std::string(name) + ": must be int32 or int64");
    return wide;
}

}  // namespace

Pattern::Pattern(Numbers indptr, Numbers indices, std::optional<In<int32_t>> rows)
    : indptr_(std::move(indptr)), indices_(std::move(indices)), numbers_(std::move(rows)) {
    require(indptr_.shape(0) > 0, "indptr: one value for each row and one more");
    rows_ = static_cast<int64_t>(indptr_.shape(0)) - 1;
    is_wide(indptr_, "indptr");
    require(start(0) == 0 && start(rows_) == nnz(), "indptr: from 0 to the number of indices");
    check_order();
    find_sources();
    cut();
}

int64_t Pattern::start(int64_t row) const {
    return indptr_.dtype() == nb::dtype<int64_t>() ? static_cast<const int64_t*>(indptr_.data())[row]
                                                   : static_cast<const int32_t*>(indptr_.data())[row];
}

void Pattern::check_order() const {
    require(!numbers_ || static_cast<int64_t>(numbers_->shape(0)) == rows_,
            "rows: one for each row of indptr");
    const int32_t* numbers = numbers_ ? numbers_->data() : nullptr;
    parallel_ranges(rows_, kCheck, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            require(start(row) <= start(row + 1), "indptr: must ascend");
            require(!numbers || (row ? numbers[row - 1] < numbers[row] : numbers[0] >= 0),
                    "rows: must ascend from 0 on");
        }
    });
}

void Pattern::find_sources() {
    outputs_ = numbers_ && rows_ ? numbers_->data()[rows_ - 1] + int64_t{1} : rows_;
    const bool wide = is_wide(indices_, "indices");
    const int64_t count = nnz(), tasks = (count + kCheck - 1) / kCheck;
    std::vector<int64_t> least(tasks), most(tasks);
    const auto run = EMBERTIDE_PICK(index_range);
    const char* values = static_cast<const char*>(indices_.data());
    parallel_for(tasks, [&](int64_t task) {
        const int64_t begin = task * kCheck, size = std::min(kCheck, count - begin);
        run(values + begin * (wide ? 8 : 4), wide, size, &least[task], &most[task]);
    });
    for (int64_t task = 0; task < tasks; ++task) {
        require(least[task] >= 0, "indices: must not be negative");
        sources_ = std::max(sources_, most[task] + 1);
    }
}

void Pattern::cut() {
    const int64_t work = nnz() + rows_;
    int64_t begin = 0;
    for (int64_t limit = kTask; begin < rows_; limit += kTask) {
        // The first row whose own work starts at the limit or behind it.
        int64_t low = begin, high = rows_;
        while (low < high && limit < work) {
            const int64_t middle = low + (high - low) / 2;
            if (start(middle) + middle < limit)
                low = middle + 1;
            else
                high = middle;
        }
        const int64_t end = limit < work ? low : rows_;
        if (end > begin) add_task(begin, end);
        begin = end;
    }
}

void Pattern::add_task(int64_t begin, int64_t end) {
    tasks_.push_back({begin, end});
    const int64_t first = start(end - 1), last = start(end);
    if (last - first <= kTask) {
        long_of_task_.push_back(-1);
        return;
    }
    const int64_t count = (last - first + kTask - 1) / kTask;
    long_of_task_.push_back(static_cast<int32_t>(long_rows_.size()));
    long_rows_.push_back({end - 1, static_cast<int64_t>(pieces_.size()), count});
    for (int64_t at = first; at < last; at += kTask)
        pieces_.push_back({at, std::min(at + kTask, last)});
}

const Pattern::Long* Pattern::long_row(int64_t task) const {
    return long_of_task_[task] < 0 ? nullptr : &long_rows_[long_of_task_[task]];
}

Gather Pattern::gather() const {
    Gather found{};
    found.indptr = indptr_.data();
    found.indices = indices_.data();
    found.wide_indptr = indptr_.dtype() == nb::dtype<int64_t>();
    found.wide_indices = indices_.dtype() == nb::dtype<int64_t>();
    found.rows = numbers_ ? numbers_->data() : nullptr;
    found.nnz = nnz();
    return found;
}

}  // namespace embertide
