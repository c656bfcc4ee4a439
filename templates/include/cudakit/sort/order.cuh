// The order of elements, as unsigned keys: Order::key(word) ascends as in NumPy's sort the elements do that lie in memory
// as `word`. Those that compare equal have one key, as −0 and +0, and all NaN have the greatest. The words themselves
// are what is moved, so that every bit of an element stays as it is.
#pragma once

namespace cudakit {

template <typename W>
struct unsigned_order {
    using word = W;
    static constexpr int BYTES = sizeof(W);
    static __device__ W key(W element) { return element; }
};

template <typename W>
struct signed_order {
    using word = W;
    static constexpr int BYTES = sizeof(W);
    static __device__ W key(W element) {
        return static_cast<W>(element ^ static_cast<W>(static_cast<W>(1) << (8 * sizeof(W) - 1)));
    }
};

/// Bytes, of which any but 0 holds.
struct truth_order {
    using word = unsigned char;
    static constexpr int BYTES = 1;
    static __device__ unsigned char key(unsigned char element) { return element != 0; }
};

/// Floating point whose infinity has the bits INFINITE.
template <typename W, W INFINITE>
struct float_order {
    using word = W;
    static constexpr int BYTES = sizeof(W);
    static __device__ W key(W element) {
        constexpr W SIGN = static_cast<W>(static_cast<W>(1) << (8 * sizeof(W) - 1));
        const W magnitude = static_cast<W>(element & static_cast<W>(SIGN - 1));
        if (magnitude > INFINITE) return static_cast<W>(~static_cast<W>(0));
        return static_cast<W>(element & SIGN ? SIGN - magnitude : SIGN + magnitude);
    }
};

/// The greatest first; equal elements as they were.
template <typename Order>
struct descending {
    using word = typename Order::word;
    static constexpr int BYTES = Order::BYTES;
    static __device__ word key(word element) { return static_cast<word>(~Order::key(element)); }
};

/// Eight bits of a key, those of pass `pass` from the lowest on.
template <typename Order>
__device__ unsigned int digit_of(typename Order::word element, int pass) {
    return static_cast<unsigned int>(Order::key(element) >> (8 * pass)) & 255u;
}

}  // namespace cudakit
