// Elements of several arrays at once, each of its own type and read as another, beside numbers that are the same for
// all elements: what a generated kernel's expression sees of its inputs.
//
// `inputs` of a kernel are a `several` of array_input and value_input. A `layout` is a struct with arrays `start` and
// others, an entry for each input: where in its memory it begins, and how far apart its elements are.
#pragma once

#include <cudakit/elementwise/values.cuh>
#include <cudakit/reduce/fold.cuh>

namespace cudakit {

/// A value for an expression of which only the type is asked.
template <typename T>
__device__ T unevaluated();

/// So many bytes: the type of a kernel's parameter that tells a size.
template <int BYTES>
struct bytes {
    unsigned char values[BYTES];
};

template <typename... Ts>
struct several {};
template <typename T, typename... Others>
struct several<T, Others...> {
    T first;
    several<Others...> others;
};

__device__ inline several<> several_of() { return {}; }
template <typename T, typename... Others>
__device__ several<T, Others...> several_of(const T& first, const Others&... others) {
    return {first, several_of(others...)};
}

/// call(values..., each of `all`)
template <typename Call, typename... Values>
__device__ decltype(auto) call_with(const Call& call, const several<>&, const Values&... values) {
    return call(values...);
}
template <typename Call, typename T, typename... Others, typename... Values>
__device__ decltype(auto) call_with(const Call& call, const several<T, Others...>& all, const Values&... values) {
    return call_with(call, all.others, values..., all.first);
}

/// The values of an element: of one input the value itself, so that reducers of numbers take it.
template <typename... Ts>
__device__ several<Ts...> bare(const several<Ts...>& values) {
    return values;
}
template <typename T>
__device__ T bare(const several<T>& values) {
    return values.first;
}
/// call(values...) of what `bare` gives.
template <typename Call, typename... Ts>
__device__ decltype(auto) call_of(const Call& call, const several<Ts...>& values) {
    return call_with(call, values);
}
template <typename Call, typename T>
__device__ decltype(auto) call_of(const Call& call, const T& value) {
    return call(value);
}

/// An array of From that is read as To.
template <typename To, typename From>
struct array_input {
    using Value = To;
    using Stored = From;
    const From* x;
};
template <typename To, typename From>
__device__ array_input<To, stored_t<From>> array_of(const From* x) {
    return {stored(x)};
}
/// What is the same for all elements: a number, or a pointer that the expression indexes.
template <typename T>
struct value_input {
    using Value = T;
    T value;
};
template <typename T>
__device__ value_input<T> value_of(const T& value) {
    return {value};
}

/// How the elements of an array lie along what a thread walks.
enum class spacing { adjacent, same, apart };
/// Two bits of `spacings` for each input.
__device__ constexpr spacing spacing_of(int spacings, int input) {
    return static_cast<spacing>(spacings >> 2 * input & 3);
}

/// COUNT neighbours as they were loaded, of any type: one word where that is one.
template <typename T, int COUNT, bool WORD = sizeof(T) == alignof(T) && detail::is_word(sizeof(T) * COUNT)>
struct neighbours_of : loaded<T, COUNT> {
    neighbours_of() = default;
    __device__ explicit neighbours_of(const T* from) : loaded<T, COUNT>(from) {}
};
template <typename T, int COUNT>
struct neighbours_of<T, COUNT, false> {
    T values[COUNT];
    neighbours_of() = default;
    __device__ explicit neighbours_of(const T* from) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] = from[k];
    }
    __device__ T value(int k) const { return values[k]; }
};

/// The elements of an array from one on: COUNT in a load, which `value(k)` takes apart.
template <typename To, typename From, spacing SPACING>
struct line_input {
    using Value = To;
    const From* x;
    long long step;
    __device__ void advance(long long count) { x += count * step; }

    template <int COUNT>
    struct pack {
        neighbours_of<From, COUNT> words;
        __device__ To value(int k) const { return as<To>(words.value(k)); }
        __device__ void unpack(To* values) const {
            // As words, where they are the values: bytes taken apart would have to be put together again.
            if constexpr (detail::is_one_type<To, From>) {
                memcpy(values, &words, COUNT * sizeof(To));
            } else if constexpr (is_bool<To> && detail::is_one_type<From, truth>) {
                const auto bools = as_bools(words.word);
                memcpy(values, &bools, COUNT);
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) values[k] = value(k);
            }
        }
    };
    template <int COUNT>
    __device__ pack<COUNT> load(long long i) const {
        return {neighbours_of<From, COUNT>(x + i)};
    }
    /// The same where they do not lie at a word.
    template <int COUNT>
    __device__ pack<COUNT> gather() const {
        From values[COUNT];
        for (int k = 0; k < COUNT; ++k) values[k] = x[k];
        pack<COUNT> result;
        memcpy(&result.words, values, sizeof(values));
        return result;
    }
};
template <typename To, typename From>
struct line_input<To, From, spacing::same> {
    using Value = To;
    const From* x;
    long long step;
    __device__ void advance(long long count) { x += count * step; }

    template <int COUNT>
    struct pack {
        From one;
        __device__ To value(int) const { return as<To>(one); }
    };
    template <int COUNT>
    __device__ pack<COUNT> load(long long) const {
        return {*x};
    }
    template <int COUNT>
    __device__ pack<COUNT> gather() const {
        return load<COUNT>(0);
    }
};
template <typename To, typename From>
struct line_input<To, From, spacing::apart> {
    using Value = To;
    const From* x;
    long long step;
    __device__ void advance(long long count) { x += count * step; }

    template <int COUNT>
    struct pack {
        From values[COUNT];
        __device__ To value(int k) const { return as<To>(values[k]); }
    };
    template <int COUNT>
    __device__ pack<COUNT> load(long long i) const {
        pack<COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = x[(i + k) * step];
        return result;
    }
    template <int COUNT>
    __device__ pack<COUNT> gather() const {
        return load<COUNT>(0);
    }
};
template <typename T>
struct value_line {
    using Value = T;
    T value_;
    __device__ void advance(long long) {}

    template <int COUNT>
    struct pack {
        T one;
        __device__ T value(int) const { return one; }
    };
    template <int COUNT>
    __device__ pack<COUNT> load(long long) const {
        return {value_};
    }
    template <int COUNT>
    __device__ pack<COUNT> gather() const {
        return load<COUNT>(0);
    }
};

/// Each of several lines from `count` of its elements on.
__device__ inline void advance(several<>&, long long) {}
template <typename Line, typename... Lines>
__device__ void advance(several<Line, Lines...>& lines, long long count) {
    lines.first.advance(count);
    advance(lines.others, count);
}

template <typename T, typename... Others>
__device__ several<T, Others...> with_first(const T& first, const several<Others...>& others) {
    return {first, others};
}
template <spacing SPACING, typename To, typename From>
__device__ line_input<To, From, SPACING> line_from(
    const array_input<To, From>& input, long long place, long long step) {
    return {input.x + place, step};
}
template <spacing, typename T>
__device__ value_line<T> line_from(const value_input<T>& input, long long, long long) {
    return {input.value};
}

/// The inputs from an element on: number `places[k]` of input k, whose elements are `steps[k]` apart.
template <int SPACINGS, int INPUT = 0, typename Places, typename Steps>
__device__ several<> lines_from(const several<>&, const Places&, const Steps&) {
    return {};
}
template <int SPACINGS, int INPUT = 0, typename Input, typename... Others, typename Places, typename Steps>
__device__ auto lines_from(const several<Input, Others...>& inputs, const Places& places, const Steps& steps) {
    return with_first(
        line_from<spacing_of(SPACINGS, INPUT)>(inputs.first, places[INPUT], steps[INPUT]),
        lines_from<SPACINGS, INPUT + 1>(inputs.others, places, steps));
}

/// COUNT neighbours of each of several lines.
template <int COUNT, typename... Lines>
struct several_packs {
    __device__ several<> value(int) const { return {}; }
};
template <int COUNT, typename Line, typename... Lines>
struct several_packs<COUNT, Line, Lines...> {
    typename Line::template pack<COUNT> first;
    several_packs<COUNT, Lines...> others;

    __device__ several<typename Line::Value, typename Lines::Value...> value(int k) const {
        return {first.value(k), others.value(k)};
    }
};

template <int COUNT>
__device__ several_packs<COUNT> load_several(const several<>&, long long) {
    return {};
}
template <int COUNT, typename Line, typename... Lines>
__device__ several_packs<COUNT, Line, Lines...> load_several(const several<Line, Lines...>& lines, long long i) {
    return {lines.first.template load<COUNT>(i), load_several<COUNT>(lines.others, i)};
}

namespace detail {
// Elements before the first at which COUNT of them are one aligned word, by the first array that has neighbours.
template <int COUNT>
__device__ long long head_of(const several<>&) {
    return 0;
}
template <int COUNT, typename Line, typename... Lines>
__device__ long long head_of(const several<Line, Lines...>& lines) {
    return head_of<COUNT>(lines.others);
}
template <int COUNT, typename To, typename From, typename... Lines>
__device__ long long head_of(const several<line_input<To, From, spacing::adjacent>, Lines...>& lines) {
    return unaligned_head<COUNT>(lines.first.x);
}

template <int COUNT>
__device__ bool have_head(const several<>&, long long) {
    return true;
}
template <int COUNT, typename Line, typename... Lines>
__device__ bool have_head(const several<Line, Lines...>& lines, long long head) {
    return have_head<COUNT>(lines.others, head);
}
template <int COUNT, typename To, typename From, typename... Lines>
__device__ bool have_head(const several<line_input<To, From, spacing::adjacent>, Lines...>& lines, long long head) {
    return unaligned_head<COUNT>(lines.first.x) == head && have_head<COUNT>(lines.others, head);
}

template <int COUNT, typename... Lines, typename Value>
__device__ void unpack(const several_packs<COUNT, Lines...>& packs, Value* values) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) values[k] = bare(packs.value(k));
}
template <int COUNT, typename To, typename From>
__device__ void unpack(const several_packs<COUNT, line_input<To, From, spacing::adjacent>>& packs, To* values) {
    packs.first.unpack(values);
}
}  // namespace detail

/// Several lines as a source of `fold_part`: arrays with neighbours must lie alike to their words of COUNT elements.
template <int ELEMENTS, typename... Lines>
struct several_lines {
    static constexpr int COUNT = ELEMENTS;
    using Value = decltype(bare(unevaluated<several<typename Lines::Value...>>()));
    using Pack = several_packs<COUNT, Lines...>;
    several<Lines...> lines;

    __device__ long long head() const { return detail::head_of<COUNT>(lines); }
    __device__ Pack load(long long i) const { return load_several<COUNT>(lines, i); }
    static __device__ void unpack(const Pack& pack, Value* values) { detail::unpack(pack, values); }
    __device__ Value load_one(long long i) const { return bare(load_several<1>(lines, i).value(0)); }
};
template <int COUNT, typename... Lines>
__device__ several_lines<COUNT, Lines...> source_from(const several<Lines...>& lines) {
    return {lines};
}

}  // namespace cudakit
