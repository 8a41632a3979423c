// Bytes that a thread fills again and again: what is no longer used goes to the next that asks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace embertide {

class Bytes {
public:
    Bytes() = default;
    Bytes(Bytes&&) = delete;
    ~Bytes() {
        if (held_.size && idle().size() < kIdle && held_.size <= kMost)
            idle().push_back(std::move(held_));
    }

    uint8_t* data() const { return held_.start.get(); }
    int64_t size() const { return held_.size; }

    // At least `size`, of which the first `kept` are as they were.
    void grow(int64_t size, int64_t kept) {
        if (size <= held_.size) return;
        Held larger = take(size);
        if (kept) std::memcpy(larger.start.get(), held_.start.get(), kept);
        held_ = std::move(larger);
    }

private:
    struct Held {
        std::unique_ptr<uint8_t[]> start;
        int64_t size = 0;
    };
    static constexpr size_t kIdle = 16;
    static constexpr int64_t kMost = 4 << 20;

    // Goes with the thread.
    static std::vector<Held>& idle() {
        static thread_local std::vector<Held> held;
        return held;
    }
    static Held take(int64_t size) {
        auto& some = idle();
        for (auto& one : some) {
            if (one.size < size) continue;
            Held found = std::move(one);
            one = std::move(some.back());
            some.pop_back();
            return found;
        }
        // A little more than is asked, since pages are of about the same size.
        const int64_t rounded = size + size / 8;
        return {std::make_unique_for_overwrite<uint8_t[]>(rounded), rounded};
    }

    Held held_;
};

}  // namespace embertide
