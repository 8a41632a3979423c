#include "ids.hpp"

#include <cstring>
#include <memory>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

namespace embertide {
namespace {

constexpr int64_t kGrain = 8192;
constexpr int64_t kBlock = 1024;  // ids that are looked up at a time

template <typename Body>
void in_blocks(int64_t size, const Body& body) {
    parallel_ranges(size, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; at += kBlock) body(at, std::min(kBlock, end - at));
    });
}

template <typename Offset>
void check_text(const Offset* offsets, int64_t begin, int64_t count, int64_t bytes) {
    bool inside = offsets[begin] >= 0 && offsets[begin + count] <= static_cast<Offset>(bytes);
    for (int64_t i = begin; i < begin + count; ++i) inside &= offsets[i] <= offsets[i + 1];
    require(inside, "offsets: outside the text, or not ascending");
}

auto pick_hash(const int32_t*) { return EMBERTIDE_PICK(hash_strings32); }
auto pick_hash(const int64_t*) { return EMBERTIDE_PICK(hash_strings64); }

template <typename Offset>
void hash_strings(In<Offset> offsets, In<uint8_t> data, Vector<uint64_t> out) {
    const int64_t count = static_cast<int64_t>(out.shape(0)) / 2, bytes = data.shape(0);
    require(static_cast<int64_t>(offsets.shape(0)) == count + 1, "out: two words for each string");
    const Offset* at = offsets.data();
    const auto run = pick_hash(at);
    in_blocks(count, [&](int64_t begin, int64_t size) {
        check_text(at, begin, size, bytes);
        run(at + begin, data.data(), bytes, size, out.data() + 2 * begin);
    });
}

void hash_ids(In<int64_t> ids, Vector<uint64_t> out) {
    require(ids.shape(0) == out.shape(0), "out: one word for each id");
    const auto run = EMBERTIDE_PICK(hash_integers);
    in_blocks(ids.shape(0), [&](int64_t begin, int64_t size) {
        run(ids.data() + begin, size, out.data() + begin);
    });
}

void unhash_ids(In<uint64_t> words, Vector<int64_t> out) {
    require(words.shape(0) == out.shape(0), "out: one id for each word");
    const auto run = EMBERTIDE_PICK(unhash_integers);
    in_blocks(words.shape(0), [&](int64_t begin, int64_t size) {
        run(words.data() + begin, size, out.data() + begin);
    });
}

void draw_all(In<uint64_t> keys, float size, Matrix<float> out) {
    require(keys.shape(0) == out.shape(0), "out: a row for each key");
    require(out.size() == 0 || out.shape(1) < 2 || out.stride(1) == 1, "out: columns side by side");
    const auto run = EMBERTIDE_PICK(draw_rows);
    in_blocks(keys.shape(0), [&](int64_t begin, int64_t count) {
        run(keys.data() + begin, count, out.shape(1), size, out.data() + begin * out.stride(0),
            out.stride(0));
    });
}

// Keeps the words alive; makes the directory.
class IdTable {
public:
    IdTable(In<uint64_t> words, int width) : words_(std::move(words)), width_(width) {
        require(width == 1 || width == 2, "width: one or two words an id");
        const int64_t size = static_cast<int64_t>(words_.shape(0)) / width;
        require(size < int64_t{UINT32_MAX}, "words: of at most 2^32 - 2 ids; use more workers");
        table_ = {words_.data(), nullptr, size, 1, 0, 0, 0};
        if (size) table_.base = table_.words[0];
        if (size) table_.span = table_.words[width * (size - 1)] - table_.base;
        const uint64_t most = std::max<int64_t>(2, size);
        while (table_.span >> table_.shift >= most) ++table_.shift;
        table_.buckets = static_cast<int64_t>(table_.span >> table_.shift) + 1;
        lines_ = std::make_unique_for_overwrite<uint8_t[]>(nbytes());
        table_.lines = lines_.get();
        fill_lines();
    }

    // Of the directory. Its last line begins at the table's end.
    int64_t nbytes() const { return kLineBytes * (table_.buckets / kSlots + 2); }

    template <typename Offset, typename Position>
    void find_strings(In<Offset> offsets, In<uint8_t> data, int64_t first,
                      Vector<Position> out) const {
        const int64_t count = out.shape(0), bytes = data.shape(0);
        require(width_ == 2, "the table is of integers");
        require(static_cast<int64_t>(offsets.shape(0)) == count + 1, "out: one for each string");
        const Offset* at = offsets.data();
        // One after the other: a wrong guess in a search would throw hashes under way away.
        const auto hash = pick_hash(at);
        const auto run = EMBERTIDE_PICK(look_up2);
        in_blocks(count, [&](int64_t begin, int64_t size) {
            uint64_t words[2 * kBlock];
            int64_t found[kBlock];
            check_text(at, begin, size, bytes);
            hash(at + begin, data.data(), bytes, size, words);
            run(table_, words, size, found);
            shift(found, size, first, out.data() + begin);
        });
    }

    template <typename Position>
    void find_integers(In<int64_t> ids, int64_t first, Vector<Position> out) const {
        require(width_ == 1, "the table is of strings");
        require(ids.shape(0) == out.shape(0), "out: one for each id");
        const auto run = EMBERTIDE_PICK(look_up_integers);
        in_blocks(ids.shape(0), [&](int64_t begin, int64_t size) {
            int64_t found[kBlock];
            run(table_, ids.data() + begin, size, found);
            shift(found, size, first, out.data() + begin);
        });
    }

    template <typename Position>
    void find_words(In<uint64_t> words, int64_t first, Vector<Position> out) const {
        const int64_t count = out.shape(0);
        require(static_cast<int64_t>(words.shape(0)) == count * width_, "out: one for each id");
        const auto run = width_ == 1 ? EMBERTIDE_PICK(look_up1) : EMBERTIDE_PICK(look_up2);
        in_blocks(count, [&](int64_t begin, int64_t size) {
            int64_t found[kBlock];
            run(table_, words.data() + width_ * begin, size, found);
            shift(found, size, first, out.data() + begin);
        });
    }

private:
    template <typename Position>
    static void shift(const int64_t* found, int64_t count, int64_t first, Position* out) {
        for (int64_t i = 0; i < count; ++i)
            out[i] = static_cast<Position>(found[i] < 0 ? -1 : found[i] + first);
    }

    int64_t bucket(int64_t i) const {
        // Words that do not ascend would lead past the directory's end.
        const int64_t found = (table_.words[width_ * i] - table_.base) >> table_.shift;
        require(found >= 0 && found < table_.buckets, "words: not ascending");
        return found;
    }

    // The first id of bucket b or later.
    int64_t first_from(int64_t b) const {
        int64_t low = 0, high = table_.size;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (bucket(middle) < b) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    // Each task has some lines, and goes over their ids.
    void fill_lines() {
        const int64_t lines = nbytes() / kLineBytes;
        parallel_ranges(lines, 1 << 11, [&](int64_t begin, int64_t end) {
            int64_t i = first_from(begin * kSlots);
            for (int64_t line = begin; line < end; ++line) i = fill_line(line, i);
            require(i == first_from(end * kSlots), "words: not ascending");
        });
    }

    // Returns the first id after those of the line's buckets.
    int64_t fill_line(int64_t line, int64_t i) {
        uint8_t* const to = lines_.get() + kLineBytes * line;
        const auto start = static_cast<uint32_t>(i);
        std::memcpy(to, &start, sizeof start);
        int64_t next = i < table_.size ? bucket(i) : INT64_MAX;
        for (int64_t slot = 0, b = line * kSlots; slot < kSlots; ++slot, ++b) {
            to[sizeof start + slot] = static_cast<uint8_t>(std::min<int64_t>(255, i - start));
            require(next >= b, "words: not ascending");
            while (next == b) next = ++i < table_.size ? bucket(i) : INT64_MAX;
        }
        return i;
    }

    In<uint64_t> words_;
    int width_;
    Table table_;
    std::unique_ptr<uint8_t[]> lines_;
};

template <typename Position>
void bind_finding(nb::class_<IdTable>& table) {
    const auto first = nb::arg("first");
    const auto out = nb::arg("out").noconvert();
    const auto words = nb::arg("words").noconvert();
    const auto ids = nb::arg("ids").noconvert();
    const auto offsets = nb::arg("offsets").noconvert();
    const auto data = nb::arg("data");
    table.def("find_integers", &IdTable::find_integers<Position>, ids, first, out, NoGil());
    table.def("find_strings", &IdTable::find_strings<int32_t, Position>, offsets, data, first, out,
              NoGil());
    table.def("find_strings", &IdTable::find_strings<int64_t, Position>, offsets, data, first, out,
              NoGil());
    table.def("find_words", &IdTable::find_words<Position>, words, first, out, NoGil());
}

}  // namespace

void bind_ids(nb::module_& m) {
    const auto data = nb::arg("data");
    const auto out = nb::arg("out").noconvert();
    const auto words = nb::arg("words").noconvert();
    const auto ids = nb::arg("ids").noconvert();
    const auto offsets = nb::arg("offsets").noconvert();
    m.def("hash_integers", hash_ids, ids, out, NoGil());
    m.def("unhash_integers", unhash_ids, words, out, NoGil());
    m.def("draw_rows", draw_all, nb::arg("keys").noconvert(), nb::arg("size"), out, NoGil());
    m.def("hash_strings", hash_strings<int32_t>, offsets, data, out, NoGil());
    m.def("hash_strings", hash_strings<int64_t>, offsets, data, out, NoGil());
    nb::class_<IdTable> table(m, "IdTable");
    table.def(nb::init<In<uint64_t>, int>(), words, nb::arg("width"), NoGil());
    table.def_prop_ro("nbytes", &IdTable::nbytes);
    bind_finding<int32_t>(table);
    bind_finding<int64_t>(table);
    bind_id_groups(m);
    bind_id_owners(m);
}

}  // namespace embertide
