// Values of a thread's neighbouring elements: COUNT at a time by one load or store where they lie for it, of any type, half
// and bfloat16 as float.
#pragma once

#include <cudakit/elementwise/convert.cuh>
#include <cudakit/pack.cuh>

namespace cudakit {

/// COUNT values of any type, without an alignment of their own.
template <typename T, int COUNT>
struct few {
    T values[COUNT];
};

namespace detail {
template <int... SIZES>
__host__ __device__ constexpr int greatest_size() {
    int found = 1;
    ((found = SIZES > found ? SIZES : found), ...);
    return found;
}
// Whether so many bytes are one word that the hardware moves.
__host__ __device__ constexpr bool is_word(int bytes) {
    return bytes <= 16 && (bytes & (bytes - 1)) == 0;
}
template <typename T, typename Word>
__device__ void put_word(T* target, const Word& word) {
    __stcs(reinterpret_cast<Word*>(target), word);
}
// What stands for a type of T's size in memory that no constructor fills.
template <typename T, bool IS_WORD = is_word(sizeof(T))>
struct word_of {
    using type = T;
};
template <typename T>
struct word_of<T, true> {
    using type = typename moved<sizeof(T)>::type;
};
// cuda::std::complex as its parts, which `convert` knows.
template <typename T>
struct storage {
    using type = T;
};
template <template <typename> class Complex, typename R>
struct storage<Complex<R>> {
    using type = parts<R>;
};
}  // namespace detail

template <typename H>
struct narrow;

namespace detail {
template <typename T>
struct number_of {
    using type = T;
    static constexpr bool is_narrow = false;
};
template <typename H>
struct number_of<narrow<H>> {
    using type = H;
    static constexpr bool is_narrow = true;
};
}  // namespace detail

/// Elements a thread, for arrays of elements of these sizes: 16 bytes of the widest.
template <int... SIZES>
inline constexpr int count_of = detail::is_word(detail::greatest_size<SIZES...>()) ? 16 / detail::greatest_size<SIZES...>() : 1;

/// half and bfloat16 as an expression sees them: read as float, so that numbers and functions of C++ go with them, and
/// rounded where they are set. `value` is the number itself, for intrinsics.
template <typename H>
struct narrow {
    H value;

    narrow() = default;
    __device__ narrow(H value) : value(value) {}
    __device__ narrow(float number) : value(static_cast<H>(number)) {}
    __device__ narrow(double number) : value(static_cast<H>(number)) {}
    template <typename Number>
    __device__ narrow(Number number) : value(static_cast<H>(static_cast<float>(number))) {}
    __device__ operator float() const { return static_cast<float>(value); }
    __device__ narrow& operator+=(float other) { return *this = *this + other; }
    __device__ narrow& operator-=(float other) { return *this = *this - other; }
    __device__ narrow& operator*=(float other) { return *this = *this * other; }
    __device__ narrow& operator/=(float other) { return *this = *this / other; }
};

/// `value` as `To`, by NumPy's rules.
template <typename To, typename From>
__device__ To as(const From& value) {
    if constexpr (detail::is_one_type<To, From>) {
        return value;
    } else if constexpr (detail::number_of<To>::is_narrow) {
        return as<typename detail::number_of<To>::type>(value);
    } else if constexpr (detail::number_of<From>::is_narrow) {
        return as<To>(value.value);
    } else {
        using Source = typename detail::storage<From>::type;
        using Target = typename detail::storage<To>::type;
        Source source;
        memcpy(&source, &value, sizeof(source));
        const Target target = convert<Target>(source);
        To result;
        memcpy(&result, &target, sizeof(result));
        return result;
    }
}

/// Whether COUNT elements at x are one word that one load takes.
template <int COUNT, typename S>
__device__ bool is_word_at(const S* x) {
    return detail::is_word(sizeof(S) * COUNT) && reinterpret_cast<unsigned long long>(x) % (sizeof(S) * COUNT) == 0;
}
/// Those elements. CONSTANT where the kernel does not write them.
template <int COUNT, bool CONSTANT, typename S>
__device__ few<S, COUNT> word_at(const S* x) {
    few<S, COUNT> found;
    if constexpr (detail::is_word(sizeof(S) * COUNT)) {
        using Word = typename detail::moved<sizeof(S) * COUNT>::type;
        const Word* const source = reinterpret_cast<const Word*>(x);
        const Word word = CONSTANT ? __ldg(source) : *source;
        memcpy(&found, &word, sizeof(word));
    }
    return found;
}

/// Values as T.
template <typename T, int COUNT, typename S>
__device__ few<T, COUNT> as_few(const few<S, COUNT>& values) {
    few<T, COUNT> result;
    if constexpr (detail::is_one_type<S, truth> && detail::is_word(COUNT)) {
        // All at once, where each by itself would take three instructions.
        typename detail::moved<COUNT>::type word;
        memcpy(&word, &values, COUNT);
        word = as_bools(word);
        few<bool, COUNT> bools;
        memcpy(&bools, &word, COUNT);
        return as_few<T>(bools);
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(values.values[k]);
    return result;
}

/// x[0 … COUNT), as T: by one load where x is aligned. CONSTANT where the kernel does not write them.
template <typename T, int COUNT, bool CONSTANT, typename S>
__device__ few<T, COUNT> load_few(const S* x) {
    if (is_word_at<COUNT>(x)) return as_few<T>(word_at<COUNT, CONSTANT>(x));
    few<T, COUNT> result;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(x[k]);
    return result;
}

/// The first `count` of x[0 … COUNT), by one load where that is all of them and x is aligned. Both ways come together as
/// a word: values taken apart before would be waited for, and the next array's loads begin after that.
template <int COUNT, bool CONSTANT, typename S>
__device__ few<S, COUNT> load_some(const S* x, long long count) {
    few<S, COUNT> found{};
    if constexpr (detail::is_word(sizeof(S) * COUNT)) {
        typename detail::moved<sizeof(S) * COUNT>::type word;
        if (count >= COUNT && is_word_at<COUNT>(x)) {
            found = word_at<COUNT, CONSTANT>(x);
            memcpy(&word, &found, sizeof(word));
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                if (k < count) found.values[k] = x[k];
            memcpy(&word, &found, sizeof(word));
        }
        memcpy(&found, &word, sizeof(word));
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < count) found.values[k] = x[k];
    }
    return found;
}

/// `count` of COUNT elements to `out`: by one store where it is all of them and `out` is aligned.
template <int COUNT, typename S, typename T>
__device__ void store_few(S* out, const few<T, COUNT>& values, int count) {
    few<S, COUNT> made;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) made.values[k] = as<S>(values.values[k]);
    if constexpr (detail::is_word(sizeof(S) * COUNT)) {
        using Word = typename detail::moved<sizeof(S) * COUNT>::type;
        if (count >= COUNT && reinterpret_cast<unsigned long long>(out) % sizeof(Word) == 0) {
            Word word;
            memcpy(&word, &made, sizeof(word));
            detail::put_word(out, word);
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k < count) out[k] = made.values[k];
}

/// The same value COUNT times.
template <int COUNT, typename T>
__device__ few<T, COUNT> repeated(const T& value) {
    few<T, COUNT> result;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = value;
    return result;
}

}  // namespace cudakit
