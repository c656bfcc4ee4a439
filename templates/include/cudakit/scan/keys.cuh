// Keys of a scan, whose runs of equal neighbours are scanned each for itself: an input of which an element is whether its
// key differs from the one before, so that a segment begins there. The first's may be either: nothing comes before it.
#pragma once

#include <cudakit/reduce/several.cuh>

namespace cudakit {

template <typename K>
struct keys_input {
    using Value = bool;
    const K* x;
};
template <typename K>
__device__ keys_input<stored_t<K>> keys_of(const K* x) {
    return {stored(x)};
}

/// Keys along a line, of which x[0] is number `first`, 0 having none before.
template <typename K, spacing SPACING>
struct keys_line {
    using Value = bool;
    const K* x;
    long long step, first;
    __device__ long long apart() const { return SPACING == spacing::adjacent ? 1 : step; }
    __device__ void advance(long long count) { x += count * apart(), first += count; }

    template <int COUNT>
    struct pack {
        K before, keys[COUNT];
        __device__ bool value(int k) const { return keys[k] != (k ? keys[k - 1] : before); }
    };
    template <int COUNT>
    __device__ pack<COUNT> load(long long i) const {
        return load_part<COUNT>(i, COUNT);
    }
    /// The first `count` of them.
    template <int COUNT>
    __device__ pack<COUNT> load_part(long long i, int count) const {
        pack<COUNT> result;
        if (count > 0) result.before = x[(i - (first + i > 0)) * apart()];
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < count) result.keys[k] = x[(i + k) * apart()];
        return result;
    }
};
template <spacing SPACING, typename K>
__device__ keys_line<K, SPACING> line_from(const keys_input<K>& input, long long place, long long step) {
    return {input.x + place, step, 0};
}

namespace detail {
template <int COUNT, typename K, spacing SPACING>
__device__ auto load_part_of(const keys_line<K, SPACING>& line, long long i, int count, bool) {
    return line.template load_part<COUNT>(i, count);
}
}  // namespace detail

}  // namespace cudakit
