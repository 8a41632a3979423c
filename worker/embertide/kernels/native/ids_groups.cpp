// Ids in groups: sorted by hash, grouped by owner without repetitions, and strings in any order.
#include <cstring>
#include <vector>

#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "ids_partition.hpp"

namespace embertide {
namespace {

constexpr int64_t kPart = 4096;  // ids of a part, so that sorting one stays in the cache

// The power of two of parts with about kPart of `size` ids each.
int64_t part_count(int64_t size, int64_t most) {
    int64_t parts = 1;
    while (parts < most && parts * kPart < size) parts *= 2;
    return parts;
}

constexpr int64_t kAhead = 16;  // rows between asking for a place in memory and reading it

// Arrays that follow each other, and where each begins.
template <typename T>
struct Pieces {
    const std::vector<In<T>>& arrays;
    std::vector<int64_t> starts{0};

    Pieces(const std::vector<In<T>>& given, int64_t per_id, int64_t more) : arrays(given) {
        for (const auto& array : given)
            starts.push_back(starts.back() + (static_cast<int64_t>(array.shape(0)) - more) / per_id);
        while (size() >> shift_ > 4 * static_cast<int64_t>(given.size())) ++shift_;
        int64_t piece = 0;
        for (int64_t i = 0; i < size(); i += int64_t{1} << shift_) {
            while (i >= starts[piece + 1]) ++piece;
            near_.push_back(piece);
        }
    }

    int64_t size() const { return starts.back(); }

    // The piece that holds i, found from that of a little before.
    int64_t piece_of(int64_t i) const {
        int64_t piece = near_[i >> shift_];
        while (i >= starts[piece + 1]) ++piece;
        return piece;
    }

private:
    int shift_ = 0;
    std::vector<int64_t> near_;
};

struct Hash {
    uint64_t high, low;
    uint32_t from;
    bool operator<(const Hash& other) const {
        if (high != other.high) return high < other.high;
        return low != other.low ? low < other.low : from < other.from;
    }
};

void sort_part(uint64_t* words, uint32_t* order, int64_t size) {
    thread_local std::vector<Hash> part;
    part.resize(size);
    for (int64_t i = 0; i < size; ++i) part[i] = {words[2 * i], words[2 * i + 1], order[i]};
    std::sort(part.begin(), part.end());
    for (int64_t i = 0; i < size; ++i) {
        words[2 * i] = part[i].high;
        words[2 * i + 1] = part[i].low;
        order[i] = part[i].from;
    }
}

// Words of all pieces in ascending order. With two words an id, order[i] is where it came from.
void sort_words(const std::vector<In<uint64_t>>& given, int width, Vector<uint64_t> out,
                Vector<uint32_t> order) {
    require(width == 1 || width == 2, "width: one or two words an id");
    const Pieces<uint64_t> pieces(given, width, 0);
    const int64_t size = pieces.size();
    require(static_cast<int64_t>(out.shape(0)) == size * width, "out: as many words as given");
    require(size < int64_t{UINT32_MAX}, "words: of at most 2^32 - 2 ids; use more workers");
    require(static_cast<int64_t>(order.shape(0)) == (width == 2 ? size : 0), "order: one each");
    if (!size) return;
    // Owners hold ranges of hashes, so parts are cut between the least and the greatest.
    uint64_t least = UINT64_MAX, greatest = 0;
    for (const auto& piece : given)
        for (size_t i = 0; i < piece.shape(0); i += width) {
            least = std::min(least, piece.data()[i]);
            greatest = std::max(greatest, piece.data()[i]);
        }
    int shift = 0;
    const uint64_t most = part_count(size, 1 << 13);
    while ((greatest - least) >> shift >= std::max<uint64_t>(2, most)) ++shift;
    const int64_t parts = static_cast<int64_t>((greatest - least) >> shift) + 1;
    // A task's ids follow each other, so the piece of the last id is nearly always the next one's.
    const auto word = [&](int64_t i) {
        thread_local int64_t piece = 0;
        if (piece + 1 >= static_cast<int64_t>(pieces.starts.size()) ||
            i < pieces.starts[piece] || i >= pieces.starts[piece + 1])
            piece = pieces.piece_of(i);
        return given[piece].data() + width * (i - pieces.starts[piece]);
    };
    const auto starts = partition(
        size, parts, [&](int64_t i) { return static_cast<int64_t>((*word(i) - least) >> shift); },
        [&](int64_t i, int64_t, int64_t to) {
            std::memcpy(out.data() + width * to, word(i), 8 * width);
            if (width == 2) order.data()[to] = static_cast<uint32_t>(i);
        });
    parallel_for(parts, [&](int64_t part) {
        const int64_t begin = starts[part], count = starts[part + 1] - begin;
        if (width == 1) std::sort(out.data() + begin, out.data() + begin + count);
        else sort_part(out.data() + 2 * begin, order.data() + begin, count);
    });
}

// out[order[i]] = i, of an order of as many places.
void invert_order(In<uint32_t> order, Vector<int64_t> out) {
    const int64_t size = out.shape(0);
    require(static_cast<int64_t>(order.shape(0)) == size, "order: one for each place");
    parallel_ranges(size, 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            __builtin_prefetch(out.data() + order.data()[std::min(i + kAhead, end - 1)], 1);
            require(order.data()[i] < size, "order: outside the places");
            out.data()[order.data()[i]] = i;
        }
    });
}

// The different words of [begin, end), moved to its begin; place[i] is that of the one that i is equal
// to, less `begin`. Returns how many they are.
template <int width>
uint32_t keep_different(uint64_t* words, int64_t begin, int64_t end, uint32_t* place) {
    thread_local std::vector<uint32_t> slots;
    uint64_t mask = 1;
    while (mask < 2 * static_cast<uint64_t>(end - begin)) mask *= 2;
    slots.assign(mask--, UINT32_MAX);
    uint64_t* const kept = words + width * begin;
    uint32_t count = 0;
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t high = words[width * i], low = words[width * i + width - 1];
        uint64_t slot = low & mask;
        uint32_t at;
        for (; (at = slots[slot]) != UINT32_MAX; slot = (slot + 1) & mask)
            if (kept[width * at] == high && kept[width * at + width - 1] == low) break;
        if (at == UINT32_MAX) {
            at = slots[slot] = count++;
            kept[width * at] = high;
            kept[width * at + width - 1] = low;
        }
        place[i] = at;
    }
    return count;
}

// The different ones of [n * width] words, by owner, and each word's place among them.
// Returns how many each owner has; `unique` is filled from its start. `room` is of 2n values.
std::vector<int64_t> group_words(In<uint64_t> words, int width, int64_t owners,
                                 Vector<uint64_t> unique, Vector<int32_t> position,
                                 Vector<uint32_t> room) {
    require(width == 1 || width == 2, "width: one or two words an id");
    require(owners > 0, "owners: at least one");
    const int64_t size = position.shape(0);
    require(static_cast<int64_t>(words.shape(0)) == size * width, "position: one for each id");
    require(unique.shape(0) == words.shape(0), "unique: as long as words");
    require(static_cast<int64_t>(room.shape(0)) == 2 * size, "room: two values for each id");
    require(size <= INT32_MAX, "words: too many at a time");
    const uint64_t* const word = words.data();
    uint64_t* const to_owners = unique.data();
    const int64_t share = part_count(size / owners, 1 << 10), parts = owners * share;
    // Words and the numbers of their ids go to parts together, so that a part is read in order.
    uint32_t* const members = room.data();
    uint32_t* const place = members + size;
    const auto starts = partition(
        size, parts, [&](int64_t i) { return part_of_word(word[width * i], parts); },
        [&](int64_t i, int64_t, int64_t to) {
            members[to] = static_cast<uint32_t>(i);
            to_owners[width * to] = word[width * i];
            to_owners[width * to + width - 1] = word[width * i + width - 1];
        });
    std::vector<int64_t> found(parts + 1);
    parallel_for(parts, [&](int64_t part) {
        const auto keep = width == 1 ? keep_different<1> : keep_different<2>;
        found[part + 1] = keep(to_owners, starts[part], starts[part + 1], place);
    });
    for (int64_t part = 0; part < parts; ++part) {
        if (found[part] != starts[part])
            std::memmove(to_owners + width * found[part], to_owners + width * starts[part],
                         8 * width * found[part + 1]);
        found[part + 1] += found[part];
    }
    parallel_for(parts, [&](int64_t part) {
        const auto before = static_cast<uint32_t>(found[part]);
        for (int64_t i = starts[part]; i < starts[part + 1]; ++i)
            position.data()[members[i]] = static_cast<int32_t>(before + place[i]);
    });
    std::vector<int64_t> counts(owners);
    for (int64_t owner = 0; owner < owners; ++owner)
        counts[owner] = found[(owner + 1) * share] - found[owner * share];
    return counts;
}

// Rows of arrow arrays of strings that follow each other.
struct Text {
    const std::vector<In<int64_t>>& offsets;
    const std::vector<In<uint8_t>>& data;
    Pieces<int64_t> pieces;

    Text(const std::vector<In<int64_t>>& bounds, const std::vector<In<uint8_t>>& bytes)
        : offsets(bounds), data(bytes), pieces(bounds, 1, 1) {
        require(bounds.size() == bytes.size(), "data: one for each array of offsets");
    }

    // Asks for what `row` reads.
    void ask(int64_t i) const { __builtin_prefetch(offsets_of(i).first); }

    // Begin and length of row i.
    std::pair<const uint8_t*, int64_t> row(int64_t i) const {
        const auto [at, piece] = offsets_of(i);
        const bool inside = at[0] >= 0 && at[0] <= at[1] &&
                            at[1] <= static_cast<int64_t>(data[piece].shape(0));
        require(inside, "offsets: outside the text, or not ascending");
        return {data[piece].data() + at[0], at[1] - at[0]};
    }

private:
    std::pair<const int64_t*, int64_t> offsets_of(int64_t i) const {
        require(i >= 0 && i < pieces.size(), "order: outside the rows");
        const int64_t piece = pieces.piece_of(i);
        return {offsets[piece].data() + (i - pieces.starts[piece]), piece};
    }
};

// bounds[i + 1] = the length of row order[i]; sums are the caller's.
void text_lengths(const std::vector<In<int64_t>>& offsets, const std::vector<In<uint8_t>>& data,
                  In<uint32_t> order, Vector<int64_t> lengths) {
    const Text text(offsets, data);
    require(order.shape(0) == lengths.shape(0), "lengths: one for each row");
    parallel_ranges(order.shape(0), 1 << 13, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (i + kAhead < end) text.ask(order.data()[i + kAhead]);
            lengths.data()[i] = text.row(order.data()[i]).second;
        }
    });
}

// Most strings are of a few words.
void copy_text(uint8_t* to, const uint8_t* from, int64_t length) {
    if (length < 8 || length > 16) {
        if (length) std::memcpy(to, from, length);
        return;
    }
    uint64_t first, last;
    std::memcpy(&first, from, 8);
    std::memcpy(&last, from + length - 8, 8);
    std::memcpy(to, &first, 8);
    std::memcpy(to + length - 8, &last, 8);
}

// out[bounds[i]:bounds[i + 1]] = row order[i].
void gather_text(const std::vector<In<int64_t>>& offsets, const std::vector<In<uint8_t>>& data,
                 In<uint32_t> order, In<int64_t> bounds, Vector<uint8_t> out) {
    const Text text(offsets, data);
    const int64_t bytes = out.shape(0);
    require(bounds.shape(0) == order.shape(0) + 1, "bounds: one more than rows");
    parallel_ranges(order.shape(0), 1 << 13, [&](int64_t begin, int64_t end) {
        std::pair<const uint8_t*, int64_t> rows[kAhead];
        for (int64_t last = begin; last < end + 2 * kAhead; ++last) {
            if (last < end) text.ask(order.data()[last]);
            const int64_t read = last - kAhead, i = read - kAhead;
            if (i >= begin) {
                const auto [from, length] = rows[i % kAhead];
                const int64_t to = bounds.data()[i];
                require(to >= 0 && length == bounds.data()[i + 1] - to && to <= bytes - length,
                        "bounds: not those of the rows");
                copy_text(out.data() + to, from, length);
            }
            if (read >= begin && read < end) {
                rows[read % kAhead] = text.row(order.data()[read]);
                __builtin_prefetch(rows[read % kAhead].first);
            }
        }
    });
}

}  // namespace

void bind_id_groups(nb::module_& m) {
    const auto words = nb::arg("words").noconvert();
    const auto width = nb::arg("width");
    const auto out = nb::arg("out").noconvert();
    const auto order = nb::arg("order").noconvert();
    const auto offsets = nb::arg("offsets");
    const auto data = nb::arg("data");
    const auto bounds = nb::arg("bounds").noconvert();
    m.def("sort_words", sort_words, nb::arg("pieces"), width, out, order, NoGil());
    m.def("invert_order", invert_order, order, out, NoGil());
    m.def("group_words", group_words, words, width, nb::arg("owners"),
          nb::arg("unique").noconvert(), nb::arg("position").noconvert(),
          nb::arg("room").noconvert(), NoGil());
    m.def("text_lengths", text_lengths, offsets, data, order, nb::arg("lengths").noconvert(),
          NoGil());
    m.def("gather_text", gather_text, offsets, data, order, bounds, out, NoGil());
}

}  // namespace embertide
