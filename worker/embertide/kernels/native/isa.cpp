#include "isa.hpp"

#include <cstdlib>
#include <cstring>

#ifdef EMBERTIDE_X86
#include <cpuid.h>
#endif

namespace embertide {
namespace {

#ifdef EMBERTIDE_X86
// What CPUID and XGETBV report. __builtin_cpu_supports needs a runtime that not every compiler has:
// with Zig's, every processor lacks everything.
struct Processor {
    unsigned first = 0, seventh = 0, saved = 0;
    bool amd = false;

    Processor() {
        unsigned a, b, c, d;
        if (!__get_cpuid(0, &a, &b, &c, &d)) return;
        amd = b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
        if (__get_cpuid(1, &a, &b, &c, &d)) first = c;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) seventh = b;
        if (first & bit_OSXSAVE) __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    }

    // Instructions of the first and of the seventh leaf, whose registers the system saves.
    bool has(unsigned of_first, unsigned of_seventh, unsigned registers) const {
        return (first & of_first) == of_first && (seventh & of_seventh) == of_seventh &&
               (saved & registers) == registers;
    }
};
#endif

Isa best() {
#ifdef EMBERTIDE_X86
    const Processor processor;
    const bool has_avx2 = processor.has(bit_FMA | bit_F16C, bit_AVX2 | bit_BMI2, 0x6);
    const bool has_avx512 =
        has_avx2 &&
        processor.has(0, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL, 0xe6);
    const char* asked = std::getenv("EMBERTIDE_ISA");
    const bool baseline_only = asked && std::strcmp(asked, "baseline") == 0;
    const bool avx2_only = asked && std::strcmp(asked, "avx2") == 0;
    if (has_avx512 && !baseline_only && !avx2_only) return Isa::avx512;
    if (has_avx2 && !baseline_only) return Isa::avx2;
#endif
    return Isa::baseline;
}

bool is_amd() {
#ifdef EMBERTIDE_X86
    return Processor().amd;
#else
    return false;
#endif
}

}  // namespace

const bool kAsksTwice = !is_amd();

Isa isa() {
    static const Isa found = best();
    return found;
}

const char* isa_name() {
    switch (isa()) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        case Isa::baseline: break;
    }
#ifdef __aarch64__
    return "neon";
#else
    return "baseline";
#endif
}

}  // namespace embertide
