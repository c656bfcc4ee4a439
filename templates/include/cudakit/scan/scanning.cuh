// What scans are made of: how elements combine, alone and by segments; scans over the lanes of a warp.
#pragma once

#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

/// plus, for inclusive scans: they start from their first element, so that -0 stays -0.
struct running_plus : plus {
    template <typename A>
    static __device__ constexpr A identity() {
        if constexpr (detail::is_complex<A>(0)) return A(-0.0, -0.0);
        else return A(-0.0);
    }
};

/// A value, and whether a segment begins in what it combines.
template <typename Acc>
struct keyed {
    Acc value;
    bool head;
};

/// Op within segments: what comes before a head does not reach past it.
template <typename Op>
struct segmented {
    template <typename Keyed>
    static __device__ constexpr Keyed identity() {
        return {Op::template identity<decltype(Keyed::value)>(), false};
    }
    template <typename Acc>
    __device__ keyed<Acc> operator()(keyed<Acc> a, keyed<Acc> b) const {
        return {b.head ? b.value : Op()(a.value, b.value), a.head || b.head};
    }
};

/// combine over the lanes up to and including this one, of each WIDTH neighbours.
template <int WIDTH, typename Combine, typename Item>
__device__ Item scan_over_lanes(Item item, Combine combine, int lane) {
    return warp_inclusive_scan<WIDTH>(item, combine, lane);
}
// The lane where this lane's segment begins is known from a vote, so that heads need not travel with the values.
template <int WIDTH, typename Op, typename Acc>
__device__ keyed<Acc> scan_over_lanes(keyed<Acc> item, segmented<Op>, int lane) {
    const unsigned int heads = __ballot_sync(FULL_WARP, item.head) >> (threadIdx.x % 32 - lane) & ((2u << lane) - 1);
    const int start = heads ? 31 - __clz(heads) : 0;
#pragma unroll
    for (int step = 1; step < WIDTH; step *= 2) {
        const Acc other = shuffle_up(item.value, step, WIDTH);
        if (lane - step >= start) item.value = Op()(other, item.value);
    }
    item.head = heads != 0;
    return item;
}

/// up_to[row] = item[row][0] ∘ … of this lane and of the lanes before it among WIDTH.
template <typename Combine, int WIDTH, int ROWS, int VEC, typename Item>
__device__ void scan_lanes(const Item (&item)[ROWS][VEC], Item (&up_to)[ROWS], int lane) {
    const Combine combine;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        up_to[row] = item[row][0];
#pragma unroll
        for (int v = 1; v < VEC; ++v) up_to[row] = combine(up_to[row], item[row][v]);
        up_to[row] = scan_over_lanes<WIDTH>(up_to[row], combine, lane);
    }
}

/// Results of a lane's neighbours, and their way to memory that is aligned to PACK of them.
template <typename Out, int VEC>
struct neighbours {
    static constexpr int PACK = VEC * sizeof(Out) > 16 ? 16 / sizeof(Out) : VEC;
    Out values[VEC];

    __device__ void store(Out* at) const {
#pragma unroll
        for (int i = 0; i < VEC; i += PACK) {
            pack<Out, PACK> part;
#pragma unroll
            for (int v = 0; v < PACK; ++v) part.values[v] = values[i + v];
            store_pack(at + i, part);
        }
    }
    static __device__ bool are_aligned(const void* at) { return is_aligned<pack<Out, PACK>>(at); }
};

/// A line of elements in memory, `step` elements apart.
template <typename T>
struct line_of {
    T* data;
    long long step;
};

}  // namespace cudakit
