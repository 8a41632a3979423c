// The pages of one column chunk of a parquet file, decompressed one after the other.
// https://github.com/apache/parquet-format/blob/master/README.md
#pragma once

#include <cstdint>

#include "bytes.hpp"

namespace embertide {

enum class PageKind { data = 0, dictionary = 2, data2 = 3, other = -1 };

struct PageHeader {
    PageKind kind = PageKind::other;
    int64_t unpacked = -1, packed = -1;  // bytes
    int64_t values = -1, nulls = 0;
    int64_t encoding = -1;
    int64_t definition_bytes = 0, repetition_bytes = 0;  // of a data2 page, never packed
    bool compressed = true;
};

// Reads a header in Thrift's compact protocol from [at, end); returns where it ends, or null where
// it is not whole.
const uint8_t* read_header(const uint8_t* at, const uint8_t* end, PageHeader& header);

// Bytes that may be read, and kSlack more.
struct Span {
    const uint8_t* begin = nullptr;
    const uint8_t* end = nullptr;
    int64_t size() const { return end - begin; }
};

// Whether the first `count` levels, of one bit each, are all one: no value is null.
bool all_ones(Span levels, int64_t count);

// Reads [offset, offset + length) of a file page by page.
class PageReader {
public:
    PageReader(int file, int64_t offset, int64_t length, bool snappy);
    // The next page's header and its bytes as they are before encoding, valid until the next call.
    // Throws where there is none, or it cannot be read.
    Span next(PageHeader& header);

private:
    void want(int64_t bytes);
    Span held() const { return {window_.data() + at_, window_.data() + have_}; }

    int file_;
    int64_t offset_, rest_;  // where the file is read next, and how much of the chunk is left
    bool snappy_;
    Bytes window_, unpacked_;
    int64_t at_ = 0, have_ = 0;  // of the window
};

}  // namespace embertide
