// A process reads what another one of its host has computed where it stands, instead of a copy.
// Files like these take huge pages only when told to, whatever the system's setting for others is.
#include "shared_memory.hpp"

#include <fcntl.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
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
constexpr int64_t kAhead = 16;  // rows whose places are asked for before they are needed

struct Range {
    size_t bytes, offset;
};

struct File {
    std::mutex mutex;
    int descriptor = -1;
    pid_t owner = 0;
    size_t end = 0;
    bool used = false;
    std::map<char*, Range> ranges;
};

File& file() {
    static File* const made = new File;  // never destroyed: arrays may outlive the module
    return *made;
}

bool map_part(char* to, size_t bytes, int protection, int descriptor, size_t offset) {
    if (mmap(to, bytes, protection, MAP_SHARED | MAP_FIXED, descriptor,
             static_cast<off_t>(offset)) == MAP_FAILED)
        return false;
#ifdef MADV_HUGEPAGE
    madvise(to, bytes, MADV_HUGEPAGE);
#endif
    return true;
}

// Huge pages come into being around one small page each. Where that fails, all pages are small.
void make_pages(char* start, size_t bytes) {
    parallel_ranges(static_cast<int64_t>(bytes / kHugePage), kClear, [&](int64_t begin, int64_t end) {
        for (int64_t page = begin; page < end; ++page)
            *static_cast<volatile char*>(start + page * kHugePage) = 0;
        madvise(start + begin * kHugePage, (end - begin) * kHugePage, MADV_COLLAPSE);
    });
}

// Parts of other processes' files side by side, to be read only; nothing is between them.
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
    nb::capsule owner(new Range{whole, reinterpret_cast<size_t>(start)}, [](void* held) noexcept {
        const Range* range = static_cast<Range*>(held);
        munmap(reinterpret_cast<void*>(range->offset), range->bytes);
        delete range;
    });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(start, {bytes}, owner);
}

template <typename From, typename To>
void shift(const From* cols, int64_t begin, int64_t end, const int64_t* bounds, const int64_t* starts,
           int64_t ranges, To* out) {
    for (int64_t i = begin; i < end; ++i) {
        const int64_t node = cols[i];
        require(node >= bounds[0] && node < bounds[ranges], "cols: outside the bounds");
        const int64_t range = std::upper_bound(bounds, bounds + ranges, node) - bounds - 1;
        out[i] = static_cast<To>(starts[range] + node - bounds[range]);
    }
}

// out[i] = starts[r] + cols[i] - bounds[r], r the range that cols[i] is in.
template <typename From, typename To>
void shift_nodes(In<From> cols, In<int64_t> bounds, In<int64_t> starts, Vector<To> out) {
    require(cols.shape(0) == out.shape(0), "out: as long as cols");
    require(bounds.shape(0) == starts.shape(0) + 1, "bounds: one more than starts");
    parallel_ranges(cols.shape(0), int64_t{1} << 18, [&](int64_t begin, int64_t end) {
        shift(cols.data(), begin, end, bounds.data(), starts.data(),
              static_cast<int64_t>(starts.shape(0)), out.data());
    });
}

// Pairs of who loaded a node and the row there, at rows of a window: out[i] is the row that pair
// rows[i] says, in a window where each loader's rows begin at `starts`.
template <typename Row, typename Place>
void follow_places(In<Row> rows, InMatrix<Place> places, In<int64_t> starts, Vector<Row> out) {
    require(rows.shape(0) == out.shape(0), "out: as long as rows");
    require(places.shape(1) == 2, "places: a loader and a row each");
    const int64_t pairs = places.shape(0), stride = row_stride(places, "places");
    const int64_t loaders = starts.shape(0), size = rows.shape(0);
    const Place* const place = places.data();
    parallel_ranges(size, int64_t{1} << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (i + kAhead < size) {
                const int64_t ahead = rows.data()[i + kAhead];
                __builtin_prefetch(place + (ahead >= 0 && ahead < pairs ? ahead : 0) * stride);
            }
            const int64_t row = rows.data()[i];
            require(row >= 0 && row < pairs, "rows: beyond the places");
            const int64_t loader = place[row * stride];
            require(loader >= 0 && loader < loaders, "places: not a loader");
            out.data()[i] = static_cast<Row>(starts.data()[loader] + place[row * stride + 1]);
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

void use_shared_file() { file().used = shared_file() >= 0; }

bool uses_shared_file() { return file().used && file().owner == getpid(); }

void* allocate_shared(size_t bytes) {
    File& of = file();
    char* start;
    {
        const std::lock_guard<std::mutex> lock(of.mutex);
        if (ftruncate(of.descriptor, static_cast<off_t>(of.end + bytes)) != 0) return nullptr;
        start = reserve(bytes);
        if (!map_part(start, bytes, PROT_READ | PROT_WRITE, of.descriptor, of.end)) {
            munmap(start, bytes);
            return nullptr;
        }
        of.ranges[start] = {bytes, of.end};
        of.end += bytes;
    }
    make_pages(start, bytes);
    return start;
}

bool free_shared(void* start, size_t bytes) {
    File& of = file();
    const std::lock_guard<std::mutex> lock(of.mutex);
    const auto found = of.ranges.find(static_cast<char*>(start));
    if (found == of.ranges.end()) return false;
    if (of.owner == getpid())
        fallocate(of.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(found->second.offset), static_cast<off_t>(bytes));
    of.ranges.erase(found);
    munmap(start, bytes);
    return true;
}

std::optional<size_t> place_in_file(const void* address) {
    File& of = file();
    const std::lock_guard<std::mutex> lock(of.mutex);
    if (of.owner != getpid()) return std::nullopt;
    const char* const at = static_cast<const char*>(address);
    auto found = of.ranges.upper_bound(const_cast<char*>(at));
    if (found == of.ranges.begin()) return std::nullopt;
    --found;
    const size_t into = static_cast<size_t>(at - found->first);
    if (into >= found->second.bytes) return std::nullopt;
    return found->second.offset + into;
}

void bind_shared_memory(nb::module_& m) {
    m.def("shared_file", shared_file);
    m.def("use_shared_file", use_shared_file);
    m.def("place_in_file", [](size_t address) -> int64_t {
        const auto found = place_in_file(reinterpret_cast<const void*>(address));
        return found ? static_cast<int64_t>(*found) : -1;
    }, nb::arg("address"));
    m.def("window", window, nb::arg("bytes"), nb::arg("parts"));
    const auto cols = nb::arg("cols").noconvert(), out = nb::arg("out").noconvert();
    const auto bounds = nb::arg("bounds").noconvert(), starts = nb::arg("starts").noconvert();
    m.def("shift_nodes", shift_nodes<int32_t, int32_t>, cols, bounds, starts, out, NoGil());
    m.def("shift_nodes", shift_nodes<int32_t, int64_t>, cols, bounds, starts, out, NoGil());
    m.def("shift_nodes", shift_nodes<int64_t, int64_t>, cols, bounds, starts, out, NoGil());
    const auto rows = nb::arg("rows").noconvert(), places = nb::arg("places").noconvert();
    m.def("follow_places", follow_places<int32_t, int32_t>, rows, places, starts, out, NoGil());
    m.def("follow_places", follow_places<int64_t, int32_t>, rows, places, starts, out, NoGil());
    m.def("follow_places", follow_places<int64_t, int64_t>, rows, places, starts, out, NoGil());
}

}  // namespace embertide
