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
    for (int i = 0; i < b.count; ++i) {
        const int64_t e = b.begin + i;
        ask_near(b, a.indices, e, x, a.x_stride, low, width);
        const Value* row = x + at(a.indices, e) * a.x_stride;
        const Floats share = b.shares[i];
        for (int v = 0; v < N; ++v) value[v] += permute(share, head[v]) * load(row + start[v]);
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
    for (int i = 0; i < b.count; ++i) {
        const int64_t e = b.begin + i;
        ask_near(b, a.indices, e, x, a.x_stride, low, width);
        const Value* row = x + at(a.indices, e) * a.x_stride + low;
        value += permute(b.shares[i], head) * load_some(row, width);
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

// Adds a row's non-zeros to `sums`, which hold what `f` says, and divides by the total if asked.
template <typename Value>
void add_span_of(const Attention& a, const Group& g, int64_t row, const Span& span, Softmax& s,
                 Floats given, bool fresh, bool divide, float* sums) {
    Batch b;
    for (int64_t at_edge = span.begin; at_edge < span.end; at_edge += kBatch) {
        const int64_t rest = span.end - at_edge;
        b.begin = at_edge;
        b.count = static_cast<int>(rest < kBatch ? rest : kBatch);
        b.end_of_task = span.end_of_task;
        const Floats before = score<Value>(a, g, row, s, b) * given;
        const Floats after = divide && rest <= kBatch ? inverse(s.total) : all(1.0f);
        add_columns<Value>(a, g, b, {fresh, before, after}, sums);
        fresh = false;
        given = all(1.0f);
    }
}

void add_span(const Attention& a, const Group& g, int64_t row, const Span& span, Softmax& s,
              Floats given, bool fresh, bool divide, float* sums) {
    const auto add = a.x.narrow ? add_span_of<Bf16> : add_span_of<float>;
    add(a, g, row, span, s, given, fresh, divide, sums);
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

void attend_row(const Attention& a, const Group& g, int64_t block_row, int64_t end_of_task) {
    const int64_t begin = at(a.indptr, block_row), end = at(a.indptr, block_row + 1);
    const int64_t row = output_row(a, block_row);
    float* sums = a.out + row * a.out_stride;
    Softmax s = load_state(a, g, row);
    const bool softmax = a.scoring != Scoring::shares;
    if (begin == end) clear(a, g, sums);
    const Floats given = softmax ? s.total : all(1.0f);
    add_span(a, g, row, {begin, end, end_of_task}, s, given, a.fresh, softmax, sums);
    if (begin < end || a.fresh) store_state(a, g, row, s);
}

}  // namespace

void attend_rows(const Attention& a, int64_t first, int64_t last) {
    const int64_t end_of_task = first < last ? at(a.indptr, last) : 0;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        for (int64_t row = first; row < last; ++row) attend_row(a, g, row, end_of_task);
        low = g.high;
    }
}

void attend_piece(const Attention& a, int64_t row, int64_t begin, int64_t end, float* piece) {
    float *top = piece + a.columns, *total = top + a.heads;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        Softmax s;
        add_span(a, g, output_row(a, row), {begin, end, end}, s, all(1.0f), true, false, piece);
        store_some(top + head, s.top, g.heads);
        store_some(total + head, s.total, g.heads);
        low = g.high;
    }
}

void attend_merge(const Attention& a, int64_t block_row, const float* pieces, int64_t count) {
    const int64_t row = output_row(a, block_row), size = a.columns + 2 * a.heads;
    float* sums = a.out + row * a.out_stride;
    const bool softmax = a.scoring != Scoring::shares;
    int64_t low = 0;
    for (int64_t head = 0; head < a.heads; head += kLanes) {
        const Group g = group_at(a, head, low);
        Softmax s = load_state(a, g, row);
        clear(a, g, sums);
        Floats given = softmax ? s.total : all(1.0f);
        for (int64_t i = 0; i < count; ++i) {
            const float* piece = pieces + i * size;
            const Floats their = load_some(piece + a.columns + head, g.heads);
            const Floats top = larger(s.top, their);
            const Floats old = softmax ? exp_lanes(s.top - top) : all(1.0f);
            const Floats more = softmax ? exp_lanes(their - top) : all(1.0f);
            s.total = s.total * old + load_some(piece + a.columns + a.heads + head, g.heads) * more;
            s.top = top;
            const Floats before = given * old;
            const Floats after = softmax && i + 1 == count ? inverse(s.total) : all(1.0f);
            for (int64_t c = low; c < g.high; ++c) {
                const int lane = static_cast<int>(a.head_of[c] - head);
                sums[c] = (sums[c] * before[lane] + piece[c] * more[lane]) * after[lane];
            }
            given = all(1.0f);
        }
        store_state(a, g, row, s);
        low = g.high;
    }
}

}  // namespace embertide::EMBERTIDE_ISA
