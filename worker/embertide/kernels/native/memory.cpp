// Memory on huge pages, as arrays that give it back.
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "shared_memory.hpp"

namespace embertide {
namespace {

struct Piece {
    char* start;
    size_t bytes;
};

// Memory of an array. Pieces that were joined stay mappings of their own to the system, which moves
// no two of them at once.
struct Mapping {
    char* start;
    size_t bytes;
    bool shared;
    std::vector<Piece> pieces;  // of private memory
};

bool map_private(char* at, size_t bytes) {
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
#ifdef MADV_HUGEPAGE
    // Only advice: where the system says no, the pages are small ones.
    madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return true;
}

// Memory that nobody uses, for the next arrays: the system clears pages before it hands them out,
// which takes as long as writing them, and far longer where a hypervisor has to find them first.
class Idle {
public:
    // An array of `bytes` to a quarter more that is as it was left.
    std::optional<Mapping> take(size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (size_t i = 0; i < held_.size(); ++i) {
            if (held_[i].bytes < bytes || held_[i].bytes > bytes + bytes / 4) continue;
            Mapping found = std::move(held_[i]);
            held_.erase(held_.begin() + i);
            return found;
        }
        return std::nullopt;
    }
    // `bytes` from `at` on, of the pages of arrays of other sizes as far as there are some.
    Mapping join(char* at, size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        Mapping made{at, bytes, false, {}};
        char* const end = at + bytes;
        while (at < end && !held_.empty()) {
            if (held_.back().shared || held_.back().pieces.empty()) {
                release(held_.back());
                held_.pop_back();
                continue;
            }
            Piece& from = held_.back().pieces.back();
            const size_t size = std::min<size_t>(from.bytes, end - at);
            char* const start = from.start + from.bytes - size;
            if (mremap(start, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) break;
            made.pieces.push_back({at, size});
            at += size;
            from.bytes -= size;
            held_.back().bytes = 0;  // no array any more
            if (!from.bytes) held_.back().pieces.pop_back();
        }
        if (at < end) {
            if (!map_private(at, end - at)) {
                made.pieces.push_back({at, static_cast<size_t>(end - at)});
                release(made);
                throw std::bad_alloc();
            }
            made.pieces.push_back({at, static_cast<size_t>(end - at)});
        }
        return made;
    }
    void give(Mapping mapping) {
        const std::lock_guard<std::mutex> lock(mutex_);
        held_.push_back(std::move(mapping));
    }
    void release() {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const Mapping& mapping : held_) release(mapping);
        held_.clear();
    }

private:
    static void release(const Mapping& mapping) {
        if (mapping.shared) free_shared(mapping.start, mapping.bytes);
        for (const Piece& piece : mapping.pieces) munmap(piece.start, piece.bytes);
    }

    std::mutex mutex_;
    std::vector<Mapping> held_;
};

Idle& idle() {
    static Idle* const held = new Idle;  // never destroyed: arrays may outlive the module
    return *held;
}

// `bytes`, a multiple of a huge page, which other processes can map where they are to.
Mapping map(size_t bytes) {
    if (auto found = idle().take(bytes)) return std::move(*found);
    if (uses_shared_file()) {
        // Sizes that are over do not pile up.
        idle().release();
        if (void* const shared = allocate_shared(bytes))
            return {static_cast<char*>(shared), bytes, true, {}};
    }
    return idle().join(reserve(bytes), bytes);
}

// `bytes` and a little more, aligned to a huge page. What is never touched takes no memory, unless
// other processes can map it.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> huge_pages(size_t bytes) {
    auto* const mapping = new Mapping(map((bytes + kHugePage - 1) / kHugePage * kHugePage));
    nb::capsule owner(mapping, [](void* held) noexcept {
        Mapping* of = static_cast<Mapping*>(held);
        idle().give(std::move(*of));
        delete of;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(mapping->start, {bytes}, owner);
}

}  // namespace

void bind_memory(nb::module_& m) {
    m.def("huge_pages", huge_pages, nb::arg("bytes"));
    m.def("release_pages", [] { idle().release(); });
}

}  // namespace embertide
