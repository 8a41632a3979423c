// Memory on huge pages, as arrays that give it back.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
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
    int64_t place;  // in the shared file; kPrivate: nobody else can map it
};

constexpr int64_t kPrivate = -1;

// Memory of an array. Pieces that were joined stay mappings of their own to the system, which moves
// no two of them at once.
struct Mapping {
    char* start;
    size_t bytes;
    std::vector<Piece> pieces;  // side by side
};

void release(const Piece& piece) {
    if (piece.place != kPrivate) drop_from_file(static_cast<size_t>(piece.place), piece.bytes);
    munmap(piece.start, piece.bytes);
}

std::optional<Piece> map_private(char* at, size_t bytes) {
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return std::nullopt;
#ifdef MADV_HUGEPAGE
    // Only advice: where the system says no, the pages are small ones.
    madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return Piece{at, bytes, kPrivate};
}

// New memory, of the shared file where that is used and can grow.
std::optional<Piece> map_new(char* at, size_t bytes) {
    if (uses_shared_file())
        if (const auto place = grow_file(at, bytes))
            return Piece{at, bytes, static_cast<int64_t>(*place)};
    return map_private(at, bytes);
}

// Memory that nobody uses, for the next arrays: the system clears pages before it hands them out,
// which takes as long as writing them, and far longer where a hypervisor has to find them first.
class Idle {
public:
    // An array of `bytes` to a quarter more that is as it was left.
    std::optional<Mapping> take(size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        leave_to_parent();
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
        Mapping made{at, bytes, {}};
        char* const end = at + bytes;
        while (at < end && !held_.empty()) {
            if (held_.back().pieces.empty()) {
                held_.pop_back();
                continue;
            }
            Piece piece = cut(std::min<size_t>(held_.back().pieces.back().bytes, end - at));
            if (mremap(piece.start, piece.bytes, piece.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) ==
                MAP_FAILED) {
                embertide::release(piece);
                break;
            }
            piece.start = at;
            made.pieces.push_back(piece);
            at += piece.bytes;
        }
        if (at < end) {
            const auto piece = map_new(at, end - at);
            if (!piece) {
                munmap(at, end - at);
                for (const Piece& of : made.pieces) embertide::release(of);
                throw std::bad_alloc();
            }
            made.pieces.push_back(*piece);
        }
        return made;
    }
    // Of private memory nothing is kept where arrays are to be shared, and a process that was forked
    // keeps nothing of its parent's file.
    void give(Mapping mapping) {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const Piece& piece : mapping.pieces) {
            if (piece.place == kPrivate ? !uses_shared_file() : owns_file()) continue;
            for (const Piece& of : mapping.pieces) embertide::release(of);
            return;
        }
        held_.push_back(std::move(mapping));
    }
    // Up to `most` bytes, rounded up to a huge page.
    void release(size_t most) {
        const std::lock_guard<std::mutex> lock(mutex_);
        while (most && !held_.empty()) {
            if (held_.back().pieces.empty()) {
                held_.pop_back();
                continue;
            }
            Piece last = cut(std::min(most, held_.back().pieces.back().bytes));
            embertide::release(last);
            most -= std::min(most, last.bytes);
        }
    }
    // From now on what is held can be shared.
    void release_private() {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::vector<Mapping> kept;
        for (Mapping& mapping : held_) {
            std::vector<Piece> shared;
            for (const Piece& piece : mapping.pieces) {
                if (piece.place == kPrivate)
                    embertide::release(piece);
                else
                    shared.push_back(piece);
            }
            if (shared.size() < mapping.pieces.size()) mapping.bytes = 0;
            mapping.pieces = std::move(shared);
            kept.push_back(std::move(mapping));
        }
        held_ = std::move(kept);
    }

private:
    // The end of the last piece, which is no shorter, in whole huge pages.
    Piece cut(size_t bytes) {
        Mapping& last = held_.back();
        Piece& from = last.pieces.back();
        const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
        const size_t left = from.bytes - size;
        const Piece piece{from.start + left, size,
                          from.place == kPrivate ? kPrivate
                                                 : from.place + static_cast<int64_t>(left)};
        from.bytes = left;
        last.bytes = 0;  // no array any more
        if (!left) last.pieces.pop_back();
        return piece;
    }
    void release_all() {
        for (const Mapping& mapping : held_)
            for (const Piece& piece : mapping.pieces) embertide::release(piece);
        held_.clear();
    }
    void leave_to_parent() {
        if (process_ == getpid()) return;
        release_all();
        process_ = getpid();
    }

    std::mutex mutex_;
    std::vector<Mapping> held_;
    pid_t process_ = getpid();
};

Idle& idle() {
    static Idle* const held = new Idle;  // never destroyed: arrays may outlive the module
    return *held;
}

// The arrays that are there, by where they start.
class Taken {
public:
    void add(const Mapping* mapping) {
        const std::lock_guard<std::mutex> lock(mutex_);
        held_[mapping->start] = mapping;
    }
    void remove(const Mapping* mapping) {
        const std::lock_guard<std::mutex> lock(mutex_);
        held_.erase(mapping->start);
    }
    // Where in the file `bytes` from an address on are, in their order; nothing unless all are.
    std::vector<std::pair<size_t, size_t>> places(const char* at, size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::vector<std::pair<size_t, size_t>> found;
        auto next = held_.upper_bound(const_cast<char*>(at));
        if (next == held_.begin() || !owns_file()) return found;
        const char* const end = at + bytes;
        for (const Piece& piece : (--next)->second->pieces) {
            if (at < piece.start || at >= piece.start + piece.bytes || at == end) continue;
            if (piece.place == kPrivate) return {};
            const size_t into = static_cast<size_t>(at - piece.start);
            const size_t size = std::min<size_t>(piece.bytes - into, end - at);
            found.emplace_back(static_cast<size_t>(piece.place) + into, size);
            at += size;
        }
        return at == end ? found : std::vector<std::pair<size_t, size_t>>{};
    }

private:
    std::mutex mutex_;
    std::map<char*, const Mapping*> held_;
};

Taken& taken() {
    static Taken* const held = new Taken;
    return *held;
}

// `bytes`, a multiple of a huge page, which other processes can map where they are to.
Mapping map(size_t bytes) {
    if (auto found = idle().take(bytes)) return std::move(*found);
    return idle().join(reserve(bytes), bytes);
}

// `bytes` and a little more, aligned to a huge page. What is never touched takes no memory, unless
// other processes can map it.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> huge_pages(size_t bytes) {
    auto* const mapping = new Mapping(map((bytes + kHugePage - 1) / kHugePage * kHugePage));
    taken().add(mapping);
    nb::capsule owner(mapping, [](void* held) noexcept {
        Mapping* of = static_cast<Mapping*>(held);
        taken().remove(of);
        idle().give(std::move(*of));
        delete of;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(mapping->start, {bytes}, owner);
}

// Takes another process's file, whose first `bytes` are pages already, for arrays to come.
void adopt_file(int descriptor, size_t bytes) {
    char* const start = reserve(bytes);
    if (!map_part(start, bytes, PROT_READ | PROT_WRITE, descriptor, 0)) {
        munmap(start, bytes);
        throw std::bad_alloc();
    }
    own_file(descriptor, bytes);
    idle().give({start, bytes, {{start, bytes, 0}}});
}

}  // namespace

void bind_memory(nb::module_& m) {
    m.def("huge_pages", huge_pages, nb::arg("bytes"));
    m.def("release_pages", [](size_t most) { idle().release(most); }, nb::arg("most"));
    m.def("adopt_file", adopt_file, nb::arg("descriptor"), nb::arg("bytes"));
    m.def("use_shared_file", [] {
        use_shared_file();
        idle().release_private();
    });
    m.def("place_in_file", [](size_t address, size_t bytes) {
        return taken().places(reinterpret_cast<const char*>(address), bytes);
    }, nb::arg("address"), nb::arg("bytes"));
}

}  // namespace embertide
