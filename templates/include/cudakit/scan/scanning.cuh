// What scans are made of: how elements combine, alone and by segments; scans over the lanes of a warp; lines of a view.
#pragma once

#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/strided.cuh>
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

/// What a scan combines (Item: Acc, or with the segments' heads), how (Combine), and what it makes of them.
template <typename Out, typename Acc, typename Op, bool KEYED, bool EXCLUSIVE>
struct rule {
    using Item = Acc;
    using Combine = Op;
    using Operator = Op;
    static constexpr bool IS_KEYED = false, COMMUTES = true;
    template <typename T>
    static __device__ Item item(T x, bool) {
        return static_cast<Acc>(static_cast<Out>(x));
    }
    static __device__ Out result(Item before, Item with, Item) { return static_cast<Out>(EXCLUSIVE ? before : with); }
};
template <typename Out, typename Acc, typename Op, bool EXCLUSIVE>
struct rule<Out, Acc, Op, true, EXCLUSIVE> {
    using Item = keyed<Acc>;
    using Combine = segmented<Op>;
    using Operator = Op;
    static constexpr bool IS_KEYED = true, COMMUTES = true;
    template <typename T>
    static __device__ Item item(T x, bool head) {
        return {static_cast<Acc>(static_cast<Out>(x)), head};
    }
    static __device__ Out result(Item before, Item with, Item own) {
        if (EXCLUSIVE && own.head) return static_cast<Out>(Op::template identity<Acc>());
        return static_cast<Out>(EXCLUSIVE ? before.value : with.value);
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

/// Neighbours that a lane does at once: 16 bytes of what it reads, but no more than 32 of what it writes.
template <typename T, typename Out>
inline constexpr int LANE_NEIGHBOURS = 2 * sizeof(T) >= sizeof(Out) ? 16 / sizeof(T) : 32 / sizeof(Out);

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

/// The results of a row, of which scan_lanes made `up_to`; `before`, of all before the row, moves past it.
template <typename Rule, typename Out, int WIDTH, int VEC>
__device__ neighbours<Out, VEC> results(
    const typename Rule::Item (&item)[VEC], typename Rule::Item up_to, typename Rule::Item& before, int lane) {
    const typename Rule::Combine combine;
    const auto lanes_before = shuffle_up(up_to, 1, WIDTH);
    auto running = lane ? combine(before, lanes_before) : before;
    before = combine(before, shuffle(up_to, WIDTH - 1, WIDTH));
    neighbours<Out, VEC> result;
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
        const auto with = combine(running, item[v]);
        result.values[v] = Rule::result(running, with, item[v]);
        running = with;
    }
    return result;
}

/// A line of elements in memory, `step` elements apart.
template <typename T>
struct line_of {
    T* data;
    long long step;
};

/// Lines along AXIS of a view: line number l is the l-th of the elements that the other axes count, in row-major order.
template <typename T, int RANK, int AXIS>
struct lines_along {
    const strided<T, RANK>& view;

    __device__ long long length() const { return view.shape[AXIS]; }
    __device__ long long step() const { return view.strides[AXIS]; }
    __device__ long long count() const {
        long long product = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d)
            if (d != AXIS) product *= view.shape[d];
        return product;
    }
    __device__ line_of<T> operator[](long long line) const {
        constexpr int OUTERMOST = AXIS == 0;  // of the other axes: nothing is left to divide there
        unsigned long long rest = line;
        long long offset = 0;
#pragma unroll
        for (int d = RANK - 1; d > OUTERMOST; --d) {
            if (d == AXIS) continue;
            const unsigned long long length = view.shape[d], outer = quotient(rest, length);
            offset += static_cast<long long>(rest - outer * length) * view.strides[d];
            rest = outer;
        }
        if constexpr (RANK > 1) offset += static_cast<long long>(rest) * view.strides[OUTERMOST];
        return {view.data + offset, step()};
    }

private:
    // Dividing 32 bits takes a quarter of the time.
    static __device__ unsigned long long quotient(unsigned long long a, unsigned long long b) {
        if ((a | b) >> 32) return a / b;
        return static_cast<unsigned int>(a) / static_cast<unsigned int>(b);
    }
};

}  // namespace cudakit
