#include "rows.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {
constexpr int64_t kAhead = 8;  // rows; enough to hide a miss at 512 bytes a row
}

void gather_rows(const char* from, int64_t from_stride, const int64_t* index, int64_t begin,
                 int64_t end, char* to, int64_t to_stride, int64_t bytes) {
    for (int64_t i = begin; i < end; ++i) {
        if (i + kAhead < end) {
            const char* next = from + index[i + kAhead] * from_stride;
            for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(next + at);
        }
        __builtin_memcpy(to + i * to_stride, from + index[i] * from_stride, bytes);
    }
}

}  // namespace embertide::EMBERTIDE_ISA
