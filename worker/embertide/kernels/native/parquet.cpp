// Columns of parquet files without nulls and without nesting, plain or by a dictionary.
//
// What is anything else throws std::invalid_argument: the caller asks another reader.
#include <algorithm>
#include <cstring>
#include <limits>

#include "arrays.hpp"
#include "bindings.hpp"
#include "bytes.hpp"
#include "parquet_pages.hpp"
#include "snappy.hpp"
#include "utf8.hpp"
#include "varint.hpp"

namespace embertide {
namespace {

constexpr int64_t kIndices = 1024;  // that are decoded at a time
enum Encoding { kPlain = 0, kPlainDictionary = 2, kDictionary = 8 };

uint64_t load(const uint8_t* from) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    return word;
}

// Indices of a page: runs of one, and bit-packed ones.
class Indices {
public:
    Indices() = default;
    explicit Indices(Span in) : in_(in) {
        require(in_.size() > 0, "page: without indices");
        width_ = *in_.begin++;
        require(width_ <= 32, "page: indices too wide");
    }

    // At most `most` into `out`; how many.
    int64_t read(uint32_t* out, int64_t most) {
        if (!run_) begin_run();
        const int64_t count = std::min(most, run_);
        if (packed_) {
            const uint64_t mask = (uint64_t{1} << width_) - 1;
            for (int64_t i = 0; i < count; ++i, bit_ += width_)
                out[i] = static_cast<uint32_t>(load(in_.begin + bit_ / 8) >> (bit_ % 8) & mask);
        } else {
            std::fill_n(out, count, value_);
        }
        run_ -= count;
        if (packed_ && !run_) in_.begin += packed_bytes_;
        return count;
    }

private:
    void begin_run() {
        uint64_t head = 0;
        require(read_varint(in_.begin, in_.end, 5, head), "page: too few indices");
        run_ = static_cast<int64_t>(head >> 1);
        packed_ = head & 1;
        require(run_ > 0, "page: an empty run");
        if (packed_) {
            // Writers may leave out the bytes of values that pad the last eight.
            packed_bytes_ = std::min(run_ * width_, in_.size());
            run_ = width_ ? std::min(run_ * 8, packed_bytes_ * 8 / width_) : run_ * 8;
            require(run_ > 0, "page: too few indices");
            bit_ = 0;
            return;
        }
        const int bytes = (width_ + 7) / 8;
        require(in_.size() >= bytes, "page: too few indices");
        value_ = static_cast<uint32_t>(load(in_.begin) & ((uint64_t{1} << (8 * bytes)) - 1));
        in_.begin += bytes;
    }

    Span in_;
    int width_ = 0;
    int64_t run_ = 0, bit_ = 0, packed_bytes_ = 0;
    bool packed_ = false;
    uint32_t value_ = 0;
};

// Strings, one after the other.
class Text {
public:
    void add(const uint8_t* from, int64_t length) {
        if (used_ + length + kSlack > held_.size())
            held_.grow(std::max(2 * held_.size(), used_ + length + kSlack), used_);
        uint8_t* const to = held_.data() + used_;
        std::memcpy(to, from, 16);
        if (length > 16) std::memcpy(to + 16, from + 16, length - 16);
        used_ += length;
    }
    void clear() { used_ = 0; }
    int64_t used() const { return used_; }
    const uint8_t* data() const { return held_.data(); }

private:
    Bytes held_;
    int64_t used_ = 0;
};

// Of a string in a dictionary.
struct Place {
    uint32_t start, length;
};

// Values of a column chunk, from the first on. One thread at a time.
class ColumnChunk {
public:
    // width: bytes of a value, 4 or 8; 0 for strings. levels: whether values may be null.
    ColumnChunk(int file, int64_t offset, int64_t length, int width, bool snappy, bool levels)
        : pages_(file, offset, length, snappy), width_(width), levels_(levels) {
        require(width == 0 || width == 4 || width == 8, "width: 0, 4 or 8");
    }

    // As many values as fit.
    void read_numbers(Vector<uint8_t> out) {
        require(width_ > 0, "a column of strings");
        require(out.shape(0) % width_ == 0, "out: of whole values");
        uint8_t* to = out.data();
        int64_t count = static_cast<int64_t>(out.shape(0)) / width_;
        while (count > 0) {
            if (!left_) next_page();
            const int64_t some = std::min(count, left_);
            if (by_index_) {
                if (width_ == 8) take<uint64_t>(to, some);
                else take<uint32_t>(to, some);
            } else {
                require(some * width_ <= in_.size(), "page: too few values");
                std::memcpy(to, in_.begin, some * width_);
                in_.begin += some * width_;
            }
            to += some * width_;
            count -= some;
            left_ -= some;
        }
    }

    // Where each string begins, and the end; the bytes are given by read_text. Returns how many.
    // All strings are UTF-8.
    int64_t read_strings(Vector<int32_t> offsets) {
        require(width_ == 0, "a column of numbers");
        require(offsets.shape(0) > 0, "offsets: one more than strings");
        int64_t count = static_cast<int64_t>(offsets.shape(0)) - 1;
        int32_t* to = offsets.data();
        text_.clear();
        *to = 0;
        while (count > 0) {
            if (!left_) next_page();
            const int64_t some = std::min(count, left_);
            if (by_index_) take_strings(to, some);
            else read_plain(to, some);
            to += some;
            count -= some;
            left_ -= some;
        }
        return text_.used();
    }

    void read_text(Vector<uint8_t> out) const {
        require(static_cast<int64_t>(out.shape(0)) == text_.used(), "out: as long as the text");
        if (text_.used()) std::memcpy(out.data(), text_.data(), text_.used());
    }

private:
    void next_page() {
        PageHeader header;
        in_ = pages_.next(header);
        if (header.kind == PageKind::dictionary) {
            keep_dictionary(header);
            return;
        }
        skip_levels(header);
        by_index_ = header.encoding == kDictionary || header.encoding == kPlainDictionary;
        require(by_index_ || header.encoding == kPlain, "page: of another encoding");
        if (by_index_ && header.values) indices_ = Indices(in_);
        left_ = header.values;
    }

    void skip_levels(const PageHeader& header) {
        require(header.nulls == 0, "page: with nulls");
        if (header.kind == PageKind::data2 || !levels_) return;
        require(in_.size() >= 4, "page: without levels");
        const int64_t bytes = static_cast<int64_t>(load(in_.begin) & UINT32_MAX);
        in_.begin += 4;
        require(bytes <= in_.size(), "page: without levels");
        require(all_ones({in_.begin, in_.begin + bytes}, header.values), "page: with nulls");
        in_.begin += bytes;
    }

    void keep_dictionary(const PageHeader& header) {
        require(header.encoding == kPlain || header.encoding == kPlainDictionary,
                "dictionary: of another encoding");
        const int64_t count = header.values;
        if (width_) {
            require(count * width_ <= in_.size(), "dictionary: too few values");
            dictionary_.grow(count * width_ + kSlack, 0);
            std::memcpy(dictionary_.data(), in_.begin, count * width_);
            entries_ = count;
            return;
        }
        dictionary_.grow(in_.size() + kSlack, 0);
        std::memcpy(dictionary_.data(), in_.begin, in_.size() + kSlack);
        require(4 * count <= in_.size(), "dictionary: too few values");
        starts_.grow(count * sizeof(Place), 0);
        auto* const places = reinterpret_cast<Place*>(starts_.data());
        const uint8_t* const begin = in_.begin;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t length = string_length();
            places[i] = {static_cast<uint32_t>(in_.begin - begin), static_cast<uint32_t>(length)};
            in_.begin += length;
        }
        require_entries_are_text(places, count, {begin, in_.begin});
        entries_ = count;
    }

    // Where the page is ASCII, which short strings' lengths are too, so is each of its strings.
    void require_entries_are_text(const Place* places, int64_t count, Span page) const {
        if (EMBERTIDE_PICK(is_ascii)(page.begin, page.size())) return;
        const auto is_text = EMBERTIDE_PICK(is_utf8);
        for (int64_t i = 0; i < count; ++i)
            require(is_text(page.begin + places[i].start, places[i].length),
                    "dictionary: strings that are not UTF-8");
    }

    // Of the string that begins here; goes on to its first byte.
    int64_t string_length() {
        require(in_.size() >= 4, "page: too few strings");
        const int64_t length = static_cast<int64_t>(load(in_.begin) & UINT32_MAX);
        in_.begin += 4;
        require(length <= in_.size(), "page: too few strings");
        return length;
    }

    template <typename T>
    void take(uint8_t* to, int64_t count) {
        each_index(count, [&](uint32_t index) {
            std::memcpy(to, dictionary_.data() + sizeof(T) * index, sizeof(T));
            to += sizeof(T);
        });
    }

    void take_strings(int32_t* to, int64_t count) {
        each_index(count, [&](uint32_t index) {
            const auto [start, length] = reinterpret_cast<const Place*>(starts_.data())[index];
            add(dictionary_.data() + start, length, *++to);
        });
    }

    void read_plain(int32_t* to, int64_t count) {
        const int32_t* const starts = to;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t length = string_length();
            add(in_.begin, length, *++to);
            in_.begin += length;
        }
        require_text(starts, count);
    }

    // The last strings that were added are UTF-8 where all their bytes are, and none begins within
    // a character.
    void require_text(const int32_t* starts, int64_t count) const {
        const uint8_t* const text = text_.data();
        const int64_t first = starts[0], bytes = text_.used() - first;
        if (bytes == 0 || EMBERTIDE_PICK(is_ascii)(text + first, bytes)) return;
        bool good = EMBERTIDE_PICK(is_utf8)(text + first, bytes);
        for (int64_t i = 0; i < count; ++i)
            good &= starts[i] == text_.used() || (text[starts[i]] & 0xc0) != 0x80;
        require(good, "page: strings that are not UTF-8");
    }

    void add(const uint8_t* from, int64_t length, int32_t& end) {
        text_.add(from, length);
        require(text_.used() <= std::numeric_limits<int32_t>::max(), "page: strings too long");
        end = static_cast<int32_t>(text_.used());
    }

    template <typename Body>
    void each_index(int64_t count, const Body& body) {
        uint32_t indices[kIndices];
        for (int64_t done = 0, some; done < count; done += some) {
            some = indices_.read(indices, std::min(kIndices, count - done));
            for (int64_t i = 0; i < some; ++i) {
                require(indices[i] < entries_, "page: an index beyond the dictionary");
                body(indices[i]);
            }
        }
    }

    PageReader pages_;
    int width_;
    bool levels_;
    Span in_;  // of the page, what is not yet read
    int64_t left_ = 0;
    bool by_index_ = false;
    Indices indices_;
    Bytes dictionary_, starts_;  // the latter are the Places of strings
    int64_t entries_ = 0;
    Text text_;
};

}  // namespace

void bind_parquet(nb::module_& m) {
    nb::class_<ColumnChunk> chunk(m, "ColumnChunk");
    chunk.def(nb::init<int, int64_t, int64_t, int, bool, bool>(), nb::arg("file"),
              nb::arg("offset"), nb::arg("length"), nb::arg("width"), nb::arg("snappy"),
              nb::arg("levels"));
    chunk.def("read_numbers", &ColumnChunk::read_numbers, nb::arg("out").noconvert(), NoGil());
    chunk.def("read_strings", &ColumnChunk::read_strings, nb::arg("offsets").noconvert(),
              NoGil());
    chunk.def("read_text", &ColumnChunk::read_text, nb::arg("out").noconvert(), NoGil());
}

}  // namespace embertide
