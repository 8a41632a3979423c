#include "reading.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {
constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
}

bool place_rows(const uint32_t* from, int64_t from_stride, const int64_t* rows, int64_t count,
                uint32_t* to, int64_t to_stride, int64_t width) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t* in = from + i * from_stride;
        uint32_t* out = to + rows[i] * to_stride;
        for (int64_t j = 0; j < width; ++j) {
            const uint32_t magnitude = in[j] & kMagnitude;
            largest = largest > magnitude ? largest : magnitude;
            out[j] = in[j];
        }
    }
    return largest < kInfinity;
}

void narrow_ids(const int64_t* from, int64_t count, int32_t* to) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(from[i]);
}

}  // namespace embertide::EMBERTIDE_ISA
