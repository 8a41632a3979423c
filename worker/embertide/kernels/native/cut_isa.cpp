#include "cut.hpp"
#include "node_rank.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int64_t kBatch = 512;

// Where some sources are. They are found before anything is written: loops that only look up wait
// for many places of memory at a time, and some are done in vectors.
template <typename C>
struct Found {
    int32_t group[kBatch];
    C index[kBatch];
    int64_t member[kBatch];
};

template <typename C>
bool find_members(const Places& p, const C* cols, int64_t count, int64_t* member) {
    bool known = true;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t node = cols[i];
        const bool in = node >= 0 && node < p.nodes;
        member[i] = rank_of(p.lines, in ? node : 0);
        known &= in & (member[i] < p.members);
    }
    return known;
}

template <typename S, typename C>
bool in_table(const Places& p, const S* __restrict table, int64_t count, Found<C>& to) {
    const int64_t* __restrict member = to.member;
    int32_t* __restrict groups = to.group;
    C* __restrict indices = to.index;
    const double per_row = 1.0 / static_cast<double>(p.group_rows);
    const S rows = static_cast<S>(p.group_rows);
    S slots[kBatch], most = -1;
    for (int64_t i = 0; i < count; ++i) slots[i] = table[member[i]];
    for (int64_t i = 0; i < count; ++i) most = slots[i] > most ? slots[i] : most;
    for (int64_t i = 0; i < count; ++i) {
        const S slot = slots[i];
        // The quotient, which rounding may have made one too large or too small.
        S group = static_cast<S>(static_cast<double>(slot) * per_row);
        S index = slot - group * rows;
        const bool below = index < 0, above = index >= rows;
        group += (above ? 1 : 0) - (below ? 1 : 0);
        index += (below ? rows : 0) - (above ? rows : 0);
        groups[i] = static_cast<int32_t>(slot < 0 ? 0 : group + 1);
        indices[i] = static_cast<C>(slot < 0 ? -1 - slot : index);
    }
    return most < p.rounds * p.group_rows;
}

template <typename C>
void in_runs(const Places& p, const C* cols, int64_t count, Found<C>& to) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t member = to.member[i];
        const Run* run = p.runs + p.first[member >> p.coarse];
        while (member >= run->end) ++run;
        to.group[i] = run->group;
        to.index[i] = static_cast<C>((run->group ? member : cols[i]) + run->shift);
    }
}

// False: a column that is no source.
template <typename C>
bool find(const Places& p, const C* cols, int64_t count, Found<C>& to) {
    if (!find_members(p, cols, count, to.member)) return false;
    if (p.table32) return in_table(p, p.table32, count, to);
    if (p.table64) return in_table(p, p.table64, count, to);
    in_runs(p, cols, count, to);
    return true;
}

// Calls begin(row) for every row, then each(row, i, at, stop) for spans of its non-zeros, i + at to
// i + stop, whose sources are at `at` to `stop` of what was found. False: a column that is no source.
template <typename C, typename Begin, typename Each>
bool by_rows(const CutInput<C>& in, int64_t first, int64_t last, Found<C>& found,
             const Begin& begin, const Each& each) {
    const int64_t end = in.indptr[last];
    int64_t row = first;
    begin(row);
    for (int64_t i = in.indptr[first]; i < end; i += kBatch) {
        const int64_t count = end - i < kBatch ? end - i : kBatch;
        if (!find(in.places, in.cols + i, count, found)) return false;
        for (int64_t at = 0; at < count;) {
            while (in.indptr[row + 1] <= i + at) begin(++row);
            const int64_t rest = in.indptr[row + 1] - i, stop = rest < count ? rest : count;
            each(row, i, at, stop);
            at = stop;
        }
    }
    while (row + 1 < last) begin(++row);
    return true;
}

template <typename C>
bool count(const CutInput<C>& in, int64_t first, int64_t last, int64_t* counts, int64_t* touched,
           int64_t* seen) {
    Found<C> found;
    const auto begin = [](int64_t) {};
    const auto each = [&](int64_t row, int64_t, int64_t at, int64_t stop) {
        for (; at < stop; ++at) {
            const int32_t group = found.group[at];
            ++counts[group];
            touched[group] += seen[group] != row;
            seen[group] = row;
        }
    };
    return by_rows(in, first, last, found, begin, each);
}

// Where the non-zeros of a task go, and what is written beside them. What is not to be written
// goes to a place that nobody reads: whether it is changes from one non-zero to the next.
template <typename C>
struct Writer {
    const CutOutput<C>& out;
    const Found<C>& found;
    int64_t *at, *row_at, *seen;
    int64_t to[kBatch];

    int64_t put(int64_t i) {
        const int64_t k = at[found.group[i]]++;
        out.indices[k] = found.index[i];
        return to[i] = k;
    }

    void put_packed(int64_t row, int64_t first, int64_t last) {
        uint16_t unread;
        for (int64_t i = first; i < last; ++i) {
            const int64_t k = put(i);
            uint16_t* low = found.group[i] ? out.low_rows + (k - out.begins[1]) : &unread;
            *low = static_cast<uint16_t>(row);
        }
    }

    template <typename S>
    void put_runs(int64_t row, int64_t first, int64_t last, S* starts) {
        int32_t row_unread;
        S start_unread;
        seen[0] = row;  // The local block has every row.
        for (int64_t i = first; i < last; ++i) {
            const int32_t group = found.group[i];
            const int64_t k = put(i), r = row_at[group];
            const bool fresh = seen[group] != row;
            seen[group] = row;
            row_at[group] = r + fresh;
            *(fresh ? out.rows + r : &row_unread) = static_cast<int32_t>(row);
            // Each group before has one entry more than rows.
            *(fresh ? starts + (r + group - 1) : &start_unread) =
                static_cast<S>(k - out.begins[group]);
        }
    }
};

template <typename T, typename V>
void scatter(T* out, const int64_t* to, int64_t first, int64_t last, const V& value) {
    if (!out) return;
    for (int64_t i = first; i < last; ++i) out[to[i]] = static_cast<T>(value(i));
}

template <typename C>
void fill(const CutInput<C>& in, const CutOutput<C>& out, int64_t first, int64_t last,
          int64_t* at, int64_t* row_at, int64_t* seen) {
    const int64_t groups = in.places.rounds + 1;
    Found<C> found;
    Writer<C> writer{out, found, at, row_at, seen, {}};
    const auto ends = [&](int64_t row) {
        if (out.local32)
            out.local32[row] = static_cast<int32_t>(at[0]);
        else
            out.local64[row] = at[0];
    };
    const auto begin = [&](int64_t row) {
        if (row > first) ends(row);
        if (out.low_rows && row % (int64_t{1} << kPanelBits) == 0)
            for (int64_t g = 0; g < groups; ++g)
                out.panels[(row >> kPanelBits) * groups + g] = at[g];
    };
    const auto each = [&](int64_t row, int64_t i, int64_t from, int64_t stop) {
        if (out.low_rows)
            writer.put_packed(row, from, stop);
        else if (out.starts32)
            writer.put_runs(row, from, stop, out.starts32);
        else
            writer.put_runs(row, from, stop, out.starts64);
        const auto weight = [&](int64_t k) { return in.weights[i + k]; };
        const auto position = [&](int64_t k) { return i + k; };
        scatter(out.weights, writer.to, from, stop, weight);
        scatter(out.positions32, writer.to, from, stop, position);
        scatter(out.positions64, writer.to, from, stop, position);
    };
    by_rows(in, first, last, found, begin, each);
    ends(last);
}

}  // namespace

bool cut_count32(const CutInput<int32_t>& in, int64_t first, int64_t last, int64_t* counts,
                 int64_t* touched, int64_t* seen) {
    return count(in, first, last, counts, touched, seen);
}
bool cut_count64(const CutInput<int64_t>& in, int64_t first, int64_t last, int64_t* counts,
                 int64_t* touched, int64_t* seen) {
    return count(in, first, last, counts, touched, seen);
}
void cut_fill32(const CutInput<int32_t>& in, const CutOutput<int32_t>& out, int64_t first,
                int64_t last, int64_t* at, int64_t* row_at, int64_t* seen) {
    fill(in, out, first, last, at, row_at, seen);
}
void cut_fill64(const CutInput<int64_t>& in, const CutOutput<int64_t>& out, int64_t first,
                int64_t last, int64_t* at, int64_t* row_at, int64_t* seen) {
    fill(in, out, first, last, at, row_at, seen);
}

}  // namespace embertide::EMBERTIDE_ISA
