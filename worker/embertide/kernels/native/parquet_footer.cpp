// What arrow ends the process over in the footer of a parquet file, found before it reads that.
//
// Its functions for Python that make the metadata of a column chunk, or its codec, let exceptions of
// C++ through: std::terminate. What else is wrong in a footer arrow refuses by itself.
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "thrift.hpp"

namespace embertide {
namespace {

enum Thrift { kInt32 = 5, kInt64 = 6, kList = 9, kStruct = 12 };
enum Repetition { kRequired = 0, kOptional = 1, kRepeated = 2 };
constexpr int64_t kByteArray = 6;
constexpr int64_t kCodecs = 8;

// A column that values are stored of.
struct Leaf {
    int64_t type = -1;
    uint64_t repetition = 0, definition = 0;  // the highest levels
};

class Footer {
public:
    explicit Footer(Compact in) : in_(in) {}

    // What is wrong; "" for nothing that arrow does not refuse by itself.
    const char* problem() {
        int64_t id = 0;
        while (const int type = in_.field(id)) {
            if (id == 2 && type == kList) each([&] { read_element(); });
            else if (id == 4 && type == kList) each([&] { read_group(); });
            else in_.skip(type, 0);
        }
        return problem_;
    }

private:
    // Calls `read` for each struct of a list; others are passed over.
    template <typename Read>
    void each(const Read& read) {
        uint64_t count = 0;
        const int type = in_.list(count);
        if (type != kStruct) {
            in_.skip_elements(type, count, 0);
            return;
        }
        for (uint64_t i = 0; in_.good && i < count; ++i) read();
    }

    struct Parent {
        int64_t children;
        uint64_t repetition, definition;
    };

    void read_element() {
        int64_t id = 0, kind = -1, repeats = kRequired, children = 0;
        while (const int type = in_.field(id)) {
            if (id == 1 && type == kInt32) kind = in_.number();
            else if (id == 3 && type == kInt32) repeats = in_.number();
            else if (id == 5 && type == kInt32) children = in_.number();
            else in_.skip(type, 0);
        }
        const bool root = !begun_;
        begun_ = true;
        Parent own{children, 0, 0};
        if (!parents_.empty()) {
            own.repetition = parents_.back().repetition;
            own.definition = parents_.back().definition;
        }
        if (!root) {
            own.repetition += repeats == kRepeated;
            own.definition += repeats == kRepeated || repeats == kOptional;
        }
        if (!root && children <= 0) leaves_.push_back({kind, own.repetition, own.definition});
        if (!parents_.empty()) --parents_.back().children;
        while (!parents_.empty() && parents_.back().children <= 0) parents_.pop_back();
        if (children > 0) parents_.push_back(own);
    }

    void read_group() {
        int64_t id = 0;
        while (const int type = in_.field(id)) {
            if (id == 1 && type == kList) {
                size_t column = 0;
                each([&] { read_chunk(column++); });
                require_that(column == leaves_.size(),
                             "a row group has other columns than the schema");
            } else {
                in_.skip(type, 0);
            }
        }
    }

    void read_chunk(size_t column) {
        int64_t id = 0;
        bool there = false, encrypted = false;
        while (const int type = in_.field(id)) {
            if (id == 3 && type == kStruct) {
                there = true;
                read_metadata(column);
            } else {
                encrypted |= id == 8 || id == 9;
                in_.skip(type, 0);
            }
        }
        require_that(there || encrypted, "a column chunk has no metadata");
    }

    void read_metadata(size_t column) {
        int64_t id = 0, codec = 0;
        while (const int type = in_.field(id)) {
            if (id == 4 && type == kInt32) codec = in_.number();
            else if (id == 16 && type == kStruct) read_sizes(column);
            else in_.skip(type, 0);
        }
        require_that(codec >= 0 && codec < kCodecs, "a column chunk has an unknown compression");
    }

    void read_sizes(size_t column) {
        const Leaf leaf = column < leaves_.size() ? leaves_[column] : Leaf{};
        int64_t id = 0;
        while (const int type = in_.field(id)) {
            uint64_t count = 0;
            if (id == 1) {
                require_that(leaf.type == kByteArray, "sizes of strings for a column of numbers");
                in_.skip(type, 0);
            } else if ((id == 2 || id == 3) && type == kList) {
                const int of = in_.list(count);
                in_.skip_elements(of, count, 0);
                const uint64_t highest = id == 2 ? leaf.repetition : leaf.definition;
                require_that(count == 0 || count == highest + 1,
                             "a histogram of levels does not fit its column");
            } else {
                in_.skip(type, 0);
            }
        }
    }

    // Only what was read counts: a footer that is not whole arrow refuses.
    void require_that(bool holds, const char* otherwise) {
        if (!holds && in_.good && !*problem_) problem_ = otherwise;
    }

    Compact in_;
    bool begun_ = false;
    std::vector<Parent> parents_;
    std::vector<Leaf> leaves_;
    const char* problem_ = "";
};

}  // namespace

// footer: a FileMetaData of parquet, in Thrift's compact protocol.
const char* footer_problem(nb::bytes footer) {
    const auto* at = reinterpret_cast<const uint8_t*>(footer.c_str());
    return Footer({at, at + footer.size()}).problem();
}

void bind_parquet_footer(nb::module_& m) {
    m.def("footer_problem", &footer_problem, nb::arg("footer"));
}

}  // namespace embertide
