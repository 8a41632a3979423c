#include "utf8.hpp"

namespace embertide::EMBERTIDE_ISA {
namespace {

constexpr int64_t kLongest = 4;  // bytes of a character

// Whether a byte cannot follow the three before it. No branches: the compiler makes vectors of it.
inline uint8_t wrong(uint8_t byte, uint8_t last, uint8_t second, uint8_t third) {
    const uint8_t goes_on = (last >= 0xc0) | (second >= 0xe0) | (third >= 0xf0);
    const uint8_t continues = (byte & 0xc0) == 0x80;
    const uint8_t never = (byte == 0xc0) | (byte == 0xc1) | (byte > 0xf4);
    const uint8_t too_long = ((last == 0xe0) & (byte < 0xa0)) | ((last == 0xf0) & (byte < 0x90));
    const uint8_t surrogate = (last == 0xed) & (byte > 0x9f);
    const uint8_t beyond = (last == 0xf4) & (byte > 0x8f);
    return (goes_on ^ continues) | never | too_long | surrogate | beyond;
}

// As wrong, of a byte that fewer than three others may be before.
inline uint8_t wrong_at(const uint8_t* text, int64_t at) {
    return wrong(text[at], at > 0 ? text[at - 1] : 0, at > 1 ? text[at - 2] : 0,
                 at > 2 ? text[at - 3] : 0);
}

}  // namespace

bool is_ascii(const uint8_t* text, int64_t count) {
    uint8_t all = 0;
    for (int64_t i = 0; i < count; ++i) all |= text[i];
    return all < 0x80;
}

bool is_utf8(const uint8_t* text, int64_t count) {
    uint8_t bad = 0;
    const int64_t head = count < kLongest - 1 ? count : kLongest - 1;
    for (int64_t i = 0; i < head; ++i) bad |= wrong_at(text, i);
    for (int64_t i = kLongest - 1; i < count; ++i)
        bad |= wrong(text[i], text[i - 1], text[i - 2], text[i - 3]);
    // The last characters must be whole.
    if (count > 0) bad |= text[count - 1] >= 0xc0;
    if (count > 1) bad |= text[count - 2] >= 0xe0;
    if (count > 2) bad |= text[count - 3] >= 0xf0;
    return !bad;
}

}  // namespace embertide::EMBERTIDE_ISA
