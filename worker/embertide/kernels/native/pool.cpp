#include "pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace embertide {
namespace {

// Read by whoever shows progress; nothing is ordered by them. Each has a cache line of its own.
alignas(64) std::atomic<int64_t> tasks_done{0};
alignas(64) std::atomic<int64_t> entries_done{0};

struct Loop {
    const std::function<void(int64_t)>* task;
    int64_t count;
    std::atomic<int64_t> next{0};
    std::mutex failing;
    std::exception_ptr failure;

    void run() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            try {
                (*task)(i);
                tasks_done.fetch_add(1, std::memory_order_relaxed);
            } catch (...) {
                std::lock_guard lock(failing);
                if (!failure) failure = std::current_exception();
                next.store(count, std::memory_order_relaxed);
            }
        }
    }
};

// The threads end with the process, never before: nothing joins them.
class Pool {
public:
    explicit Pool(int helpers) {
        for (int i = 0; i < helpers; ++i) std::thread([this] { serve(); }).detach();
        size_ = helpers;
    }

    int size() const { return size_; }

    void run(Loop& loop) {
        {
            std::lock_guard lock(mutex_);
            loop_ = &loop;
            busy_ = size_;
            ++generation_;
        }
        begin_.notify_all();
        loop.run();
        std::unique_lock lock(mutex_);
        end_.wait(lock, [this] { return busy_ == 0; });
        loop_ = nullptr;
    }

private:
    void serve() {
        uint64_t seen = 0;
        for (;;) {
            Loop* loop;
            {
                std::unique_lock lock(mutex_);
                begin_.wait(lock, [&] { return generation_ != seen; });
                seen = generation_;
                loop = loop_;
            }
            loop->run();
            std::lock_guard lock(mutex_);
            if (--busy_ == 0) end_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable begin_, end_;
    Loop* loop_ = nullptr;
    uint64_t generation_ = 0;
    int busy_ = 0, size_ = 0;
};

int wanted = 0;
Pool* pool = nullptr;
std::mutex* owner = new std::mutex;
thread_local bool inside = false;

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1u, std::thread::hardware_concurrency());
}

// A forked child has none of its parent's threads, and locks in whatever state they were.
void forget() {
    pool = nullptr;
    owner = new std::mutex;
    inside = false;
}

Pool& pool_of(int helpers) {
    static const int registered = pthread_atfork(nullptr, nullptr, forget);
    (void)registered;
    // A pool of another size is left asleep: sizes change once or twice in a process.
    if (!pool || pool->size() != helpers) pool = new Pool(helpers);
    return *pool;
}

struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = false; }
};

}  // namespace

void set_threads(int count) { wanted = count; }

int threads() {
    static const int cores = usable_cores();
    return wanted > 0 ? wanted : cores;
}

void parallel_for(int64_t count, const std::function<void(int64_t)>& task) {
    if (count <= 0) return;
    Loop loop{&task, count, {0}, {}, {}};
    if (inside || count == 1 || threads() == 1) {
        for (int64_t i = 0; i < count; ++i) {
            task(i);
            tasks_done.fetch_add(1, std::memory_order_relaxed);
        }
        return;
    }
    std::unique_lock lock(*owner, std::try_to_lock);
    if (lock.owns_lock()) {
        Inside mark;
        pool_of(threads() - 1).run(loop);
    } else {
        loop.run();
    }
    if (loop.failure) std::rethrow_exception(loop.failure);
}

void work_alone() { inside = true; }

Done done() {
    return {tasks_done.load(std::memory_order_relaxed),
            entries_done.load(std::memory_order_relaxed)};
}

void count_entries(int64_t count) { entries_done.fetch_add(count, std::memory_order_relaxed); }

void parallel_ranges(int64_t size, int64_t grain,
                     const std::function<void(int64_t, int64_t)>& body) {
    parallel_for((size + grain - 1) / grain, [&](int64_t i) {
        body(i * grain, std::min(size, (i + 1) * grain));
    });
}

}  // namespace embertide
