#include "cut.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "bindings.hpp"
#include "csr.hpp"
#include "node_set.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

template <typename T>
using InGrid = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Grid = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

int64_t lines_size(const In<uint64_t>& lines) {
    require(lines.shape(0) % kLineWords == 0, "lines: eight words each");
    return static_cast<int64_t>(lines.shape(0)) / kLineWords * kLineBits;
}

// Sources held in ranges of nodes: the k-th member of a range arrives in the round whose cuts
// enclose k, at a place behind the rows of other holders.
class Ranges {
public:
    Ranges(In<uint64_t> lines, In<int64_t> bounds, int64_t own, InGrid<int64_t> cuts,
           InGrid<int64_t> before)
        : lines_(lines) {
        const int64_t holders = static_cast<int64_t>(bounds.shape(0)) - 1;
        require(holders > 0 && own >= 0 && own < holders, "own: one of the ranges");
        rounds_ = before.shape(1);
        require(static_cast<int64_t>(cuts.shape(0)) == holders &&
                    static_cast<int64_t>(before.shape(0)) == holders &&
                    static_cast<int64_t>(cuts.shape(1)) == rounds_ + 1,
                "cuts, before: a row for each range");
        const int64_t* bound = bounds.data();
        nodes_ = bound[holders];
        require(bound[0] == 0 && nodes_ < lines_size(lines), "bounds: outside the set");
        const auto rank = EMBERTIDE_PICK(rank_node);
        for (int64_t h = 0; h < holders; ++h) {
            require(bound[h] <= bound[h + 1], "bounds: descend");
            const int64_t base = members(), next = rank(lines.data(), bound[h + 1]);
            if (h == own)
                add(next, -bound[h], 0);
            else
                add_rounds(base, next, cuts.data() + h * (rounds_ + 1),
                           before.data() + h * rounds_);
        }
        // A few entries for each run, so that few members are looked for.
        const int64_t entries = std::max<int64_t>(1 << 12, 4 * runs_.size());
        while ((members() >> coarse_) >= entries) ++coarse_;
        for (int64_t at = 0, run = 0; at <= members() >> coarse_; ++at) {
            while (run + 1 < static_cast<int64_t>(runs_.size()) &&
                   runs_[run].end <= at << coarse_)
                ++run;
            first_.push_back(static_cast<int32_t>(run));
        }
    }

    Places places() const {
        Places p{};
        p.lines = lines_.data();
        p.nodes = nodes_;
        p.members = members();
        p.rounds = rounds_;
        p.runs = runs_.data();
        p.first = first_.data();
        p.coarse = coarse_;
        return p;
    }

private:
    int64_t members() const { return runs_.empty() ? 0 : runs_.back().end; }

    void add(int64_t end, int64_t shift, int64_t group) {
        if (end > members()) runs_.push_back({end, shift, static_cast<int32_t>(group)});
    }

    // The rounds of one holder's members, `base` to `next`.
    void add_rounds(int64_t base, int64_t next, const int64_t* cuts, const int64_t* before) {
        require(cuts[0] == 0 && cuts[rounds_] == next - base, "cuts: from 0 to a range's members");
        for (int64_t r = 0; r < rounds_; ++r) {
            require(cuts[r] <= cuts[r + 1], "cuts: descend");
            add(base + cuts[r + 1], before[r] - cuts[r] - base, r + 1);
        }
    }

    In<uint64_t> lines_;
    int64_t rounds_ = 0, nodes_ = 0;
    std::vector<Run> runs_;
    std::vector<int32_t> first_;
    int coarse_ = 0;
};

// Sources with a slot each.
class Table {
public:
    template <typename T>
    Table(In<uint64_t> lines, In<T> slots, int64_t rounds, int64_t group_rows)
        : lines_(lines), owner_(slots) {
        require(group_rows > 0 && rounds >= 0, "group_rows: positive");
        places_.lines = lines.data();
        places_.nodes = lines_size(lines);
        places_.rounds = rounds;
        // Of more rows than a slot can number there is one group.
        places_.group_rows = std::min<int64_t>(group_rows, std::numeric_limits<T>::max());
        places_.members = slots.shape(0);
        if constexpr (sizeof(T) == 4)
            places_.table32 = slots.data();
        else
            places_.table64 = slots.data();
    }

    Places places() const { return places_; }

private:
    In<uint64_t> lines_;
    nb::ndarray<> owner_;
    Places places_{};
};

// Tasks cost `groups` counters each, so there are few however many rows.
RowTasks tasks_of(const int64_t* indptr, int64_t rows, int64_t groups) {
    const int64_t all = indptr[rows] + rows;
    return {indptr, rows, std::max({int64_t{1} << 16, groups * 16, all / 512 + 1})};
}

int64_t cut_tasks(In<int64_t> indptr, int64_t groups) {
    require(indptr.shape(0) > 0, "indptr: empty");
    return tasks_of(indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, groups).count();
}

struct Counters {
    int64_t groups;
    RowTasks tasks;
};

template <typename C, typename A, typename B>
Counters check(const In<int64_t>& indptr, const In<C>& cols, const Places& places, const A& a,
               const B& b) {
    const int64_t nnz = cols.shape(0), rows = checked_rows(indptr, nnz), groups = a.shape(1);
    require(rows < int64_t{1} << 31, "indptr: rows are numbered in 32 bits");
    for (int64_t row = 0; row < rows; ++row) check_row(indptr.data(), row, nnz);
    const Counters found{groups, tasks_of(indptr.data(), rows, groups)};
    require(groups == places.rounds + 1, "counts: a column for each group");
    require(static_cast<int64_t>(a.shape(0)) == found.tasks.count() &&
                b.shape(0) == a.shape(0) && b.shape(1) == a.shape(1),
            "counts: a row for each task");
    return found;
}

template <typename Which, typename C>
void cut_count(In<int64_t> indptr, In<C> cols, const Which& which, Grid<int64_t> counts,
               Grid<int64_t> touched) {
    const CutInput<C> in{indptr.data(), cols.data(), nullptr, which.places()};
    const Counters c = check(indptr, cols, in.places, counts, touched);
    parallel_for(c.tasks.count(), [&](int64_t task) {
        int64_t* count = counts.data() + task * c.groups;
        int64_t* touch = touched.data() + task * c.groups;
        std::fill_n(count, c.groups, 0);
        std::fill_n(touch, c.groups, 0);
        std::vector<int64_t> seen(c.groups, -1);
        bool known;
        if constexpr (sizeof(C) == 4)
            known = EMBERTIDE_PICK(cut_count32)(in, c.tasks.first(task), c.tasks.first(task + 1),
                                                count, touch, seen.data());
        else
            known = EMBERTIDE_PICK(cut_count64)(in, c.tasks.first(task), c.tasks.first(task + 1),
                                                count, touch, seen.data());
        require(known, "cols: a column that is no source");
    });
}

template <typename T>
T* data_of(const std::optional<Vector<T>>& array, int64_t size, const char* what) {
    if (!array) return nullptr;
    require(static_cast<int64_t>(array->shape(0)) == size, what);
    return array->data();
}

template <typename Which, typename C, typename P>
void cut_fill(In<int64_t> indptr, In<C> cols, std::optional<In<float>> weights,
              const Which& which, Grid<int64_t> at, Grid<int64_t> row_at, In<int64_t> begins,
              Vector<C> indices, std::optional<Vector<float>> out_weights,
              std::optional<Vector<int32_t>> positions32,
              std::optional<Vector<int64_t>> positions64, Vector<int32_t> rows, Vector<P> starts,
              std::optional<Vector<uint16_t>> low_rows, Grid<int64_t> panels, Vector<P> local) {
    const CutInput<C> in{indptr.data(), cols.data(), weights ? weights->data() : nullptr,
                         which.places()};
    const Counters c = check(indptr, cols, in.places, at, row_at);
    const int64_t nnz = cols.shape(0), touched = rows.shape(0);
    require(static_cast<int64_t>(indices.shape(0)) == nnz, "indices: one for each column");
    require(weights.has_value() == out_weights.has_value(), "weights: on both sides or neither");
    require(!weights || static_cast<int64_t>(weights->shape(0)) == nnz, "weights: too few");
    require(static_cast<int64_t>(begins.shape(0)) == c.groups, "begins: one for each group");
    require(low_rows || static_cast<int64_t>(starts.shape(0)) == touched + c.groups - 1,
            "starts: too few");
    require(local.shape(0) == indptr.shape(0), "local: as long as indptr");
    CutOutput<C> out{};
    out.indices = indices.data();
    out.weights = data_of(out_weights, nnz, "out_weights: one for each column");
    out.positions32 = data_of(positions32, nnz, "positions: one for each column");
    out.positions64 = data_of(positions64, nnz, "positions: one for each column");
    if (low_rows) {
        const int64_t remote = c.groups > 1 ? nnz - begins.data()[1] : 0;
        out.low_rows = data_of(low_rows, remote, "low_rows: one for each remote non-zero");
        require(static_cast<int64_t>(panels.shape(0)) << kPanelBits >= indptr.shape(0) - 1 &&
                    static_cast<int64_t>(panels.shape(1)) == c.groups,
                "panels: too few");
    }
    out.panels = panels.data();
    out.rows = rows.data();
    if constexpr (sizeof(P) == 4) {
        out.starts32 = starts.data();
        out.local32 = local.data();
    } else {
        out.starts64 = starts.data();
        out.local64 = local.data();
    }
    out.begins = begins.data();
    parallel_for(c.tasks.count(), [&](int64_t task) {
        int64_t *to = at.data() + task * c.groups, *row_to = row_at.data() + task * c.groups;
        std::vector<int64_t> seen(c.groups, -1);
        if constexpr (sizeof(C) == 4)
            EMBERTIDE_PICK(cut_fill32)(in, out, c.tasks.first(task), c.tasks.first(task + 1), to,
                                       row_to, seen.data());
        else
            EMBERTIDE_PICK(cut_fill64)(in, out, c.tasks.first(task), c.tasks.first(task + 1), to,
                                       row_to, seen.data());
    });
}

// Rows and run starts of the non-zeros of one group, from their rows' lowest bits and the first
// non-zero of each panel; returns how many rows there are.
int64_t unpack_rows(In<uint16_t> low, In<int64_t> panels, Vector<int32_t> rows,
                    Vector<int32_t> starts) {
    const int64_t nnz = low.shape(0), count = static_cast<int64_t>(panels.shape(0)) - 1;
    require(static_cast<int64_t>(rows.shape(0)) == nnz &&
                static_cast<int64_t>(starts.shape(0)) == nnz + 1 && nnz < int64_t{1} << 31,
            "rows, starts: one for each non-zero");
    require(count >= 0 && panels.data()[0] == 0 && panels.data()[count] == nnz,
            "panels: from the first non-zero to the last");
    int64_t found = 0;
    for (int64_t panel = 0; panel < count; ++panel) {
        const int64_t begin = panels.data()[panel], end = panels.data()[panel + 1];
        require(begin <= end, "panels: descend");
        for (int64_t i = begin; i < end; ++i) {
            // What does not count is written over.
            rows.data()[found] = static_cast<int32_t>(panel << kPanelBits | low.data()[i]);
            starts.data()[found] = static_cast<int32_t>(i);
            found += i == begin || low.data()[i] != low.data()[i - 1];
        }
    }
    starts.data()[found] = static_cast<int32_t>(nnz);
    return found;
}

template <typename Which, typename C, typename P>
void bind_fill(nb::module_& m) {
    m.def("cut_fill", cut_fill<Which, C, P>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("weights").none(), nb::arg("which"),
          nb::arg("at").noconvert(), nb::arg("row_at").noconvert(),
          nb::arg("begins").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("out_weights").none(), nb::arg("positions32").none(),
          nb::arg("positions64").none(), nb::arg("rows").noconvert(),
          nb::arg("starts").noconvert(), nb::arg("low_rows").none(),
          nb::arg("panels").noconvert(), nb::arg("local").noconvert(), NoGil());
}

template <typename Which, typename C>
void bind_cut_of(nb::module_& m) {
    m.def("cut_count", cut_count<Which, C>, nb::arg("indptr").noconvert(),
          nb::arg("cols").noconvert(), nb::arg("which"), nb::arg("counts").noconvert(),
          nb::arg("touched").noconvert(), NoGil());
    bind_fill<Which, C, int32_t>(m);
    bind_fill<Which, C, int64_t>(m);
}

}  // namespace

void bind_cut(nb::module_& m) {
    nb::class_<Ranges>(m, "Ranges")
        .def(nb::init<In<uint64_t>, In<int64_t>, int64_t, InGrid<int64_t>, InGrid<int64_t>>(),
             nb::arg("lines").noconvert(), nb::arg("bounds").noconvert(), nb::arg("own"),
             nb::arg("cuts").noconvert(), nb::arg("before").noconvert());
    nb::class_<Table>(m, "Table")
        .def(nb::init<In<uint64_t>, In<int32_t>, int64_t, int64_t>(),
             nb::arg("lines").noconvert(), nb::arg("slots").noconvert(), nb::arg("rounds"),
             nb::arg("group_rows"))
        .def(nb::init<In<uint64_t>, In<int64_t>, int64_t, int64_t>(),
             nb::arg("lines").noconvert(), nb::arg("slots").noconvert(), nb::arg("rounds"),
             nb::arg("group_rows"));
    m.def("unpack_rows", unpack_rows, nb::arg("low").noconvert(), nb::arg("panels").noconvert(),
          nb::arg("rows").noconvert(), nb::arg("starts").noconvert(), NoGil());
    m.def("cut_tasks", cut_tasks, nb::arg("indptr").noconvert(), nb::arg("groups"));
    bind_cut_of<Ranges, int32_t>(m);
    bind_cut_of<Ranges, int64_t>(m);
    bind_cut_of<Table, int32_t>(m);
    bind_cut_of<Table, int64_t>(m);
}

}  // namespace embertide
