#include "node_set.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 1 << 17;
constexpr int64_t kOwnFlags = 16 << 20;  // bytes of all threads
constexpr int64_t kNodeGrain = kLineBits * 256;  // whole lines, and whole bytes of a bitmap

using Lines = Vector<uint64_t>;
using InLines = In<uint64_t>;

uint64_t& word_of(uint64_t* lines, int64_t node) {
    const int64_t word = node / 64;
    return lines[word / kBitWords * kLineWords + 1 + word % kBitWords];
}

template <typename L>
int64_t capacity(const L& lines) {
    require(lines.shape(0) % kLineWords == 0, "lines: eight words each");
    return static_cast<int64_t>(lines.shape(0)) / kLineWords * kLineBits;
}

// Eight flags of 0 or 1, the first in the lowest bit.
uint64_t packed(const uint8_t* flags) {
    uint64_t bytes;
    std::memcpy(&bytes, flags, sizeof bytes);
    return bytes * 0x0102040810204080 >> 56;
}

// Marks nodes [begin, end) in bytes of this thread's own first, which takes no decision a node.
template <typename T>
void mark_apart(const T* nodes, int64_t begin, int64_t end, int64_t size, uint64_t* lines) {
    const std::unique_ptr<uint8_t[]> own(new uint8_t[size]());
    for (int64_t i = begin; i < end; ++i) {
        const int64_t node = nodes[i];
        require(node >= 0 && node < size, "nodes: outside the set");
        own[node] = 1;
    }
    for (int64_t first = 0; first < size; first += 64) {
        uint64_t bits = 0;
        for (int64_t at = 0; at < 64; at += 8) bits |= packed(&own[first + at]) << at;
        if (bits) std::atomic_ref(word_of(lines, first)).fetch_or(bits, std::memory_order_relaxed);
    }
}

template <typename T>
void mark_nodes(Lines lines, In<T> nodes) {
    const int64_t size = capacity(lines), given = nodes.shape(0);
    const int64_t parts = size <= kOwnFlags / threads() && size <= given ? threads() : 0;
    parallel_for(parts, [&](int64_t part) {
        mark_apart(nodes.data(), given * part / parts, given * (part + 1) / parts, size,
                   lines.data());
    });
    if (parts) return;
    parallel_ranges(given, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t node = nodes.data()[i];
            require(node >= 0 && node < size, "nodes: outside the set");
            std::atomic_ref word(word_of(lines.data(), node));
            const uint64_t bit = uint64_t{1} << (node & 63);
            // Most nodes are marked already: reading leaves the line shared between the cores.
            if (!(word.load(std::memory_order_relaxed) & bit))
                word.fetch_or(bit, std::memory_order_relaxed);
        }
    });
}

// Writes the lines' sums; returns the number of members.
int64_t rank_lines(Lines lines) {
    const int64_t count = capacity(lines) / kLineBits, grain = 1 << 14;
    const auto run = EMBERTIDE_PICK(sum_lines);
    std::vector<int64_t> sums((count + grain - 1) / grain);
    const auto add = [&](int64_t line, int64_t members) {
        lines.data()[line * kLineWords] += static_cast<uint64_t>(members) << kBaseShift;
    };
    parallel_for(sums.size(), [&](int64_t task) {
        const int64_t begin = task * grain, end = std::min(count, begin + grain);
        std::vector<int64_t> counts(end - begin);
        run(lines.data() + begin * kLineWords, 0, end - begin, counts.data());
        int64_t sum = 0;
        for (int64_t i = begin; i < end; ++i) {
            add(i, sum);
            sum += counts[i - begin];
        }
        sums[task] = sum;
    });
    int64_t total = 0;
    for (auto& sum : sums) total += std::exchange(sum, total);
    require(total < kMostMembers, "lines: 2^37 members or more");
    parallel_for(sums.size(), [&](int64_t task) {
        for (int64_t i = task * grain; i < std::min(count, (task + 1) * grain); ++i)
            add(i, sums[task]);
    });
    return total;
}

// Members below each node; a node may be one past the last.
void rank_nodes(InLines lines, In<int64_t> nodes, Vector<int64_t> ranks) {
    const int64_t size = capacity(lines);
    const auto rank = EMBERTIDE_PICK(rank_node);
    require(nodes.shape(0) == ranks.shape(0), "ranks: one for each node");
    for (size_t i = 0; i < nodes.shape(0); ++i) {
        require(nodes.data()[i] >= 0 && nodes.data()[i] < size, "nodes: outside the set");
        ranks.data()[i] = rank(lines.data(), nodes.data()[i]);
    }
}

void check_span(const InLines& lines, int64_t first, int64_t last) {
    require(0 <= first && first <= last && last < capacity(lines), "first, last: outside");
}

// The members of [first, last), counted from `first`, ascending.
template <typename T>
void list_nodes(InLines lines, int64_t first, int64_t last, int64_t base, Vector<T> out) {
    check_span(lines, first, last);
    const auto rank = EMBERTIDE_PICK(rank_node);
    auto* data = const_cast<uint64_t*>(lines.data());
    const int64_t before = rank(data, first), members = rank(data, last) - before;
    require(static_cast<int64_t>(out.shape(0)) == members, "out: one for each member");
    parallel_ranges(last - first, kNodeGrain, [&](int64_t begin, int64_t end) {
        T* to = out.data() + rank(data, first + begin) - before;
        for (int64_t node = first + begin; node < first + end;) {
            const uint64_t bits = word_of(data, node) >> (node & 63);
            const int64_t next = std::min(first + end, (node | 63) + 1);
            for (uint64_t rest = bits; rest; rest &= rest - 1) {
                const int64_t member = node + std::countr_zero(rest);
                if (member >= next) break;
                *to++ = static_cast<T>(member - base);
            }
            node = next;
        }
    });
}

// Bit i of the bitmap says whether node first + i is a member.
void pack_nodes(InLines lines, int64_t first, int64_t last, Vector<uint8_t> bitmap) {
    check_span(lines, first, last);
    auto* data = const_cast<uint64_t*>(lines.data());
    const int64_t size = (last - first + 7) / 8;
    require(static_cast<int64_t>(bitmap.shape(0)) == size, "bitmap: a bit for each node");
    parallel_ranges(size, kNodeGrain, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            const int64_t node = first + at * 8, shift = node & 63;
            uint64_t bits = word_of(data, node) >> shift;
            const int64_t rest = std::min<int64_t>(8, last - node);
            if (shift + rest > 64) bits |= word_of(data, node + 64 - shift) << (64 - shift);
            bitmap.data()[at] = static_cast<uint8_t>(bits & ((1u << rest) - 1));
        }
    });
}

// The positions of a bitmap's ones, ascending.
template <typename T>
void unpack_rows(In<uint8_t> bitmap, Vector<T> rows) {
    const int64_t size = bitmap.shape(0), tasks = (size + kGrain - 1) / kGrain;
    std::vector<int64_t> starts(tasks + 1);
    parallel_for(tasks, [&](int64_t task) {
        for (int64_t at = task * kGrain; at < std::min(size, (task + 1) * kGrain); ++at)
            starts[task + 1] += std::popcount(bitmap.data()[at]);
    });
    for (int64_t task = 0; task < tasks; ++task) starts[task + 1] += starts[task];
    require(static_cast<int64_t>(rows.shape(0)) == starts[tasks], "rows: one for each bit set");
    parallel_for(tasks, [&](int64_t task) {
        T* to = rows.data() + starts[task];
        for (int64_t at = task * kGrain; at < std::min(size, (task + 1) * kGrain); ++at)
            for (unsigned rest = bitmap.data()[at]; rest; rest &= rest - 1)
                *to++ = static_cast<T>(at * 8 + std::countr_zero(rest));
    });
}

template <typename T>
void bind_ids(nb::module_& m) {
    m.def("mark_nodes", mark_nodes<T>, nb::arg("lines").noconvert(), nb::arg("nodes").noconvert(),
          NoGil());
    m.def("list_nodes", list_nodes<T>, nb::arg("lines").noconvert(), nb::arg("first"),
          nb::arg("last"), nb::arg("base"), nb::arg("out").noconvert(), NoGil());
    m.def("unpack_rows", unpack_rows<T>, nb::arg("bitmap").noconvert(),
          nb::arg("rows").noconvert(), NoGil());
}

}  // namespace

void bind_node_set(nb::module_& m) {
    bind_ids<int32_t>(m);
    bind_ids<int64_t>(m);
    m.def("rank_lines", rank_lines, nb::arg("lines").noconvert(), NoGil());
    m.def("rank_nodes", rank_nodes, nb::arg("lines").noconvert(), nb::arg("nodes").noconvert(),
          nb::arg("ranks").noconvert(), NoGil());
    m.def("pack_nodes", pack_nodes, nb::arg("lines").noconvert(), nb::arg("first"),
          nb::arg("last"), nb::arg("bitmap").noconvert(), NoGil());
}

}  // namespace embertide
