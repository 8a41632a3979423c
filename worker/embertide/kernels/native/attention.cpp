#include "attention.hpp"

#include <nanobind/stl/optional.h>

#include <optional>
#include <string_view>

#include "attention_tasks.hpp"
#include "bindings.hpp"

namespace embertide {
namespace {

template <typename T>
using Maybe = std::optional<T>;

const float* matrix(const InMatrix<float>& m, int64_t& stride, const char* name) {
    stride = row_stride(m, name);
    return m.data();
}

// The last column of `m` that head `heads - 1` needs exists.
template <typename M>
void check_width(const M& m, int64_t width, const char* what) {
    require(static_cast<int64_t>(m.shape(1)) == width, what);
}

void check_edges(const Attention& a, int64_t begin, int64_t end, int64_t sources, int64_t shares) {
    require(all_below(a.indices, begin, end, sources), "indices: outside the rows of x");
    if (a.scoring == Scoring::shares && a.edges.data)
        require(all_below(a.edges, begin, end, shares), "edges: outside the rows of source");
}

void check_rows(const Attention& a, int64_t first, int64_t last, int64_t rows, int64_t outputs) {
    if (!a.rows.data || first == last) return;
    require(all_below(a.rows, first, last, outputs), "rows: outside the rows of out");
    for (int64_t r = first; r < last && r + 1 < rows; ++r)
        require(number_at(a.rows, r) < number_at(a.rows, r + 1), "rows: ascending");
}

void run(const Attention& a, int64_t rows, int64_t sources, int64_t shares, int64_t outputs) {
    const EdgeTasks tasks(a.indptr, rows, a.nonzeros);
    const auto attend = EMBERTIDE_PICK(attend_rows);
    const auto piece_of = EMBERTIDE_PICK(attend_piece);
    const auto merge = EMBERTIDE_PICK(attend_merge);
    const int64_t size = a.columns + 2 * a.heads;
    const auto room = [&a] { return scratch<0>(room_for(a.columns)); };
    const auto& pieces = tasks.pieces();
    const auto& hubs = tasks.hubs();
    check_rows(a, 0, rows, rows, outputs);
    std::vector<float> sums(pieces.size() * size);
    parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
        const auto& piece = pieces[i];
        check_edges(a, piece.begin, piece.end, sources, shares);
        piece_of(a, piece.row, piece.begin, piece.end, sums.data() + i * size, room());
        count_entries(piece.end - piece.begin);
    });
    parallel_for(static_cast<int64_t>(hubs.size()), [&](int64_t i) {
        merge(a, hubs[i].row, sums.data() + hubs[i].first_piece * size, hubs[i].pieces, room());
    });
    tasks.each_range([&](int64_t first, int64_t last) {
        check_edges(a, number_at(a.indptr, first), number_at(a.indptr, last), sources, shares);
        attend(a, first, last, room());
        count_entries(number_at(a.indptr, last) - number_at(a.indptr, first));
    });
}

Scoring scoring_of(std::string_view name) {
    if (name == "additive") return Scoring::additive;
    if (name == "gatv2") return Scoring::gatv2;
    if (name == "dot") return Scoring::dot;
    require(name == "shares", "scoring: additive, gatv2, dot or shares");
    return Scoring::shares;
}

void attend(Matrix<float> out, Maybe<Matrix<float>> top, Maybe<Matrix<float>> total,
            Maybe<AnyNumbers> rows, AnyNumbers indptr, AnyNumbers indices,
            Maybe<AnyNumbers> edges, Maybe<In<float>> weights, InRows x, bool fresh,
            int64_t heads, int64_t per_head, int64_t offset, const char* scoring,
            InRows source, Maybe<InMatrix<float>> target, Maybe<InMatrix<float>> vector,
            float slope, float scale) {
    Attention a{};
    const int64_t count = static_cast<int64_t>(indptr.shape(0)) - 1;
    const int64_t outputs = out.shape(0), sources = x.shape(0);
    a.nonzeros = indices.shape(0);
    a.columns = out.shape(1);
    a.heads = heads;
    a.fresh = fresh;
    a.scoring = scoring_of(scoring);
    a.slope = slope;
    a.scale = scale;
    require(count >= 0, "indptr: at least one number");
    require(heads > 0 && per_head > 0 && offset >= 0 && offset < per_head, "heads: of some width");
    require(a.columns > 0 && a.columns + offset <= heads * per_head &&
                a.columns + offset > (heads - 1) * per_head,
            "heads: those of the columns of out");
    require(static_cast<int64_t>(x.shape(1)) == a.columns, "x: as wide as out");
    a.indptr = numbers(indptr, "indptr");
    a.indices = numbers(indices, "indices");
    if (rows) {
        require(static_cast<int64_t>(rows->shape(0)) == count, "rows: as many as indptr says");
        a.rows = numbers(*rows, "rows");
    } else {
        require(count == outputs, "out: as many rows as indptr says");
    }
    if (edges) {
        require(static_cast<int64_t>(edges->shape(0)) == a.nonzeros, "edges: one for each non-zero");
        a.edges = numbers(*edges, "edges");
    }
    if (weights) {
        require(static_cast<int64_t>(weights->shape(0)) == a.nonzeros, "weights: one for each non-zero");
        a.weights = weights->data();
    }
    a.x = values_of(x, "x");
    a.x_stride = row_stride(x, "x");
    a.out_stride = row_stride(out, "out");
    a.out = out.data();
    require(!top == !total, "top and total: both or neither");
    require(top || fresh || a.scoring == Scoring::shares, "top: needed to continue");
    if (top) {
        for (const auto* state : {&*top, &*total}) {
            require(static_cast<int64_t>(state->shape(0)) == outputs &&
                        static_cast<int64_t>(state->shape(1)) == heads &&
                        row_stride(*state, "top") == heads,
                    "top and total: contiguous, one value for each output and head");
        }
        a.top = top->data();
        a.total = total->data();
    }
    const bool pairs = a.scoring == Scoring::gatv2 || a.scoring == Scoring::dot;
    require(is_narrow(source, "source") == (pairs && a.x.narrow),
            "source: of the type of x where it has keys, else float32");
    a.source = source.data();
    a.source_stride = row_stride(source, "source");
    int64_t shares = source.shape(0);
    if (a.scoring == Scoring::shares) {
        check_width(source, heads, "source: one share for each head");
        require(edges || shares == a.nonzeros, "source: one row for each non-zero");
    } else {
        require(target.has_value(), "target: needed for scores");
        require(static_cast<int64_t>(target->shape(0)) == outputs, "target: one row for each output");
        require(shares == sources, "source: as many rows as x");
        a.target = matrix(*target, a.target_stride, "target");
        const int64_t width = a.scoring == Scoring::additive ? heads : target->shape(1);
        check_width(source, width, "source: as wide as the scores need");
        check_width(*target, width, "target: as wide as the scores need");
        require(width % heads == 0, "source: whole heads");
        a.per_head = width / heads;
    }
    if (a.scoring == Scoring::gatv2) {
        require(vector && static_cast<int64_t>(vector->shape(0)) == heads &&
                    static_cast<int64_t>(vector->shape(1)) == a.per_head &&
                    row_stride(*vector, "vector") == a.per_head,
                "vector: contiguous, one row for each head");
        a.vector = vector->data();
    }
    std::vector<int32_t> head_of(a.columns + kPadding);
    for (int64_t c = 0; c < a.columns; ++c)
        head_of[c] = static_cast<int32_t>((c + offset) / per_head);
    a.head_of = head_of.data();
    run(a, count, sources, shares, outputs);
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attend", attend, nb::arg("out").noconvert(), nb::arg("top").noconvert().none(),
          nb::arg("total").noconvert().none(), nb::arg("rows").noconvert().none(),
          nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("weights").noconvert().none(),
          nb::arg("x").noconvert(), nb::arg("fresh"), nb::arg("heads"), nb::arg("per_head"),
          nb::arg("offset"), nb::arg("scoring"), nb::arg("source").noconvert(),
          nb::arg("target").noconvert().none(), nb::arg("vector").noconvert().none(),
          nb::arg("slope"), nb::arg("scale"), NoGil());
}

}  // namespace embertide
