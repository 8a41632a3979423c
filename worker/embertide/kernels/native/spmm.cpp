#include "spmm.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pattern.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

using Factors = std::optional<In<float>>;
using Weight = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr int64_t kRows = 1024;           // rows of a task of a dense product
constexpr int64_t kCached = 24 * 1024;    // floats of rows that are multiplied from the cache
constexpr int64_t kReduced = 96 * 1024;   // floats of reduced rows before they are multiplied
constexpr int64_t kUncached = 16 << 20;   // bytes of a result that is stored past the caches
constexpr int64_t kTileMultiple = 24;     // of the rows of a tile on every instruction set

const float* data_of(const Factors& factors, int64_t size, const char* what) {
    if (!factors) return nullptr;
    require(static_cast<int64_t>(factors->shape(0)) == size, what);
    return factors->data();
}

using Added = std::optional<InMatrix<float>>;

// Bias, activation, its slope, the rows' factors, what is added and its share, of an out of
// [rows, width].
using Last = std::tuple<Factors, int, float, Factors, Added, float>;

Epilogue epilogue(const Last& last, int64_t rows, int64_t width, bool accumulate) {
    const auto& [bias, activation, slope, row_scale, added, share] = last;
    require(activation >= 0 && activation <= 3, "activation: not one of the four");
    require(!added || (static_cast<int64_t>(added->shape(0)) == rows &&
                       static_cast<int64_t>(added->shape(1)) == width),
            "added: a value for each of out");
    return {data_of(bias, width, "bias: one value for each column of out"),
            static_cast<Activation>(activation),
            slope,
            accumulate,
            data_of(row_scale, rows, "row_scale: one for each row of out"),
            added ? added->data() : nullptr,
            added ? row_stride(*added, "added") : 0,
            share,
            false};
}

// That of a product, whose rows are finished where nothing else is read.
Epilogue product_epilogue(const Last& last, int64_t rows, int64_t width, bool accumulate) {
    require(!std::get<4>(last), "added: to sums only, not to products");
    return epilogue(last, rows, width, accumulate);
}

// The epilogue of rows that are counted from row `at` on.
Epilogue from_row(Epilogue last, int64_t at) {
    if (last.row_scale) last.row_scale += at;
    return last;
}

Gather gather_of(const Pattern& pattern, const InRows& x, const Factors& weights,
                 const Factors& source_scale, const Factors& target_scale, int64_t out_rows) {
    const int64_t sources = x.shape(0);
    require(pattern.sources() <= sources, "indices: beyond the rows of x");
    require(pattern.scatters() ? pattern.outputs() <= out_rows : pattern.rows() == out_rows,
            "out: one row for each row of the pattern");
    Gather g = pattern.gather();
    g.weights = data_of(weights, pattern.nnz(), "weights: one for each non-zero");
    g.source_scale = data_of(source_scale, sources, "source_scale: one for each row of x");
    g.target_scale = data_of(target_scale, out_rows, "target_scale: one for each row of out");
    g.x = values_of(x, "x");
    g.x_stride = row_stride(x, "x");
    g.width = x.shape(1);
    return g;
}

// [pieces, width] the partial results of rows that are longer than a task.
std::unique_ptr<float[]> reduce_pieces(const Pattern& pattern, const Gather& g) {
    const auto& pieces = pattern.pieces();
    std::unique_ptr<float[]> partial(new float[pieces.size() * g.width]);
    const auto run = EMBERTIDE_PICK(reduce_piece);
    parallel_for(pieces.size(), [&](int64_t i) {
        run(g, pieces[i].begin, pieces[i].end, partial.get() + i * g.width);
    });
    return partial;
}

// Rows of out: written where they are, or made elsewhere and rounded to bfloat16.
struct Finished {
    void* data;
    int64_t stride, width, bytes;
    bool narrow;

    Finished(const Rows& out, bool accumulate)
        : data(out.data()), stride(row_stride(out, "out")), width(out.shape(1)),
          bytes(out.shape(0) * out.shape(1) * sizeof(float)), narrow(is_narrow(out, "out")) {
        require(!narrow || !accumulate, "out: float32, since it is added to");
    }

    // Rows that no cache holds until they are read again need not be read to be written.
    bool past_cache(bool accumulate) const {
        const bool lines = reinterpret_cast<size_t>(data) % kCacheLine == 0 &&
                           stride * sizeof(float) % kCacheLine == 0;
        return lines && !narrow && !accumulate && bytes >= kUncached;
    }

    float* row(int64_t at) const { return static_cast<float*>(data) + at * stride; }

    void round(const float* from, int64_t from_stride, int64_t at, int64_t rows) const {
        EMBERTIDE_PICK(round_rows)
        (from, from_stride, rows, width, static_cast<Bf16*>(data) + at * stride, stride);
    }
};

void spmm(const Pattern& pattern, Rows out, InRows x, Factors weights, Factors source_scale,
          Factors target_scale, Last finish, bool accumulate, bool maximum, float empty) {
    require(out.shape(1) == x.shape(1), "out: as wide as x");
    Gather g = gather_of(pattern, x, weights, source_scale, target_scale, out.shape(0));
    g.maximum = maximum;
    g.empty = empty;
    Epilogue last = epilogue(finish, out.shape(0), g.width, accumulate);
    if (!g.width) return;
    const Finished to(out, accumulate);
    last.past_cache = to.past_cache(accumulate);
    require(!to.narrow || !pattern.scatters(), "out: float32, since only some rows are written");
    const auto partial = reduce_pieces(pattern, g);
    const auto run = EMBERTIDE_PICK(gather_reduce);
    const auto join = EMBERTIDE_PICK(join_pieces);
    const int64_t rows = std::max<int64_t>(1, kCached / g.width);
    parallel_for(pattern.tasks().size(), [&](int64_t task) {
        const auto [begin, end] = pattern.tasks()[task];
        const auto* hub = pattern.long_row(task);
        const int64_t ordinary = end - (hub ? 1 : 0);
        float* const buffer = to.narrow ? scratch<0>(rows * g.width) : nullptr;
        if (!to.narrow) run(g, last, begin, ordinary, false, to.row(0), to.stride);
        for (int64_t at = begin; to.narrow && at < ordinary; at += rows) {
            const int64_t stop = std::min(at + rows, ordinary);
            run(g, last, at, stop, true, buffer, g.width);
            to.round(buffer, g.width, at, stop - at);
        }
        count_entries(pattern.start(end) - pattern.start(begin));
        if (!hub) return;
        const int64_t row = g.rows ? g.rows[hub->row] : hub->row;
        join(g, last, hub->row, partial.get() + hub->first_piece * g.width, hub->pieces,
             to.narrow ? buffer : to.row(row));
        if (to.narrow) to.round(buffer, g.width, row, 1);
    });
}

// Where a chunk that starts at row `at` ends: behind at most `rows` rows that have non-zeros.
int64_t chunk_end(const Pattern& pattern, int64_t at, int64_t end, int64_t rows) {
    int64_t start = at < end ? pattern.start(at) : 0;
    for (; at < end; ++at) {
        const int64_t stop = pattern.start(at + 1);
        if (stop != start && rows-- == 0) break;
        start = stop;
    }
    return at;
}

std::unique_ptr<float[]> pack(const Weight& weight) {
    const int64_t n = weight.shape(0), k = weight.shape(1);
    std::unique_ptr<float[]> packed(new float[EMBERTIDE_PICK(packed_floats)(n, k)]);
    EMBERTIDE_PICK(pack_weight)(weight.data(), n, k, packed.get());
    return packed;
}

// out = epilogue(spmm(x) @ weight.T), or of that and what is in out: a few rows at a time are reduced
// into a buffer that stays in the cache, and multiplied from there; those without non-zeros are not.
void spmm_linear(const Pattern& pattern, Rows out, InRows x, Weight weight, Factors weights,
                 Factors source_scale, Factors target_scale, Last after, bool accumulate,
                 bool maximum) {
    const int64_t n = weight.shape(0), k = weight.shape(1);
    require(static_cast<int64_t>(x.shape(1)) == k, "weight: one column for each column of x");
    require(static_cast<int64_t>(out.shape(1)) == n, "weight: one row for each column of out");
    require(!pattern.scatters(), "pattern: must hold every row of out");
    Gather g = gather_of(pattern, x, weights, source_scale, target_scale, out.shape(0));
    g.maximum = maximum;
    Epilogue last = product_epilogue(after, out.shape(0), n, accumulate);
    const Epilogue none{};
    if (!n || !k) throw std::invalid_argument("weight: must not be empty");
    const Finished to(out, accumulate);
    last.past_cache = to.past_cache(accumulate);
    const auto packed = pack(weight);
    const auto partial = reduce_pieces(pattern, g);
    const auto fill = EMBERTIDE_PICK(gather_filled);
    const auto join = EMBERTIDE_PICK(join_pieces);
    const auto multiply = EMBERTIDE_PICK(dense_rows);
    const auto finish = EMBERTIDE_PICK(finish_empty);
    // A row's stride is no multiple of 4 KiB, which would put a tile's rows into one cache set.
    const int64_t stride = (k + 15) / 16 * 16 + 16;
    const int64_t rows = std::max<int64_t>(1, kReduced / stride / kTileMultiple) * kTileMultiple;
    parallel_for(pattern.tasks().size(), [&](int64_t task) {
        const auto [begin, end] = pattern.tasks()[task];
        const auto* hub = pattern.long_row(task);
        // Reduced row by row, a hub excepted, which is there in pieces.
        const int64_t ordinary = end - (hub ? 1 : 0);
        float* const buffer = scratch<0>(rows * stride);
        std::unique_ptr<int32_t[]> filled(new int32_t[rows]);
        float* const products = to.narrow ? scratch<1>(rows * n) : nullptr;
        const auto chunk = [&, end = end](int64_t at) {
            return chunk_end(pattern, at, to.narrow ? std::min(at + rows, end) : end, rows);
        };
        for (int64_t at = begin, stop; at < end; at = stop) {
            stop = chunk(at);
            int64_t count = fill(g, at, std::min(stop, ordinary), buffer, stride, filled.get());
            if (stop > ordinary) {
                join(g, none, hub->row, partial.get() + hub->first_piece * k, hub->pieces,
                     buffer + count * stride);
                filled[count++] = static_cast<int32_t>(hub->row - at);
            }
            float* const made = to.narrow ? products : to.row(at);
            const int64_t made_stride = to.narrow ? n : to.stride;
            const Epilogue here = from_row(last, at);
            multiply(buffer, stride, count, k, packed.get(), n, made, made_stride,
                     filled.get(), here);
            finish(n, made, made_stride, stop - at, filled.get(), count, here);
            if (to.narrow) to.round(made, n, at, stop - at);
        }
        count_entries(pattern.start(end) - pattern.start(begin));
    });
}

void dense(Rows out, InMatrix<float> x, Weight weight, Last finish, bool accumulate) {
    const int64_t n = weight.shape(0), k = weight.shape(1);
    require(static_cast<int64_t>(x.shape(1)) == k, "weight: one column for each column of x");
    require(static_cast<int64_t>(out.shape(1)) == n, "weight: one row for each column of out");
    require(x.shape(0) == out.shape(0), "out: one row for each row of x");
    if (!n || !k) throw std::invalid_argument("weight: must not be empty");
    Epilogue last = product_epilogue(finish, out.shape(0), n, accumulate);
    const int64_t x_stride = row_stride(x, "x");
    const Finished to(out, accumulate);
    last.past_cache = to.past_cache(accumulate);
    const auto packed = pack(weight);
    const auto multiply = EMBERTIDE_PICK(dense_rows);
    // A block of rows stays in the cache while the panels of the weight pass by.
    const int64_t rows = std::max<int64_t>(1, kCached / k / kTileMultiple) * kTileMultiple;
    parallel_ranges(x.shape(0), std::max(kRows / rows, int64_t{1}) * rows,
                    [&](int64_t begin, int64_t end) {
        float* const products = to.narrow ? scratch<1>(rows * n) : nullptr;
        for (int64_t at = begin; at < end; at += rows) {
            const int64_t count = std::min(rows, end - at);
            multiply(x.data() + at * x_stride, x_stride, count, k, packed.get(), n,
                     to.narrow ? products : to.row(at), to.narrow ? n : to.stride, nullptr,
                     from_row(last, at));
            if (to.narrow) to.round(products, n, at, count);
        }
    });
}

}  // namespace

void bind_spmm(nb::module_& m) {
    nb::class_<Pattern>(m, "Pattern")
        .def(nb::init<Numbers, Numbers, std::optional<In<int32_t>>>(), nb::arg("indptr"),
             nb::arg("indices"), nb::arg("rows").none())
        .def_prop_ro("sources", &Pattern::sources)
        .def_prop_ro("outputs", &Pattern::outputs);
    m.def("spmm", spmm, nb::arg("pattern"), nb::arg("out").noconvert(), nb::arg("x").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("source_scale").noconvert().none(),
          nb::arg("target_scale").noconvert().none(), nb::arg("last"), nb::arg("accumulate"),
          nb::arg("maximum"), nb::arg("empty"), NoGil());
    m.def("spmm_linear", spmm_linear, nb::arg("pattern"), nb::arg("out").noconvert(),
          nb::arg("x").noconvert(), nb::arg("weight").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("source_scale").noconvert().none(),
          nb::arg("target_scale").noconvert().none(), nb::arg("last"), nb::arg("accumulate"),
          nb::arg("maximum"), NoGil());
    m.def("dense", dense, nb::arg("out").noconvert(), nb::arg("x").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("last"), nb::arg("accumulate"), NoGil());
}

}  // namespace embertide
