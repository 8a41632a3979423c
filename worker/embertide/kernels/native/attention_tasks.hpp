// A block's rows cut into tasks of about equally many non-zeros; very long rows into pieces.
#pragma once

#include <algorithm>
#include <vector>

#include "arrays.hpp"
#include "attention.hpp"
#include "pool.hpp"

namespace embertide {

// int32 or int64, of either library.
using AnyNumbers = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline Numbers numbers(const AnyNumbers& array, const char* name) {
    const auto type = array.dtype();
    const bool whole = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
    if (!whole || (type.bits != 32 && type.bits != 64))
        throw nb::type_error((std::string(name) + ": int32 or int64 numbers").c_str());
    return {array.data(), type.bits == 64};
}

inline int64_t number_at(const Numbers& of, int64_t i) {
    return of.wide ? static_cast<const int64_t*>(of.data)[i]
                   : static_cast<const int32_t*>(of.data)[i];
}

// Whether numbers [begin, end) are all in [0, limit).
inline bool all_below(const Numbers& of, int64_t begin, int64_t end, int64_t limit) {
    uint64_t most = 0;
    if (of.wide) {
        const auto* value = static_cast<const uint64_t*>(of.data);
        for (int64_t i = begin; i < end; ++i) most = std::max(most, value[i]);
    } else {
        uint32_t narrow = 0;
        const auto* value = static_cast<const uint32_t*>(of.data);
        for (int64_t i = begin; i < end; ++i) narrow = std::max(narrow, value[i]);
        most = narrow;
    }
    return begin >= end || most < static_cast<uint64_t>(limit);
}

class EdgeTasks {
public:
    static constexpr int64_t kTask = 1 << 14;  // non-zeros and rows; longer rows come in pieces

    struct Piece {
        int64_t row, begin, end;
    };
    struct Hub {
        int64_t row, first_piece, pieces;
    };

    // Checks that the rows' ends ascend from 0 to `nonzeros`.
    EdgeTasks(Numbers indptr, int64_t rows, int64_t nonzeros) : indptr_(indptr) {
        require(number_at(indptr, 0) == 0 && number_at(indptr, rows) == nonzeros,
                "indptr: from 0 to the number of non-zeros");
        parallel_ranges(rows, kTask, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r)
                require(number_at(indptr, r) <= number_at(indptr, r + 1), "indptr: ascending");
        });
        const int64_t count = (rows + nonzeros + kTask - 1) / kTask;
        bounds_.reserve(count + 1);
        for (int64_t task = 0; task < count; ++task) bounds_.push_back(first_row(task * kTask, rows));
        bounds_.push_back(rows);
        for (int64_t task = 0; task < count; ++task) find_hub(task);
    }

    const std::vector<Piece>& pieces() const { return pieces_; }
    const std::vector<Hub>& hubs() const { return hubs_; }

    // body(first row, last row) for all rows but hubs, in parallel.
    template <typename Body>
    void each_range(const Body& body) const {
        parallel_for(static_cast<int64_t>(bounds_.size()) - 1, [&](int64_t task) {
            const int64_t first = bounds_[task], last = bounds_[task + 1];
            if (first < last) body(first, is_hub(last - 1) ? last - 1 : last);
        });
    }

private:
    // The first row with at least `cost` rows and non-zeros before it.
    int64_t first_row(int64_t cost, int64_t rows) const {
        int64_t low = 0, high = rows;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (number_at(indptr_, middle) + middle < cost) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    bool is_hub(int64_t row) const {
        return number_at(indptr_, row + 1) - number_at(indptr_, row) > kTask;
    }

    // A row longer than a task is the last one of its task.
    void find_hub(int64_t task) {
        const int64_t row = bounds_[task + 1] - 1;
        if (bounds_[task] > row || !is_hub(row)) return;
        const auto first = static_cast<int64_t>(pieces_.size());
        const int64_t end = number_at(indptr_, row + 1);
        for (int64_t begin = number_at(indptr_, row); begin < end; begin += kTask)
            pieces_.push_back({row, begin, std::min(end, begin + kTask)});
        hubs_.push_back({row, first, static_cast<int64_t>(pieces_.size()) - first});
    }

    Numbers indptr_;
    std::vector<int64_t> bounds_;
    std::vector<Piece> pieces_;
    std::vector<Hub> hubs_;
};

}  // namespace embertide
