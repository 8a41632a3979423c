// Memory on huge pages, as arrays that give it back.
#include <sys/mman.h>

#include <new>

#include "arrays.hpp"
#include "bindings.hpp"

namespace embertide {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

struct Mapping {
    void* start;
    size_t bytes;
};

// `bytes` and a little more, aligned to a huge page. What is never touched takes no memory.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> huge_pages(size_t bytes) {
    const size_t size = (bytes + kHuge - 1) / kHuge * kHuge + kHuge;
    void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    const size_t aligned = (reinterpret_cast<size_t>(start) + kHuge - 1) / kHuge * kHuge;
#ifdef MADV_HUGEPAGE
    // Only advice: where the system says no, the pages are small ones.
    madvise(reinterpret_cast<void*>(aligned), size - kHuge, MADV_HUGEPAGE);
#endif
    nb::capsule owner(new Mapping{start, size}, [](void* held) noexcept {
        const Mapping* mapping = static_cast<Mapping*>(held);
        munmap(mapping->start, mapping->bytes);
        delete mapping;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(reinterpret_cast<void*>(aligned), {bytes},
                                                        owner);
}

}  // namespace

void bind_memory(nb::module_& m) { m.def("huge_pages", huge_pages, nb::arg("bytes")); }

}  // namespace embertide
