#include "cut.hpp"
#include "node_set.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

struct Place {
    int64_t group, index;  // group -1: no source
};

inline int64_t rank_of(const uint64_t* lines, int64_t node) {
    const uint64_t word = static_cast<uint64_t>(node) / 64, in_line = word % 7;
    const uint64_t* line = lines + word / 7 * kLineWords;
    int64_t rank = static_cast<int64_t>(line[0]);
    for (uint64_t i = 0; i < 6; ++i)
        rank += i < in_line ? __builtin_popcountll(line[1 + i]) : 0;
    const uint64_t below = (uint64_t{1} << (node & 63)) - 1;
    return rank + __builtin_popcountll(line[1 + in_line] & below);
}

inline Place in_table(const Places& p, int64_t node) {
    const int64_t member = rank_of(p.lines, node);
    if (member >= p.members) return {-1, 0};
    const int64_t slot = p.table32 ? p.table32[member] : p.table64[member];
    if (slot < 0) return {0, -1 - slot};
    const int64_t group = slot / p.group_rows;
    return {group < p.rounds ? group + 1 : -1, slot - group * p.group_rows};
}

inline Place in_ranges(const Places& p, int64_t node) {
    int64_t holder = p.first[node >> p.shift];
    while (node >= p.bounds[holder + 1]) ++holder;
    if (holder == p.own) return {0, node - p.bounds[holder]};
    const int64_t* cuts = p.cuts + holder * (p.rounds + 1);
    const int64_t k = rank_of(p.lines, node) - p.base[holder];
    if (k < 0 || k >= cuts[p.rounds]) return {-1, 0};
    int64_t round = static_cast<int64_t>(static_cast<double>(k) * p.per_member[holder]);
    round = round < p.rounds ? round : p.rounds - 1;
    while (k < cuts[round]) --round;
    while (k >= cuts[round + 1]) ++round;
    return {round + 1, p.before[holder * p.rounds + round] + k - cuts[round]};
}

template <bool kTable, typename C>
inline Place place(const Places& p, C col) {
    const int64_t node = col;
    if (node < 0 || node >= p.nodes) return {-1, 0};
    return kTable ? in_table(p, node) : in_ranges(p, node);
}

template <bool kTable, typename C>
bool count(const CutInput<C>& in, int64_t first, int64_t last, int64_t* counts, int64_t* touched,
           int64_t* seen) {
    for (int64_t row = first; row < last; ++row)
        for (int64_t i = in.indptr[row]; i < in.indptr[row + 1]; ++i) {
            const int64_t group = place<kTable>(in.places, in.cols[i]).group;
            if (group < 0) return false;
            ++counts[group];
            touched[group] += seen[group] != row;
            seen[group] = row;
        }
    return true;
}

template <bool kTable, typename C>
void fill(const CutInput<C>& in, const CutOutput<C>& out, int64_t first, int64_t last,
          int64_t* at, int64_t* row_at, int64_t* seen) {
    const int64_t groups = in.places.rounds + 1;
    for (int64_t row = first; row < last; ++row) {
        if (out.low_rows && row % (int64_t{1} << kPanelBits) == 0)
            for (int64_t g = 0; g < groups; ++g)
                out.panels[(row >> kPanelBits) * groups + g] = at[g];
        for (int64_t i = in.indptr[row]; i < in.indptr[row + 1]; ++i) {
            const Place to = place<kTable>(in.places, in.cols[i]);
            const int64_t k = at[to.group]++;
            out.indices[k] = static_cast<C>(to.index);
            if (out.weights) out.weights[k] = in.weights[i];
            if (out.positions32) out.positions32[k] = static_cast<int32_t>(i);
            if (out.positions64) out.positions64[k] = i;
            if (to.group > 0 && out.low_rows) {
                out.low_rows[k - out.begins[1]] = static_cast<uint16_t>(row);
            } else if (to.group > 0 && seen[to.group] != row) {
                seen[to.group] = row;
                const int64_t r = row_at[to.group]++;
                const int64_t start = k - out.begins[to.group];
                out.rows[r] = static_cast<int32_t>(row);
                // Each group before has one entry more than rows.
                if (out.starts32)
                    out.starts32[r + to.group - 1] = static_cast<int32_t>(start);
                else
                    out.starts64[r + to.group - 1] = start;
            }
        }
        if (out.local32)
            out.local32[row + 1] = static_cast<int32_t>(at[0]);
        else
            out.local64[row + 1] = at[0];
    }
}

template <typename C>
bool any_count(const CutInput<C>& in, int64_t first, int64_t last, int64_t* counts,
               int64_t* touched, int64_t* seen) {
    return in.places.members ? count<true>(in, first, last, counts, touched, seen)
                             : count<false>(in, first, last, counts, touched, seen);
}

template <typename C>
void any_fill(const CutInput<C>& in, const CutOutput<C>& out, int64_t first, int64_t last,
              int64_t* at, int64_t* row_at, int64_t* seen) {
    if (in.places.members)
        fill<true>(in, out, first, last, at, row_at, seen);
    else
        fill<false>(in, out, first, last, at, row_at, seen);
}

}  // namespace

bool cut_count32(const CutInput<int32_t>& in, int64_t first, int64_t last, int64_t* counts,
                 int64_t* touched, int64_t* seen) {
    return any_count(in, first, last, counts, touched, seen);
}
bool cut_count64(const CutInput<int64_t>& in, int64_t first, int64_t last, int64_t* counts,
                 int64_t* touched, int64_t* seen) {
    return any_count(in, first, last, counts, touched, seen);
}
void cut_fill32(const CutInput<int32_t>& in, const CutOutput<int32_t>& out, int64_t first,
                int64_t last, int64_t* at, int64_t* row_at, int64_t* seen) {
    any_fill(in, out, first, last, at, row_at, seen);
}
void cut_fill64(const CutInput<int64_t>& in, const CutOutput<int64_t>& out, int64_t first,
                int64_t last, int64_t* at, int64_t* row_at, int64_t* seen) {
    any_fill(in, out, first, last, at, row_at, seen);
}

}  // namespace embertide::EMBERTIDE_ISA
