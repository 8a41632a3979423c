#include "parquet_pages.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "arrays.hpp"
#include "snappy.hpp"
#include "thrift.hpp"

namespace embertide {
namespace {

constexpr int64_t kRead = 64 << 10;       // bytes that are asked for at least
constexpr int64_t kLongHeader = 1 << 20;  // statistics of long strings are in it
constexpr int64_t kMostBytes = INT32_MAX;

// Fields of DataPageHeader, DictionaryPageHeader or DataPageHeaderV2.
void read_kind(Compact& in, PageHeader& header, PageKind kind) {
    int64_t id = 0;
    while (const int type = in.field(id)) {
        const bool second = kind == PageKind::data2;
        const bool whole = type == 5;
        if (id == 1 && whole) header.values = in.number();
        else if (id == 2 && whole && !second) header.encoding = in.number();
        else if (id == 2 && whole) header.nulls = in.number();
        else if (id == 4 && whole && second) header.encoding = in.number();
        else if (id == 5 && whole && second) header.definition_bytes = in.number();
        else if (id == 6 && whole && second) header.repetition_bytes = in.number();
        else if (id == 7 && second && type <= 2) header.compressed = type == 1;
        else in.skip(type, 0);
    }
}

}  // namespace

const uint8_t* read_header(const uint8_t* at, const uint8_t* end, PageHeader& header) {
    Compact in{at, end};
    header = {};
    int64_t id = 0, kind = -1;
    while (const int type = in.field(id)) {
        if (id == 1 && type == 5) kind = in.number();
        else if (id == 2 && type == 5) header.unpacked = in.number();
        else if (id == 3 && type == 5) header.packed = in.number();
        else if (id == 5 && type == 12) read_kind(in, header, PageKind::data);
        else if (id == 7 && type == 12) read_kind(in, header, PageKind::dictionary);
        else if (id == 8 && type == 12) read_kind(in, header, PageKind::data2);
        else in.skip(type, 0);
    }
    if (kind == 0 || kind == 2 || kind == 3) header.kind = static_cast<PageKind>(kind);
    return in.good ? in.at : nullptr;
}

bool all_ones(Span levels, int64_t count) {
    Compact in{levels.begin, levels.end};
    while (count > 0 && in.good) {
        const uint64_t head = in.varint(), run = head >> 1;
        if (run == 0 || run > static_cast<uint64_t>(kMostBytes)) return false;
        if (!(head & 1)) {
            if (in.byte() != 1) return false;
            count -= static_cast<int64_t>(run);
            continue;
        }
        for (uint64_t i = 0; i < run && count > 0; ++i, count -= 8) {
            const int mask = count < 8 ? (1 << count) - 1 : 255;
            if ((in.byte() & mask) != mask) return false;
        }
    }
    return in.good;
}

PageReader::PageReader(int file, int64_t offset, int64_t length, bool snappy)
    : file_(file), offset_(offset), rest_(length), snappy_(snappy) {
    require(offset >= 0 && length >= 0, "column chunk: outside the file");
}

// Holds the next `bytes` of the chunk, or all that is left of it.
void PageReader::want(int64_t bytes) {
    if (have_ - at_ >= bytes) return;
    have_ -= at_;
    if (have_) std::memmove(window_.data(), window_.data() + at_, have_);
    at_ = 0;
    const int64_t target = have_ + std::min(rest_, std::max(bytes, kRead) - have_);
    window_.grow(target + kSlack, have_);
    while (have_ < target) {
        const ssize_t got = pread(file_, window_.data() + have_, target - have_, offset_);
        if (got < 0 && errno == EINTR) continue;
        require(got > 0, "column chunk: cannot be read to its end");
        have_ += got;
        offset_ += got;
        rest_ -= got;
    }
}

Span PageReader::next(PageHeader& header) {
    want(1);
    const uint8_t* body = nullptr;
    for (int64_t bytes = 256; !body && bytes <= kLongHeader; bytes *= 16) {
        want(bytes);
        body = read_header(held().begin, held().end, header);
    }
    require(body, "page: its header is not whole");
    at_ += body - held().begin;
    require(header.packed >= 0 && header.packed <= have_ - at_ + rest_ && header.unpacked >= 0 &&
                header.unpacked <= kMostBytes && header.values >= 0 &&
                header.values <= kMostBytes && header.kind != PageKind::other,
            "page: of another kind");
    want(header.packed);
    const uint8_t* const given = window_.data() + at_;
    at_ += header.packed;
    const int64_t levels = header.definition_bytes + header.repetition_bytes;
    require(header.definition_bytes >= 0 && header.repetition_bytes == 0 &&
                levels <= std::min(header.packed, header.unpacked),
            "page: levels");
    if (!snappy_ || !header.compressed) {
        require(header.packed == header.unpacked, "page: of another length");
        return {given + levels, given + header.packed};
    }
    unpacked_.grow(header.unpacked + kSlack, 0);
    const int64_t size = header.unpacked - levels;
    if (size)
        require(unpack_snappy(given + levels, header.packed - levels, unpacked_.data(), size),
                "page: damaged");
    return {unpacked_.data(), unpacked_.data() + size};
}

}  // namespace embertide
