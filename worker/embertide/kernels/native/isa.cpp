#include "isa.hpp"

#include <cstdlib>
#include <cstring>

namespace embertide {
namespace {

Isa best() {
#ifdef EMBERTIDE_X86
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi2");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                            __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
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
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
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
