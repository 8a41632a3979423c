// A process reads what another one of its host has computed where it stands, instead of a copy.
// Files like these take huge pages only when told to, whatever the system's setting for others is.
#include "shared_memory.hpp"

#include <fcntl.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pool.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace embertide {
namespace {

constexpr int64_t kClear = 8;  // huge pages made by one task
constexpr int64_t kBlock = 2048;  // nodes that are shifted at a time, in the nearest cache
constexpr int64_t kFew = 16;  // ranges that are gone over one by one

struct File {
    std::mutex mutex;
    int descriptor = -1;
    pid_t owner = 0;
    size_t end = 0;
    bool used = false;
};

File& file() {
    static File* const made = new File;  // never destroyed: arrays may outlive the module
    return *made;
}

// A huge page comes into being around a small one; whether it did.
bool make_page(char* start) {
    *static_cast<volatile char*>(start) = 0;
    return madvise(start, kHugePage, MADV_COLLAPSE) == 0;
}

// Where one cannot be had, pages are small.
void make_pages(char* start, size_t bytes) {
    parallel_ranges(static_cast<int64_t>(bytes / kHugePage), kClear, [&](int64_t begin, int64_t end) {
        for (int64_t page = begin; page < end; ++page) make_page(start + page * kHugePage);
    });
}

// Makes huge pages of the `bytes` of a file from `offset` on, which nobody has mapped yet. False
// where the system has none for files.
bool fill_file(int descriptor, size_t offset, size_t bytes) {
    char* const start = reserve(bytes);
    bool filled = map_part(start, bytes, PROT_READ | PROT_WRITE, descriptor, offset);
    for (size_t at = 0; filled && at < bytes; at += kHugePage) filled = make_page(start + at);
    munmap(start, bytes);
    return filled;
}

// Parts of other processes' files side by side, to be read only; nothing is between them.
struct Window {
    char* start;
    size_t bytes;
};
using Part = std::tuple<int, size_t, size_t, size_t>;  // descriptor, offset, bytes, where they go

nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> window(size_t bytes, const std::vector<Part>& parts) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t whole = std::max(page, (bytes + page - 1) / page * page);
    char* const start = reserve(whole);
    for (const auto& [descriptor, offset, size, at] : parts) {
        const size_t pages = (size + page - 1) / page * page;
        const bool fits = at % page == 0 && offset % page == 0 && at + pages <= whole;
        if (fits && (!pages || map_part(start + at, pages, PROT_READ, descriptor, offset))) continue;
        munmap(start, whole);
        require(fits, "parts: must start at pages and lie within the window");
        throw std::bad_alloc();
    }
    nb::capsule owner(new Window{start, whole}, [](void* held) noexcept {
        const Window* of = static_cast<Window*>(held);
        munmap(of->start, of->bytes);
        delete of;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(start, {bytes}, owner);
}

// Ranges of nodes, each of which goes to places that follow each other.
struct Shifts {
    const int64_t *bounds, *starts;  // one bound more than starts
    int64_t ranges;

    int64_t by(int64_t range) const { return starts[range] - bounds[range]; }
};

// Over and over, a range at a time: the compiler makes vectors of that.
template <typename From, typename To>
void shift_block(const From* nodes, int64_t count, const Shifts& shifts, To* out) {
    using Bits = std::make_unsigned_t<To>;
    From least = nodes[0], most = nodes[0];
    for (int64_t i = 0; i < count; ++i) {
        least = std::min(least, nodes[i]);
        most = std::max(most, nodes[i]);
    }
    require(least >= shifts.bounds[0] && most < shifts.bounds[shifts.ranges],
            "cols: outside the bounds");
    const Bits first = static_cast<Bits>(shifts.by(0));
    for (int64_t i = 0; i < count; ++i)
        out[i] = static_cast<To>(static_cast<Bits>(nodes[i]) + first);
    for (int64_t range = 1; range < shifts.ranges && shifts.bounds[range] <= most; ++range) {
        const From bound = static_cast<From>(shifts.bounds[range]);
        const Bits more = static_cast<Bits>(shifts.by(range) - shifts.by(range - 1));
        for (int64_t i = 0; i < count; ++i)
            out[i] = static_cast<To>(static_cast<Bits>(out[i]) + (nodes[i] >= bound ? more : 0));
    }
}

// Of many ranges.
template <typename From, typename To>
void search_block(const From* nodes, int64_t count, const Shifts& shifts, To* out) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t node = nodes[i];
        require(node >= shifts.bounds[0] && node < shifts.bounds[shifts.ranges],
                "cols: outside the bounds");
        const int64_t* const above =
            std::upper_bound(shifts.bounds, shifts.bounds + shifts.ranges, node);
        out[i] = static_cast<To>(node + shifts.by(above - shifts.bounds - 1));
    }
}

// out[i] = starts[r] + cols[i] - bounds[r], r the range that cols[i] is in.
template <typename From, typename To>
void shift_nodes(In<From> cols, In<int64_t> bounds, In<int64_t> starts, Vector<To> out) {
    require(cols.shape(0) == out.shape(0), "out: as long as cols");
    require(bounds.shape(0) == starts.shape(0) + 1, "bounds: one more than starts");
    const Shifts shifts{bounds.data(), starts.data(), static_cast<int64_t>(starts.shape(0))};
    parallel_ranges(cols.shape(0), int64_t{1} << 18, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += kBlock) {
            const int64_t count = std::min(kBlock, end - i);
            if (shifts.ranges <= kFew)
                shift_block(cols.data() + i, count, shifts, out.data() + i);
            else
                search_block(cols.data() + i, count, shifts, out.data() + i);
        }
    });
}

}  // namespace

char* reserve(size_t bytes) {
    const size_t most = bytes + kHugePage;
    void* const found = mmap(nullptr, most, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    char* const first = static_cast<char*>(found);
    char* const aligned = reinterpret_cast<char*>(
        (reinterpret_cast<size_t>(first) + kHugePage - 1) / kHugePage * kHugePage);
    if (aligned > first) munmap(first, aligned - first);
    munmap(aligned + bytes, first + most - (aligned + bytes));
    return aligned;
}

int shared_file() {
    File& of = file();
    const std::lock_guard<std::mutex> lock(of.mutex);
    if (of.descriptor < 0 || of.owner != getpid()) {
        of.descriptor = memfd_create("embertide", MFD_CLOEXEC);
        of.owner = getpid();
        of.end = 0;
        of.used = false;
    }
    return of.descriptor;
}

void own_file(int descriptor, size_t bytes) {
    File& of = file();
    const std::lock_guard<std::mutex> lock(of.mutex);
    of.descriptor = descriptor;
    of.owner = getpid();
    of.end = bytes;
    of.used = false;
}

void use_shared_file() { file().used = shared_file() >= 0; }

bool owns_file() { return file().owner == getpid(); }

bool uses_shared_file() { return file().used && owns_file(); }

bool map_part(char* to, size_t bytes, int protection, int descriptor, size_t offset) {
    if (mmap(to, bytes, protection, MAP_SHARED | MAP_FIXED, descriptor,
             static_cast<off_t>(offset)) == MAP_FAILED)
        return false;
#ifdef MADV_HUGEPAGE
    madvise(to, bytes, MADV_HUGEPAGE);
#endif
    return true;
}

std::optional<size_t> grow_file(char* at, size_t bytes) {
    File& of = file();
    size_t place;
    {
        const std::lock_guard<std::mutex> lock(of.mutex);
        place = of.end;
        if (ftruncate(of.descriptor, static_cast<off_t>(place + bytes)) != 0) return std::nullopt;
        if (!map_part(at, bytes, PROT_READ | PROT_WRITE, of.descriptor, place)) return std::nullopt;
        of.end += bytes;
    }
    make_pages(at, bytes);
    return place;
}

void drop_from_file(size_t place, size_t bytes) {
    if (owns_file())
        fallocate(file().descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(place), static_cast<off_t>(bytes));
}

void bind_shared_memory(nb::module_& m) {
    m.def("shared_file", shared_file);
    m.def("fill_file", fill_file, nb::arg("descriptor"), nb::arg("offset"), nb::arg("bytes"), NoGil());
    m.def("window", window, nb::arg("bytes"), nb::arg("parts"));
    const auto cols = nb::arg("cols").noconvert(), out = nb::arg("out").noconvert();
    const auto bounds = nb::arg("bounds").noconvert(), starts = nb::arg("starts").noconvert();
    m.def("shift_nodes", shift_nodes<int32_t, int32_t>, cols, bounds, starts, out, NoGil());
    m.def("shift_nodes", shift_nodes<int32_t, int64_t>, cols, bounds, starts, out, NoGil());
    m.def("shift_nodes", shift_nodes<int64_t, int64_t>, cols, bounds, starts, out, NoGil());
}

}  // namespace embertide
