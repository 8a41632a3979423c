// Scores of a batch of a row's non-zeros, and their softmax as it goes on; for *_isa.cpp only.
#pragma once

#include "pair_lanes.hpp"
#include "prefetch.hpp"
#include "wide.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int kBatch = 2 * kRun;  // non-zeros whose scores are held at a time
constexpr float kNone = -__builtin_inff();

// As many heads as a vector has lanes, and their columns [low, high).
struct Group {
    int64_t first;
    int heads;
    int64_t low, high;
};

struct Softmax {
    Floats top = all(kNone), total{};
};

struct Batch {
    int64_t begin;
    int count;
    int64_t end_of_task;  // nothing is prefetched from there on
    Floats shares[kBatch];
};

// The group after the columns below `low`, which are those of the heads below `first`.
inline Group group_at(const Attention& a, int64_t first, int64_t low) {
    const int64_t rest = a.heads - first;
    const int heads = static_cast<int>(rest < kLanes ? rest : kLanes);
    int64_t high = low;
    if (rest <= kLanes) high = a.columns;
    else while (high < a.columns && a.head_of[high] < first + heads) ++high;
    return {first, heads, low, high};
}

// Asks for columns [from, from + width) of the row that a non-zero far after `e` needs.
template <typename Value>
inline void ask_far(const Batch& b, const Numbers& indices, int64_t e, const Value* rows,
                    int64_t stride, int64_t from, int64_t width) {
    if (e + kFar < b.end_of_task)
        prefetch_far(rows + at(indices, e + kFar) * stride + from, width);
}
template <typename Value>
inline void ask_near(const Batch& b, const Numbers& indices, int64_t e, const Value* rows,
                     int64_t stride, int64_t from, int64_t width) {
    if (kAsksTwice && e + kNear < b.end_of_task)
        prefetch_near(rows + at(indices, e + kNear) * stride + from, width);
}

// Asks for what will be summed, while scores are made: earlier than in the loop of the sums. A
// layer of GAT takes 0.88 of the time so on an AMD EPYC (Zen 4).
template <typename Value>
inline void ask_for_values(const Attention& a, const Group& g, const Batch& b, int64_t e) {
    const Value* x = static_cast<const Value*>(a.x.data);
    ask_far(b, a.indices, e, x, a.x_stride, g.low, g.high - g.low);
}

template <typename Value>
inline void additive_scores(const Attention& a, const Group& g, int64_t row, Batch& b) {
    const float* source = static_cast<const float*>(a.source) + g.first;
    const Floats target = load_some(a.target + row * a.target_stride + g.first, g.heads);
    for (int i = 0; i < b.count; ++i) {
        const int64_t e = b.begin + i, next = e + kFar;
        if (next < b.end_of_task) __builtin_prefetch(source + at(a.indices, next) * a.source_stride);
        ask_for_values<Value>(a, g, b, e);
        const Floats given = load_some(source + at(a.indices, e) * a.source_stride, g.heads);
        b.shares[i] = leaky(given + target, a.slope);
    }
}

template <bool kDot, typename Value>
inline void pair_scores_of(const Attention& a, const Group& g, int64_t row, Batch& b) {
    const int64_t width = a.per_head, from = g.first * width;
    const float* query = a.target + row * a.target_stride + from;
    const Value* keys = static_cast<const Value*>(a.source);
    for (int i = 0; i < b.count; ++i) {
        const int64_t e = b.begin + i;
        ask_far(b, a.indices, e, keys, a.source_stride, from, g.heads * width);
        ask_near(b, a.indices, e, keys, a.source_stride, from, g.heads * width);
        if (a.x.data != a.source) ask_for_values<Value>(a, g, b, e);
        const Value* key = keys + at(a.indices, e) * a.source_stride + from;
        b.shares[i] = Floats{};
        char* const shares = reinterpret_cast<char*>(&b.shares[i]);
        pair_scores<kDot>(key, query, kDot ? nullptr : a.vector + from, g.heads, width, a.slope,
                          a.scale, [shares](int64_t h, Four scores) {
                              __builtin_memcpy(shares + h * sizeof(float), &scores, sizeof scores);
                          });
    }
}

template <typename Value>
inline void given_shares(const Attention& a, const Group& g, Batch& b) {
    const float* shares = static_cast<const float*>(a.source);
    for (int i = 0; i < b.count; ++i) {
        const int64_t e = b.begin + i, edge = a.edges.data ? at(a.edges, e) : e;
        ask_for_values<Value>(a, g, b, e);
        b.shares[i] = load_some(shares + edge * a.source_stride + g.first, g.heads);
    }
}

// Scores become weights against the new maximum; returns the factor of what was summed before.
inline Floats renew(Softmax& s, Batch& b) {
    Floats top = s.top;
    for (int i = 0; i < b.count; ++i) top = larger(top, b.shares[i]);
    const Floats before = exp_lanes(s.top - top);
    Floats total = s.total * before;
    for (int from = 0; from < b.count; from += kRun) {
        Floats run{};
        for (int i = from; i < b.count && i < from + kRun; ++i) {
            b.shares[i] = exp_lanes(b.shares[i] - top);
            run += b.shares[i];
        }
        total += run;
    }
    s = {top, total};
    return before;
}

template <typename Value>
inline Floats score(const Attention& a, const Group& g, int64_t row, Softmax& s, Batch& b) {
    switch (a.scoring) {
        case Scoring::additive: additive_scores<Value>(a, g, row, b); break;
        case Scoring::gatv2: pair_scores_of<false, Value>(a, g, row, b); break;
        case Scoring::dot: pair_scores_of<true, Value>(a, g, row, b); break;
        case Scoring::shares: given_shares<Value>(a, g, b); break;
    }
    const Floats before = a.scoring == Scoring::shares ? all(1.0f) : renew(s, b);
    if (a.weights)
        for (int i = 0; i < b.count; ++i) b.shares[i] *= a.weights[b.begin + i];
    return before;
}

}  // namespace
}  // namespace embertide::EMBERTIDE_ISA
