#include "sddmm.hpp"

#include <nanobind/stl/optional.h>

#include <cmath>
#include <optional>

#include "attention_tasks.hpp"
#include "bindings.hpp"

namespace embertide {
namespace {

constexpr int64_t kRows = 1 << 12;    // of a task that goes over rows
constexpr float kNoScores = -1e30f;  // the logarithm of a sum of none: finite

void pair_scores(Matrix<float> out, std::optional<AnyNumbers> rows, AnyNumbers indptr,
                 AnyNumbers indices, std::optional<AnyNumbers> edges, InRows key,
                 InMatrix<float> query, std::optional<InMatrix<float>> vector, float slope,
                 float scale) {
    PairScores p{};
    const int64_t count = static_cast<int64_t>(indptr.shape(0)) - 1;
    const int64_t nonzeros = indices.shape(0), width = key.shape(1);
    p.heads = out.shape(1);
    require(count >= 0, "indptr: at least one number");
    require(p.heads > 0 && width > 0 && width % p.heads == 0, "key: whole heads");
    require(query.shape(1) == key.shape(1), "query: as wide as key");
    p.per_head = width / p.heads;
    p.indptr = numbers(indptr, "indptr");
    p.indices = numbers(indices, "indices");
    if (rows) {
        require(static_cast<int64_t>(rows->shape(0)) == count, "rows: as many as indptr says");
        p.rows = numbers(*rows, "rows");
        require(all_below(p.rows, 0, count, query.shape(0)), "rows: outside the rows of query");
    } else {
        require(count <= static_cast<int64_t>(query.shape(0)), "query: one row for each row");
    }
    if (edges) {
        require(static_cast<int64_t>(edges->shape(0)) == nonzeros, "edges: one for each non-zero");
        p.edges = numbers(*edges, "edges");
    } else {
        require(nonzeros <= static_cast<int64_t>(out.shape(0)), "out: one row for each non-zero");
    }
    if (vector) {
        require(static_cast<int64_t>(vector->shape(0)) == p.heads &&
                    static_cast<int64_t>(vector->shape(1)) == p.per_head &&
                    row_stride(*vector, "vector") == p.per_head,
                "vector: contiguous, one row for each head");
        p.vector = vector->data();
    }
    require(row_stride(out, "out") == p.heads, "out: contiguous");
    p.nonzeros = nonzeros;
    p.key = values_of(key, "key");
    p.query = query.data();
    p.key_stride = row_stride(key, "key");
    p.query_stride = row_stride(query, "query");
    p.slope = slope;
    p.scale = scale;
    p.out = out.data();
    const EdgeTasks tasks(p.indptr, count, nonzeros);
    const auto score = EMBERTIDE_PICK(score_pairs);
    const auto check = [&](int64_t begin, int64_t end) {
        require(all_below(p.indices, begin, end, key.shape(0)), "indices: outside the rows of key");
        if (p.edges.data)
            require(all_below(p.edges, begin, end, out.shape(0)), "edges: outside the rows of out");
    };
    parallel_for(static_cast<int64_t>(tasks.pieces().size()), [&](int64_t i) {
        const auto& piece = tasks.pieces()[i];
        check(piece.begin, piece.end);
        score(p, piece.row, piece.begin, piece.end);
        count_entries(piece.end - piece.begin);
    });
    tasks.each_range([&](int64_t first, int64_t last) {
        check(number_at(p.indptr, first), number_at(p.indptr, last));
        for (int64_t r = first; r < last; ++r)
            score(p, r, number_at(p.indptr, r), number_at(p.indptr, r + 1));
        count_entries(number_at(p.indptr, last) - number_at(p.indptr, first));
    });
}

void head_dots(Matrix<float> out, InMatrix<float> x, InMatrix<float> vector) {
    const int64_t rows = out.shape(0), heads = vector.shape(0), width = vector.shape(1);
    require(static_cast<int64_t>(x.shape(0)) == rows, "x: one row for each row of out");
    require(static_cast<int64_t>(x.shape(1)) == heads * width, "x: the columns of all heads");
    require(static_cast<int64_t>(out.shape(1)) == heads, "out: one column for each head");
    require(row_stride(out, "out") == heads, "out: contiguous");
    require(row_stride(vector, "vector") == width, "vector: contiguous");
    const int64_t stride = row_stride(x, "x");
    const auto dot = EMBERTIDE_PICK(dot_heads);
    parallel_ranges(rows, kRows, [&](int64_t begin, int64_t end) {
        dot(x.data() + begin * stride, stride, end - begin, vector.data(), heads, width,
            out.data() + begin * heads);
    });
}

// The logarithms of the sum of exp(score), as far as there are any scores.
void store_logs(const float* top, const double* total, int64_t heads, float* logs) {
    for (int64_t h = 0; h < heads; ++h)
        logs[h] = total[h] > 0 ? static_cast<float>(top[h] + std::log(total[h])) : kNoScores;
}

void row_softmax(Matrix<float> scores, AnyNumbers indptr, std::optional<Matrix<float>> logs) {
    const int64_t count = static_cast<int64_t>(indptr.shape(0)) - 1, heads = scores.shape(1);
    require(count >= 0, "indptr: at least one number");
    require(row_stride(scores, "scores") == heads, "scores: contiguous");
    if (logs)
        require(static_cast<int64_t>(logs->shape(0)) == count &&
                    static_cast<int64_t>(logs->shape(1)) == heads,
                "logs: one for each row and head");
    const int64_t stride = logs ? row_stride(*logs, "logs") : 0;
    float* const log = logs ? logs->data() : nullptr;
    const Numbers ends = numbers(indptr, "indptr");
    const EdgeTasks tasks(ends, count, scores.shape(0));
    const auto measure = EMBERTIDE_PICK(measure_scores);
    const auto join = EMBERTIDE_PICK(join_measures);
    const auto divide = EMBERTIDE_PICK(divide_scores);
    float* data = scores.data();
    const auto& pieces = tasks.pieces();
    std::vector<float> tops(pieces.size() * heads);
    std::vector<double> totals(pieces.size() * heads);
    const auto every_piece = [&](auto&& body) {
        parallel_for(static_cast<int64_t>(pieces.size()), body);
    };
    every_piece([&](int64_t i) {
        measure(data + pieces[i].begin * heads, pieces[i].end - pieces[i].begin, heads,
                tops.data() + i * heads, totals.data() + i * heads);
    });
    std::vector<int64_t> first_of(pieces.size());
    for (const auto& hub : tasks.hubs()) {
        const int64_t first = hub.first_piece;
        for (int64_t i = first; i < first + hub.pieces; ++i) {
            first_of[i] = first;
            if (i > first)
                join(tops.data() + first * heads, totals.data() + first * heads,
                     tops.data() + i * heads, totals.data() + i * heads, heads);
        }
        if (log)
            store_logs(tops.data() + first * heads, totals.data() + first * heads, heads,
                       log + hub.row * stride);
    }
    every_piece([&](int64_t i) {
        divide(data + pieces[i].begin * heads, pieces[i].end - pieces[i].begin, heads,
               tops.data() + first_of[i] * heads, totals.data() + first_of[i] * heads);
    });
    tasks.each_range([&](int64_t first, int64_t last) {
        std::vector<float> top(heads);
        std::vector<double> total(heads);
        for (int64_t r = first; r < last; ++r) {
            const int64_t begin = number_at(ends, r), length = number_at(ends, r + 1) - begin;
            measure(data + begin * heads, length, heads, top.data(), total.data());
            if (log) store_logs(top.data(), total.data(), heads, log + r * stride);
            divide(data + begin * heads, length, heads, top.data(), total.data());
        }
    });
}

}  // namespace

void bind_sddmm(nb::module_& m) {
    m.def("pair_scores", pair_scores, nb::arg("out").noconvert(), nb::arg("rows").noconvert().none(),
          nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("key").noconvert(),
          nb::arg("query").noconvert(), nb::arg("vector").noconvert().none(), nb::arg("slope"),
          nb::arg("scale"), NoGil());
    m.def("head_dots", head_dots, nb::arg("out").noconvert(), nb::arg("x").noconvert(),
          nb::arg("vector").noconvert(), NoGil());
    m.def("row_softmax", row_softmax, nb::arg("scores").noconvert(), nb::arg("indptr").noconvert(),
          nb::arg("logs").noconvert().none(), NoGil());
}

}  // namespace embertide
