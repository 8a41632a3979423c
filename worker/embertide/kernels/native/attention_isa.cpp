#include "attention_scores.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int kVectors = 8;  // summed at a time, in registers

struct Factors {
    bool fresh;  // nothing was summed before
    Floats before, after;
};

// N vectors from column `low` on; the last one overlaps the one before where `width` asks for it.
template <int N, typename Value>
void add_panel(const Attention& a, const Group& g, const Batch& b, const Factors& f, int64_t low,
               int64_t width, float* sums) {
    const Value* x = static_cast<const Value*>(a.x.data);
    int64_t start[N];
    Lanes head[N];
    Floats value[N];
    for (int v = 0; v < N; ++v) {
        start[v] = low + (v * kLanes <= width - kLanes ? v * kLanes : width - kLanes);
        __builtin_memcpy(&head[v], a.head_of + start[v], sizeof head[v]);
        head[v] -= static_cast<int32_t>(g.first);
        value[v] = f.fresh ? Floats{} : load(sums + start[v]) * permute(f.before, head[v]);
    }
    const auto add = [&](int i) __attribute__((always_inline)) {
        const int64_t e = b.begin + i;
        ask_near(b, a.indices, e, x, a.x_stride, low, width);
        const Value* row = x + at(a.indices, e) * a.x_stride;
        const Floats share = b.shares[i];
        for (int v = 0; v < N; ++v) value[v] += permute(share, head[v]) * load(row + start[v]);
    };
    const int run = b.count < kRun ? b.count : static_cast<int>(kRun);
    for (int i = 0; i < run; ++i) add(i);
    if (run < b.count) {
        Floats earlier[N];
        for (int v = 0; v < N; ++v) {
            earlier[v] = value[v];
            value[v] = Floats{};
        }
        for (int i = run; i < b.count; ++i) add(i);
        for (int v = 0; v < N; ++v) value[v] += earlier[v];
    }
    for (int v = 0; v < N; ++v) store(sums + start[v], value[v] * permute(f.after, head[v]));
}

// Fewer columns than lanes.
template <typename Value>
void add_narrow(const Attention& a, const Group& g, const Batch& b, const Factors& f, int64_t low,
                int width, float* sums) {
    const Value* x = static_cast<const Value*>(a.x.data);
    Lanes head;
    __builtin_memcpy(&head, a.head_of + low, sizeof head);
    head -= static_cast<int32_t>(g.first);
    Floats value{};
    if (!f.fresh) value = load_some(sums + low, width) * permute(f.before, head);
    for (int from = 0; from < b.count; from += kRun) {
        // The first run goes on from what is there, as in a panel: the bits are those of wider rows.
        Floats run = from == 0 ? value : Floats{};
        for (int i = from; i < b.count && i < from + kRun; ++i) {
            const int64_t e = b.begin + i;
            ask_near(b, a.indices, e, x, a.x_stride, low, width);
            const Value* row = x + at(a.indices, e) * a.x_stride + low;
            run += permute(b.shares[i], head) * load_some(row, width);
        }
        value = from == 0 ? run : value + run;
    }
    store_some(sums + low, value * permute(f.after, head), width);
}

template <typename Value>
void add_columns(const Attention& a, const Group& g, const Batch& b, const Factors& f,
                 float* sums) {
    for (int64_t low = g.low; low < g.high; low += kVectors * kLanes) {
        const int64_t rest = g.high - low;
        const int64_t width = rest < kVectors * kLanes ? rest : kVectors * kLanes;
        if (width < kLanes) {
            add_narrow<Value>(a, g, b, f, low, static_cast<int>(width), sums);
            continue;
        }
        switch ((width + kLanes - 1) / kLanes) {
            case 1: add_panel<1, Value>(a, g, b, f, low, width, sums); break;
            case 2: add_panel<2, Value>(a, g, b, f, low, width, sums); break;
            case 3: add_panel<3, Value>(a, g, b, f, low, width, sums); break;
            case 4: add_panel<4, Value>(a, g, b, f, low, width, sums); break;
            case 5: add_panel<5, Value>(a, g, b, f, low, width, sums); break;
            case 6: add_panel<6, Value>(a, g, b, f, low, width, sums); break;
            case 7: add_panel<7, Value>(a, g, b, f, low, width, sums); break;
            default: add_panel<8, Value>(a, g, b, f, low, width, sums); break;
        }
    }
}

Floats inverse(Floats total) { return total > 0.0f ? 1.0f / total : (total == 0.0f ? Floats{} : total); }

struct Span {
    int64_t begin, end, end_of_task;
};

bool differ(Floats a, Floats b) {
    const Lanes unequal = a != b;
    int32_t any = 0;
    for (int i = 0; i < kLanes; ++i) any |= unequal[i];
    return any;
}

// A softmax and the columns that it weighs, in float64: of rows of more than a batch.
class Long {
public:
    // What has been summed before: `sums` times `given`, and nothing where they are fresh.
    Long(const Attention& a, const Group& g, const Softmax& s, Floats given, bool fresh,
         const float* sums, float* room)
        : a_(a), g_(g), top_(s.top), batch_(room + 2 * (a.columns + kPadding)),
          wide_(reinterpret_cast<double*>(room)) {
        set_to<kLanes>(total_, s.total);
        for (int64_t c = g.low; c < g.high; ++c)
            wide_[c] = fresh ? 0.0 : static_cast<double>(sums[c]) * given[lane(c)];
        for (int64_t c = g.high; c < g.high + kLanes; ++c) wide_[c] = batch_[c] = 0;
    }

    // Adds what was summed with a softmax of its own, in `batch()` or elsewhere.
    void add(const Softmax& s, const float* sums) {
        const Floats top = larger(top_, s.top);
        const bool softmax = a_.scoring != Scoring::shares;
        const Floats old = softmax ? exp_lanes(top_ - top) : all(1.0f);
        const Floats more = softmax ? exp_lanes(s.top - top) : all(1.0f);
        const bool higher = differ(top, top_);
        top_ = top;
        if (higher) scale_by<kLanes>(total_, old);
        add_to<kLanes>(total_, s.total * more);
        for (int64_t c = g_.low; c < g_.high; c += kLanes) {
            Lanes head;
            __builtin_memcpy(&head, a_.head_of + c, sizeof head);
            head -= static_cast<int32_t>(g_.first);
            const int64_t rest = g_.high - c;
            const Floats values = sums == batch_ || rest >= kLanes
                                      ? load(sums + c)
                                      : load_some(sums + c, static_cast<int>(rest));
            if (higher) scale_by<kLanes>(wide_ + c, permute(old, head));
            add_to<kLanes>(wide_ + c, values * permute(more, head));
        }
    }

    // Where a batch is summed, and the softmax that it goes on from.
    float* batch() { return batch_; }
    Softmax next() const { return {top_, Floats{}}; }

    Softmax state() const { return {top_, rounded<kLanes, Floats>(total_)}; }

    void store(bool divide, float* sums) const {
        for (int64_t c = g_.low; c < g_.high; ++c) {
            const double total = divide ? total_[lane(c)] : 1.0;
            sums[c] = static_cast<float>(total == 0.0 ? 0.0 : wide_[c] / total);
        }
    }

private:
    int lane(int64_t column) const { return static_cast<int>(a_.head_of[column] - g_.first); }

    const Attention& a_;
    const Group& g_;
    Floats top_;
    float* batch_;
    double* wide_;
    alignas(64) double total_[kLanes];
};

// Adds a row's non-zeros to `sums`, of which `given` parts are kept, and divides by the total if asked.
template <typename Value>
void add_span_of(const Attention& a, const Group& g, int64_t row, const Span& span, Softmax& s,
                 Floats given, bool fresh, bool divide, float* sums, float* room) {
    Batch b;
    b.end_of_task = span.end_of_task;
    const auto take = [&](int64_t from) {
        b.begin = from;
        b.count = static_cast<int>(span.end - from < kBatch ? span.end - from : kBatch);
    };
    if (span.end - span.begin <= kBatch) {
        if (span.begin == span.end) return;
        take(span.begin);
        const Floats before = score<Value>(a, g, row, s, b) * given;
        const Floats after = divide ? inverse(s.total) : all(1.0f);
        return add_columns<Value>(a, g, b, {fresh, before, after}, sums);
    }
    Long all_of(a, g, s, given, fresh, sums, room);
    for (int64_t from = span.begin; from < span.end; from += kBatch) {
        take(from);
        Softmax own = all_of.next();
        score<Value>(a, g, row, own, b);
        add_columns<Value>(a, g, b, {true, all(1.0f), all(1.0f)}, all_of.batch());
        all_of.add(own, all_of.batch());
    }
    s = all_of.state();
    all_of.store(divide, sums);
}

void add_span(const Attention& a, const Group& g, int64_t row, const Span& span, Softmax& s,
              Floats given, bool fresh, bool divide, float* sums, float* room) {
    const auto add = a.x.narrow ? add_span_of<Bf16> : add_span_of<float>;
    add(a, g, row, span, s, given, fresh, divide, sums, room);
}

Softmax load_state(const Attention& a, const Group& g, int64_t row) {
    if (a.fresh || !a.top) return {};
    const int64_t from = row * a.heads + g.first;
    return {load_some(a.top + from, g.heads), load_some(a.total + from, g.heads)};
}

void store_state(const Attention& a, const Group& g, int64_t row, const Softmax& s) {
    if (!a.top) return;
    store_some(a.top + row * a.heads + g.first, s.top, g.heads);
    store_some(a.total + row * a.heads + g.first, s.total, g.heads);
}

int64_t output_row(const Attention& a, int64_t row) { return a.rows.data ? at(a.rows, row) : row; }

void clear(const Attention& a, const Group& g, float* sums) {
    if (a.fresh)
        for (int64_t c = g.low; c < g.high; ++c) sums[c] = 0.0f;
}

void attend_row(const Attention& a, const Group& g, int64_t block_row, int64_t end_of_task,
                float* room) {
    const int64_t begin = at(a.indptr, block_row), end = at(a.indptr, block_row + 1);
    const int64_t row = output_row(a, block_row);
    float* sums = a.out + row * a.out_stride;
    Softmax s = load_state(a, g, row);
    const bool softmax = a.scoring != Scoring::shares;
    if (begin == end) clear(a, g, sums);
    const Floats given = softmax ? s.total : all(1.0f);
    add_span(a, g, row, {begin, end, end_of_task}, s, given, a.fresh, softmax, sums, room);
    if (begin < end || a.fresh) store_state(a, g, row, s);
}

}  // namespace

void attend_rows(const Attention& a, int64_t first, int64_t last, float* room) {
    const int64_t end_of_task = first < last ? at(a.indptr, last) : 0;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        for (int64_t row = first; row < last; ++row) attend_row(a, g, row, end_of_task, room);
        low = g.high;
    }
}

void attend_piece(const Attention& a, int64_t row, int64_t begin, int64_t end, float* piece,
                  float* room) {
    float *top = piece + a.columns, *total = top + a.heads;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        Softmax s;
        add_span(a, g, output_row(a, row), {begin, end, end}, s, all(1.0f), true, false, piece, room);
        store_some(top + head, s.top, g.heads);
        store_some(total + head, s.total, g.heads);
        low = g.high;
    }
}

void attend_merge(const Attention& a, int64_t block_row, const float* pieces, int64_t count,
                  float* room) {
    const int64_t row = output_row(a, block_row), size = a.columns + 2 * a.heads;
    float* sums = a.out + row * a.out_stride;
    const bool softmax = a.scoring != Scoring::shares;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        const Softmax s = load_state(a, g, row);
        Long all_of(a, g, s, softmax ? s.total : all(1.0f), a.fresh, sums, room);
        for (int64_t i = 0; i < count; ++i) {
            const float *piece = pieces + i * size, *tops = piece + a.columns;
            all_of.add({load_some(tops + head, g.heads), load_some(tops + a.heads + head, g.heads)},
                       piece);
        }
        all_of.store(softmax, sums);
        store_state(a, g, row, all_of.state());
        low = g.high;
    }
}

}  // namespace embertide::EMBERTIDE_ISA
