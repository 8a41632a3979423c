// Threads that share loops. A loop is cut into tasks by the caller, and never by the number of
// threads: what a task computes, and so every result, is the same on any number of cores.
#pragma once

#include <cstdint>
#include <functional>

namespace embertide {

// How many threads run a loop, the caller's included; 0: one per core that we may use.
void set_threads(int count);
int threads();

// Calls task(0) .. task(count - 1), in any order, on all threads; returns when all are done.
// The first exception of a task is thrown again here. A loop that starts while another thread's
// loop has the pool, or inside a task, runs on its caller alone.
void parallel_for(int64_t count, const std::function<void(int64_t)>& task);

// From now on loops of the calling thread run on it alone: others have as much to do.
void work_alone();

// What the loops of this process have done so far: tasks of all of them, and non-zeros of those that
// go over a matrix. Any thread may ask while a loop runs; so its progress is seen from outside.
struct Done {
    int64_t tasks, entries;
};
Done done();

// Counts non-zeros that a task has gone over.
void count_entries(int64_t count);

// Cuts [0, size) into runs of at most `grain` and calls body(begin, end) for each.
void parallel_ranges(int64_t size, int64_t grain,
                     const std::function<void(int64_t, int64_t)>& body);

}  // namespace embertide
