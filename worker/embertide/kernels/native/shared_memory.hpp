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

// Makes another file that one, whose first `bytes` are in use.
void own_file(int descriptor, size_t bytes);

// Whether this process has made the file or been given it, not one that it was forked from.
bool owns_file();

// From now on arrays come from the file, in this process and not in one that it forks.
void use_shared_file();
bool uses_shared_file();

// Puts a part of a file into address space that is reserved; whether it could.
bool map_part(char* to, size_t bytes, int protection, int descriptor, size_t offset);

// Appends `bytes`, a multiple of a huge page, to the file and puts them at `at`, on huge pages where
// that works; where in the file they are, or nothing where it cannot grow. All of it takes memory
// from now on.
std::optional<size_t> grow_file(char* at, size_t bytes);

// Gives pages of the file back to the system, if it is this process's.
void drop_from_file(size_t place, size_t bytes);

}  // namespace embertide
