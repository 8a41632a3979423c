// Choosing the code for the instruction set of this processor.
//
// An inner loop is declared with EMBERTIDE_KERNEL in its header and defined in a file named
// *_isa.cpp inside namespace EMBERTIDE_ISA. Such files hold plain loops over raw pointers and
// what they need in an anonymous namespace; they include no header with inline functions of
// the standard library, whose copies for a newer instruction set the linker might keep for all.
#pragma once

namespace embertide {

enum class Isa { baseline, avx2, avx512 };

// The best that processor and system offer; EMBERTIDE_ISA in the environment asks for less.
Isa isa();
const char* isa_name();

// Whether rows are asked for once more shortly before their use; see prefetch.hpp.
extern const bool kAsksTwice;

}  // namespace embertide

#ifdef EMBERTIDE_X86
#define EMBERTIDE_KERNEL(result, name, ...)              \
    namespace baseline { result name(__VA_ARGS__); }     \
    namespace avx2 { result name(__VA_ARGS__); }         \
    namespace avx512 { result name(__VA_ARGS__); }
#define EMBERTIDE_PICK(name)                                          \
    (::embertide::isa() == ::embertide::Isa::avx512 ? &avx512::name   \
     : ::embertide::isa() == ::embertide::Isa::avx2 ? &avx2::name     \
                                                    : &baseline::name)
#else
#define EMBERTIDE_KERNEL(result, name, ...) \
    namespace baseline { result name(__VA_ARGS__); }
#define EMBERTIDE_PICK(name) (&baseline::name)
#endif
