// Rows of an array, each read, summarised, changed and written by a group of threads that holds it in registers.
//
// What is done to a row is an operation `Op`, over `Op::value`, the type that its arithmetic is done in:
//   state                        what some elements of a row come to: (maximum, sum), (count, mean, squares) …
//   PAD                          stands for an element where the row has ended
//   summarise(values, count)     the state of the first `count` values; it may put others in their places
//   combine(a, b)                the state of the elements of both
//   gather<WIDTH>(own)           the state of the elements of WIDTH neighbouring lanes
//   finish(values, at, own, all) results from neighbours, of which the first is element `at`, the state that they were
//                                summarised with, and the row's
//   total(all)                   the result where a row comes to one value, as PER_ROW says
#pragma once

#include <cudakit/cluster.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

/// The elements of a row that one of `group` threads has: packs `lane`, `lane + group`, … of COUNT neighbours each.
/// `address(i)` is where element i lies.
template <typename Value, int PACKS, int COUNT>
struct row_values {
    Value values[PACKS][COUNT];

    /// Reads them, all loads in flight at once. Returns how many there are: where the row has ended, `pad` stands.
    template <typename Address>
    __device__ int load(Address address, int length, int lane, int group, Value pad) {
        using Pack = decltype(load_pack_once<COUNT>(address(0)));
        Pack raw[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const int at = (p * group + lane) * COUNT;
            if (at < length) raw[p] = load_pack_once<COUNT>(address(at));
        }
        int count = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const bool inside = (p * group + lane) * COUNT < length;
            count += inside ? COUNT : 0;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values[p][k] = inside ? static_cast<Value>(raw[p].values[k]) : pad;
        }
        return count;
    }

    template <typename Op>
    __device__ typename Op::state summarise(const Op& op, int count) {
        return op.summarise(reinterpret_cast<Value(&)[PACKS * COUNT]>(values), count);
    }

    /// Writes the results to elements of type Out; `first` is the number that element 0 has in the whole row.
    template <typename Out, typename Address, typename Op>
    __device__ void store(
        Address address, int length, int lane, int group, const Op& op, const typename Op::state& own,
        const typename Op::state& all, long long first = 0) {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const int at = (p * group + lane) * COUNT;
            if (at >= length) break;
            op.finish(values[p], first + at, own, all);
            pack<Out, COUNT> results;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) results.values[k] = static_cast<Out>(values[p][k]);
            store_pack_once<COUNT>(address(at), results);
        }
    }
};

/// The state of a row from those of its threads: GROUP lanes of a warp, or the BLOCK threads of each block of a cluster.
template <int GROUP, int BLOCK, typename Op>
__device__ typename Op::state row_state(const Op& op, typename Op::state own) {
    using State = typename Op::state;
    own = op.template gather<GROUP < 32 ? GROUP : 32>(own);
    if constexpr (GROUP > 32) {
        // One barrier: each warp then gathers the warps' states for itself.
        constexpr int WARPS = BLOCK / 32;
        __shared__ alignas(16) unsigned char of_warps[WARPS * sizeof(State)];
        State* const states = reinterpret_cast<State*>(of_warps);
        if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = own;
        __syncthreads();
        own = op.template gather<WARPS>(states[threadIdx.x % WARPS]);
    }
    if constexpr (GROUP > BLOCK && GROUP > 32) {
        constexpr int BLOCKS = GROUP / BLOCK;
        __shared__ alignas(16) unsigned char of_blocks[BLOCKS * sizeof(State)];
        State* const states = reinterpret_cast<State*>(of_blocks);
        // Thread t tells block t, which has begun: every thread arrives when it begins.
        cluster_wait();
        if (threadIdx.x < BLOCKS) *cluster_shared(states + cluster_rank(), threadIdx.x) = own;
        cluster_arrive();
        cluster_wait();
        own = op.template gather<BLOCKS>(states[threadIdx.x % BLOCKS]);
    }
    return own;
}

/// out[row] = the results of x[row], for `rows` rows of `length` neighbouring elements, each read once and written once.
///
/// GROUP threads a row, of BLOCK a block; where GROUP > BLOCK, a cluster of GROUP / BLOCK blocks. A row has at most
/// GROUP · PACKS · COUNT elements; COUNT divides `length`, and x and out are aligned to COUNT elements.
template <int GROUP, int BLOCK, int PACKS, int COUNT, typename T, typename Out, typename Op>
__device__ void for_each_row(const T* x, Out* out, long long rows, int length, const Op& op) {
    static_assert(GROUP <= 32 || GROUP % BLOCK == 0, "a group is lanes of one warp, or whole blocks");
    if constexpr (GROUP > BLOCK) cluster_arrive();
    const long long thread = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
    const long long row = thread / GROUP;
    const int lane = static_cast<int>(thread % GROUP);
    const bool exists = row < rows;  // groups past the end have no row, but shuffle with the others of their warp
    const int elements = exists ? length : 0;

    row_values<typename Op::value, PACKS, COUNT> part;
    const T* const source = x + row * length;
    const int count = part.load([source](int at) { return source + at; }, elements, lane, GROUP, Op::PAD);
    const typename Op::state own = part.summarise(op, count);
    const typename Op::state all = row_state<GROUP, BLOCK>(op, own);
    if constexpr (Op::PER_ROW) {
        if (exists && lane == 0) out[row] = static_cast<Out>(op.total(all));
    } else {
        Out* const target = out + row * length;
        part.template store<Out>([target](int at) { return target + at; }, elements, lane, GROUP, op, own, all);
    }
}

}  // namespace cudakit
