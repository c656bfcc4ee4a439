// A value in memory that many threads change, each with a function of what it was: what ufunc.at does.
#pragma once

namespace cudakit {
namespace ufunc {

namespace detail {
template <int SIZE>
struct cas_word;
template <>
struct cas_word<2> {
    using type = unsigned short;
};
template <>
struct cas_word<4> {
    using type = unsigned int;
};
template <>
struct cas_word<8> {
    using type = unsigned long long;
};
struct alignas(16) wide_word {
    unsigned long long low, high;
    __device__ bool operator==(wide_word other) const { return low == other.low && high == other.high; }
};
template <>
struct cas_word<16> {
    using type = wide_word;
};

template <typename W>
__device__ W compare_and_swap(W* place, W expected, W desired) {
    if constexpr (sizeof(W) == 16) {
        // From compute capability 9.0 on.
        W found;
        asm volatile(
            "{\n\t.reg .b128 e, d, f;\n\t"
            "mov.b128 e, {%2, %3};\n\tmov.b128 d, {%4, %5};\n\t"
            "atom.global.cas.b128 f, [%6], e, d;\n\t"
            "mov.b128 {%0, %1}, f;\n\t}"
            : "=l"(found.low), "=l"(found.high)
            : "l"(expected.low), "l"(expected.high), "l"(desired.low), "l"(desired.high),
              "l"(__cvta_generic_to_global(place))
            : "memory");
        return found;
    } else {
        return atomicCAS(place, expected, desired);
    }
}
}  // namespace detail

/// *place = f(*place), with nobody in between; T of 2, 4, 8 or 16 bytes.
template <typename T, typename F>
__device__ void change(T* place, const F& f) {
    using Word = typename detail::cas_word<sizeof(T)>::type;
    Word* const word = reinterpret_cast<Word*>(place);
    Word expected = *word;  // cudakit: benign race: a guess, which compare_and_swap checks
    while (true) {
        T value;
        memcpy(&value, &expected, sizeof(T));
        const T next = f(value);
        Word desired;
        memcpy(&desired, &next, sizeof(T));
        const Word found = detail::compare_and_swap(word, expected, desired);
        if (found == expected) return;
        expected = found;
    }
}

}  // namespace ufunc
}  // namespace cudakit
