// Memory on huge pages, as arrays that give it back.
#include <sys/mman.h>

#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "shared_memory.hpp"

namespace embertide {
namespace {

constexpr size_t kHuge = kHugePage;

struct Mapping {
    void* start;
    size_t bytes;
    size_t usable;  // from the first huge page in it on
};

// Mappings that nobody uses, for the next arrays of about their size: the system clears pages
// before it hands them out, which takes as long as writing them.
class Idle {
public:
    // One of `least` bytes to a quarter more. Where there is none, all go back to the system, so
    // that sizes which are over do not pile up.
    std::optional<Mapping> take(size_t least) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (size_t i = 0; i < held_.size(); ++i) {
            if (held_[i].usable < least || held_[i].usable > least + least / 4) continue;
            const Mapping found = held_[i];
            held_.erase(held_.begin() + i);
            return found;
        }
        unmap();
        return std::nullopt;
    }
    void give(Mapping mapping) {
        const std::lock_guard<std::mutex> lock(mutex_);
        held_.push_back(mapping);
    }
    void release() {
        const std::lock_guard<std::mutex> lock(mutex_);
        unmap();
    }

private:
    void unmap() {
        for (const Mapping& mapping : held_)
            if (!free_shared(mapping.start, mapping.bytes)) munmap(mapping.start, mapping.bytes);
        held_.clear();
    }

    std::mutex mutex_;
    std::vector<Mapping> held_;
};

Idle& idle() {
    static Idle* const held = new Idle;  // never destroyed: arrays may outlive the module
    return *held;
}

// `usable` bytes, a multiple of a huge page, which other processes can map where they are to.
Mapping map(size_t usable) {
    if (const auto found = idle().take(usable)) return *found;
    if (uses_shared_file())
        if (void* const shared = allocate_shared(usable)) return {shared, usable, usable};
    const size_t size = usable + kHuge;
    void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    return {start, size, usable};
}

// `bytes` and a little more, aligned to a huge page. What is never touched takes no memory, unless
// other processes can map it.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> huge_pages(size_t bytes) {
    const Mapping mapping = map((bytes + kHuge - 1) / kHuge * kHuge);
    const size_t aligned = (reinterpret_cast<size_t>(mapping.start) + kHuge - 1) / kHuge * kHuge;
#ifdef MADV_HUGEPAGE
    // Only advice: where the system says no, the pages are small ones.
    madvise(reinterpret_cast<void*>(aligned), mapping.usable, MADV_HUGEPAGE);
#endif
    nb::capsule owner(new Mapping(mapping), [](void* held) noexcept {
        const Mapping* mapping = static_cast<Mapping*>(held);
        idle().give(*mapping);
        delete mapping;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(reinterpret_cast<void*>(aligned), {bytes},
                                                        owner);
}

}  // namespace

void bind_memory(nb::module_& m) {
    m.def("huge_pages", huge_pages, nb::arg("bytes"));
    m.def("release_pages", [] { idle().release(); });
}

}  // namespace embertide
