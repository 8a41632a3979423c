// Memory that other processes of this host can map: ranges of one file that has no name.
#pragma once

#include <cstddef>
#include <optional>

namespace embertide {

constexpr size_t kHugePage = size_t{2} << 20;

// An address space of `bytes`, a multiple of a huge page and aligned to one; nothing is mapped there.
char* reserve(size_t bytes);

// The file's descriptor, made by the first call; -1 where the system has no such files.
int shared_file();

// From now on arrays come from the file, in this process and not in one that it forks.
void use_shared_file();
bool uses_shared_file();

// `bytes`, a multiple of a huge page, aligned to one and on huge pages where that works; null where
// the file cannot grow. All of it takes memory from now on.
void* allocate_shared(size_t bytes);

// Gives a range back to the system, if it is one; whether it was.
bool free_shared(void* start, size_t bytes);

// Where in the file an address lies, if it is in a range that is allocated.
std::optional<size_t> place_in_file(const void* address);

}  // namespace embertide
