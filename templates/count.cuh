#include <cudakit/count/bins.cuh>
#include <cudakit/block.cuh>
#include <cudakit/count/counters.cuh>
#include <cudakit/elementwise/each.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/count/sums.cuh>
#include <cudakit/ticket.cuh>

// Histograms: each kernel reads its values once, gives each a bin (<cudakit/count/bins.cuh>), and counts in shared memory
// (<cudakit/count/counters.cuh>), so that only a block's sums go to global memory. Sums of whole numbers: the same on each
// run.
//
// A `View` is `const T*`, C-contiguous, or `cudakit::strided<const T, RANK>`. `workspace` begins with 1024 counters of
// 32 bits, 0 before and after.

namespace cudakit {

/// The least and the greatest of some values.
template <typename V>
struct extremes {
    V low, high;
};
struct wider {
    template <typename V>
    __device__ extremes<V> operator()(const extremes<V>& a, const extremes<V>& b) const {
        return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
    }
};

/// bins + 1 edges from low to high, as numpy.linspace has them; around a single value bins of width 1 in all, and [0,
/// 1] where no value is finite. By all threads of a block.
template <typename V, typename Edge>
__device__ void make_edges(const extremes<V>& found, Edge* edges, unsigned int bins) {
    double low = 0, high = 1;
    if (found.low <= found.high) {
        low = static_cast<double>(found.low);
        high = static_cast<double>(found.high);
        if (low == high) {
            low -= 0.5;
            high += 0.5;
        }
    }
    // Without a fused multiply-add, which NumPy does not have.
    const double step = (high - low) / bins;
    for (unsigned int i = threadIdx.x; i <= bins; i += blockDim.x)
        edges[i] = static_cast<Edge>(i == bins ? high : __dadd_rn(__dmul_rn(i, step), low));
}

// What the kernels do with the values that `each_pack` brings them.
template <bool CERTAIN, typename Bins, typename Counters>
struct counting {
    const Bins& place;
    Counters& counters;

    template <int N, typename T>
    __device__ void operator()(const T (&values)[N]) {
        unsigned int found[N];
        bool inside[N];
        place.template find<CERTAIN>(values, found, inside);
        counters.add(found, inside);
    }
};
template <typename Counters>
struct counting_bytes {
    Counters& counters;

    template <int N, typename T>
    __device__ void operator()(const T (&values)[N]) {
        unsigned int found[N];
        bool inside[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
            found[k] = static_cast<unsigned char>(values[k]);
            inside[k] = true;
        }
        counters.add(found, inside);
    }
};
template <typename V>
struct widening {
    extremes<V>& known;

    template <int N, typename T>
    __device__ void operator()(const T (&values)[N]) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const V value = static_cast<V>(values[k]);
            if constexpr (!detail::is_integer<V>) {
                if (!(value > detail::end_of_range<V>(false) && value < detail::end_of_range<V>(true))) continue;
            }
            known.low = value < known.low ? value : known.low;
            known.high = value > known.high ? value : known.high;
        }
    }
};

// Bins that the counters at the start of a workspace have room for, in 64 bits, beside a ticket.
inline constexpr unsigned int GATHERED = 500;

template <typename Edge>
__device__ void copy_edges(const Edge* from, Edge* to, unsigned int bins) {
    for (unsigned int i = threadIdx.x; i <= bins; i += blockDim.x) to[i] = from[i];
}

}  // namespace cudakit

// counts[b] = the number of values of x in bin b.
//
// Shapes: x (size), T; edges (bins + 1), as Bins wants them; shown (bins + 1), a copy of them, or the same; counts
//   (bins), which the caller zeroes where bins > 500; for fewer the sums of blocks meet in the workspace, and the block
//   that comes last moves them, which saves a launch.
// Threads: packs of 16 bytes, ITEMS of them in flight a thread, taken in turns by all threads of the launch.
// Memory: sizeof(T) bytes a value. Shared: the counters, then Bins::SHARED_BYTES, then the edges where `own_edges`.
// Preconditions: bins < 2^30; the edges ascend; room in dynamic shared memory.
// Launch: one-dimensional, BLOCK threads a block, a block or two a multiprocessor, as each ends with an atomic
//   addition a bin; gridDim.y > 1 for half_counters only.
// Source: Gómez-Luna et al., An optimized approach to histogram computation on GPU, Mach. Vision Appl. 24 (2013).
template <
    typename View, typename Bins, typename Counters, typename Edge, int BLOCK = 1024, int ITEMS = 4, int RESIDENT = 1>
__global__ void __launch_bounds__(BLOCK, RESIDENT) values(
    const View x, const Edge* edges, Edge* shown, long long* __restrict__ counts, unsigned char* __restrict__ workspace,
    unsigned int bins, unsigned int table_at, bool own_edges, long long size) {
    extern __shared__ __align__(16) unsigned char shared[];
    const bool gathers = bins <= cudakit::GATHERED;
    unsigned char* const target = gathers ? workspace : reinterpret_cast<unsigned char*>(counts);
    unsigned long long* const sums = reinterpret_cast<unsigned long long*>(target);
    if (shown != edges && blockIdx.x == 0 && blockIdx.y == 0) cudakit::copy_edges(edges, shown, bins);
    Counters counters(shared, bins, sums);
    unsigned char* const table = shared + table_at;
    if (own_edges) {
        Edge* const near = reinterpret_cast<Edge*>(table + (Bins::SHARED_BYTES + 15) / 16 * 16);
        cudakit::copy_edges(edges, near, bins);
        __syncthreads();
        edges = near;
    }
    const Bins place(edges, bins, table);
    const cudakit::counting<false, Bins, Counters> count{place, counters};
    const cudakit::counting<true, Bins, Counters> count_certain{place, counters};
    if (place.is_certain()) cudakit::each_full<ITEMS>(x, size, count_certain);
    else cudakit::each_full<ITEMS>(x, size, count);
    cudakit::each_left<ITEMS>(x, size, count);
    counters.flush(sums);
    if (!gathers || !cudakit::is_last_block(reinterpret_cast<unsigned int*>(workspace) + 1023, gridDim.x)) return;
    for (unsigned int bin = threadIdx.x; bin < bins; bin += BLOCK) {
        counts[bin] = sums[bin];
        sums[bin] = 0;
    }
}

// counts[b] = the number of values of x in bin b, for values of 8 bits: counted by their bits, 256 of them, whatever
// the bins are, which the last block looks up; so the time depends neither on the bins nor on the values.
//
// Shapes: x (size), T of 8 bits; edges (bins + 1), which the kernel makes of the least and the greatest value where
//   `makes_edges`; shown (bins + 1), a copy of them, or the same; counts (bins).
// Threads: as above; the block that comes last gives each of the 256 sums its bin.
// Memory: 1 byte a value. Shared: 32 counters for each of the 256, one a lane: 32 KiB, and no two lanes of a warp
//   meet in a bank. One block of 1024 threads a multiprocessor leaves the most of L1 to the values on their way: 1.05 ×
//   two.
// Preconditions: size < 2^32 · gridDim.x.
// Launch: one-dimensional, BLOCK threads a block, BLOCK ≥ 256.
// Source: as above, with as many copies as there are lanes.
template <typename View, typename Bins, typename Edge, int BLOCK = 1024, int ITEMS = 4>
__global__ void __launch_bounds__(BLOCK) bytes(
    const View x, Edge* edges, Edge* shown, long long* __restrict__ counts, unsigned char* __restrict__ workspace,
    unsigned int bins, bool makes_edges, long long size) {
    using T = cudakit::element_t<View>;
    static_assert(sizeof(T) == 1 && BLOCK >= 256, "256 threads look after 256 values");
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ __align__(16) unsigned char table[Bins::SHARED_BYTES + 16];
    unsigned long long* const sums = reinterpret_cast<unsigned long long*>(workspace);
    cudakit::word_counters<32> counters(shared, 256, nullptr);
    cudakit::each_pack<ITEMS>(x, size, cudakit::counting_bytes<cudakit::word_counters<32>>{counters});
    counters.flush(sums);
    if (!cudakit::is_last_block(reinterpret_cast<unsigned int*>(workspace) + 1023, gridDim.x)) return;

    const unsigned long long sum = threadIdx.x < 256 ? sums[threadIdx.x] : 0;
    const T value = static_cast<T>(static_cast<unsigned char>(threadIdx.x));
    if (threadIdx.x < 256) sums[threadIdx.x] = 0;
    for (unsigned int bin = threadIdx.x; bin < bins; bin += BLOCK) counts[bin] = 0;
    if (shown != edges) cudakit::copy_edges(edges, shown, bins);
    if (makes_edges) {
        __shared__ cudakit::block_reduce_storage<cudakit::extremes<int>, BLOCK> storage;
        const cudakit::extremes<int> own = {sum ? static_cast<int>(value) : 256, sum ? static_cast<int>(value) : -256};
        cudakit::make_edges(cudakit::block_reduce<BLOCK>(own, cudakit::wider(), storage), edges, bins);
    }
    __syncthreads();
    const Bins place(edges, bins, table);
    if (sum == 0) return;
    const T one[1] = {value};
    unsigned int bin[1];
    bool inside[1];
    place.find(one, bin, inside);
    if (inside[0]) atomicAdd(reinterpret_cast<unsigned long long*>(counts) + bin[0], sum);
}

// edges = bins + 1 even ones from the least finite value of x to the greatest; or, without bins, edges = (least,
// greatest).
//
// Shapes: x (size), T; edges (bins + 1), or (2), Edge; workspace holds 2 · sizeof(T) bytes a block, 8 at the least.
// Threads: as above; the block that comes last combines the blocks'.
// Memory: sizeof(T) bytes a value.
// Preconditions: size > 0 where there are no bins.
// Launch: one-dimensional, BLOCK threads a block.
// Source: the last-block pattern of NVIDIA's threadFenceReduction.
template <typename View, typename V, typename Edge, int BLOCK = 512, int ITEMS = 4>
__global__ void __launch_bounds__(BLOCK) range(
    const View x, Edge* __restrict__ edges, unsigned char* __restrict__ workspace, unsigned int bins, long long size) {
    using State = cudakit::extremes<V>;
    __shared__ cudakit::block_reduce_storage<State, BLOCK> storage;
    const V least = cudakit::detail::end_of_range<V>(false), most = cudakit::detail::end_of_range<V>(true);
    State own = {most, least};
    cudakit::each_pack<ITEMS>(x, size, cudakit::widening<V>{own});
    own = cudakit::block_reduce<BLOCK>(own, cudakit::wider(), storage);
    State* const partials = reinterpret_cast<State*>(workspace + 4096);
    if (threadIdx.x == 0) partials[blockIdx.x] = own;
    if (!cudakit::is_last_block(reinterpret_cast<unsigned int*>(workspace), gridDim.x)) return;
    own = {most, least};
    for (int block = threadIdx.x; block < gridDim.x; block += BLOCK) own = cudakit::wider()(own, partials[block]);
    own = cudakit::block_reduce<BLOCK>(own, cudakit::wider(), storage);
    if (bins) {
        cudakit::make_edges(own, edges, bins);
    } else if (threadIdx.x == 0) {
        edges[0] = static_cast<Edge>(own.low);
        edges[1] = static_cast<Edge>(own.high);
    }
}

// sums[b] += the sum of w over the values of x in bin b, in limbs (<cudakit/count/sums.cuh>): the same bits on each run.
//
// Shapes: x and w (size), in one order; edges (bins + 1), as Bins wants them; range (2): the least and the greatest
//   finite w, for fixed_sum; sums (LIMBS, bins), and for fixed_sum one row more, of notes: the caller zeroes them.
// Threads: neighbours do neighbours, ITEMS of them in flight a thread.
// Memory: sizeof(T) + sizeof(W) bytes a value. Shared: the sums, then Bins::SHARED_BYTES.
// Preconditions: bins < 2^30; the edges ascend.
// Launch: one-dimensional, BLOCK threads a block, a few blocks a multiprocessor.
// Source: as above, for the sums <cudakit/count/sums.cuh>.
template <
    typename View, typename Weights, typename Bins, typename Sum, typename Sums, typename Edge, int BLOCK = 512,
    int ITEMS = 4>
__global__ void __launch_bounds__(BLOCK) weigh(
    const View x, const Weights w, const Edge* __restrict__ edges, const double* __restrict__ range,
    unsigned long long* __restrict__ sums, unsigned int bins, unsigned int sum_bytes, long long size) {
    extern __shared__ __align__(16) unsigned char shared[];
    using T = cudakit::element_t<View>;
    using W = cudakit::element_t<Weights>;
    Sums own(shared, bins, sums);
    const Bins place(edges, bins, shared + sum_bytes);
    const typename Sum::scale scale(range, size);
    const long long threads = static_cast<long long>(gridDim.x) * BLOCK;
    for (long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x; i < size; i += threads * ITEMS) {
        T values[ITEMS];
        W weights[ITEMS];
        unsigned int found[ITEMS];
        bool inside[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const long long at = i + k * threads < size ? i + k * threads : i;
            values[k] = cudakit::element_of(x, at);
            weights[k] = cudakit::element_of(w, at);
        }
        place.find(values, found, inside);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            if (!inside[k] || i + k * threads >= size) continue;
            long long limbs[Sum::LIMBS];
            if (scale.split(weights[k], limbs)) own.add(found[k], limbs);
            else if constexpr (Sum::LIMBS == 2) atomicOr(sums + 2ull * bins + found[k], Sum::note(weights[k]));
        }
    }
    own.flush(sums);
}

// out[b] = the sum that `weigh` left in limbs, rounded to Out.
//
// Shapes: sums as above; out (bins).
// Threads: one a bin.
// Memory: 8 bytes a limb, and what Out has.
// Preconditions: `range` and `size` as `weigh` had them.
// Launch: one-dimensional, at least `bins` threads.
// Source: <cudakit/count/sums.cuh>.
template <typename Sum, typename W, typename Out>
__global__ void settle(
    const unsigned long long* __restrict__ sums, const double* __restrict__ range, Out* __restrict__ out,
    unsigned int bins, long long size) {
    const unsigned int bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin < bins) out[bin] = Sum::template value<Out, W>(sums + bin, bins, typename Sum::scale(range, size));
}
