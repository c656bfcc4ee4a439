// Rows of an array, each read, summarised, changed and written by a group of threads that holds it in registers.
//
// What is done to a row is an operation `Op`, over `Op::value`, the type that its arithmetic is done in:
//   state                        what some elements of a row come to: (maximum, sum), (count, mean, squares) …
//   PAD                          stands where the row has no element
//   summarise(values, present)   the state of the values, PAD aside: `present(k)` says whether values[k] is an element,
//                                `present.count()` how many are; it may put others in their places
//   combine(a, b)                the state of the elements of both
//   gather<WIDTH>(own)           the state of the elements of WIDTH neighbouring lanes
//   scaling(own, all)            what results of values need of the state that they were summarised with, and of the row's
//   finish(values, at, scaling)  results from neighbours, of which the first is element `at`
//   total(all)                   the result where a row comes to one value, as PER_ROW says
#pragma once

#include <cudakit/cluster.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

/// The elements of a row that one of GROUP threads has: packs of COUNT neighbours, GROUP packs apart, the first of
/// which begins at element `first`. A pack that is not wholly inside the row is moved element by element; without
/// RAGGED there is none, a pack being inside or outside.
template <typename Value, int GROUP, int PACKS, int COUNT, bool RAGGED>
struct row_values {
    static constexpr int STEP = GROUP * COUNT;
    Value values[PACKS][COUNT];
    int first, length;

    __device__ row_values(int first, int length) : first(first), length(length) {}

    // Only the first pack of the first thread can begin before the row does.
    __device__ bool is_whole(int p) const {
        return (!RAGGED || p > 0 || first >= 0) && first + p * STEP <= length - COUNT;
    }
    __device__ bool has(int p, int k) const {
        if (!RAGGED) return is_whole(p);
        return (p > 0 || first + k >= 0) && first + p * STEP + k < length;
    }

    struct presence {
        const row_values& part;

        __device__ bool operator()(int k) const { return part.has(k / COUNT, k % COUNT); }
        __device__ int count() const {
            int sum = 0;
#pragma unroll
            for (int k = 0; k < PACKS * COUNT; ++k) sum += (*this)(k);
            return sum;
        }
    };

    /// Reads them, all loads in flight at once, from where `address(p)` says that pack p lies; `pad` stands for those
    /// that the row does not have. ONCE says that nobody reads them again.
    template <bool ONCE, typename Address>
    __device__ void load(Address address, Value pad) {
        using Pack = decltype(load_pack<COUNT>(address(0)));
        Pack raw[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (is_whole(p)) {
                raw[p] = ONCE ? load_pack_once<COUNT>(address(p)) : load_pack<COUNT>(address(p));
            } else if constexpr (RAGGED) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    if (has(p, k)) raw[p].values[k] = stored(address(p))[k];
            }
        }
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (is_whole(p)) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) values[p][k] = static_cast<Value>(raw[p].values[k]);
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    values[p][k] = RAGGED && has(p, k) ? static_cast<Value>(raw[p].values[k]) : pad;
            }
        }
    }

    template <typename Op>
    __device__ typename Op::state summarise(const Op& op) {
        return op.summarise(reinterpret_cast<Value(&)[PACKS * COUNT]>(values), presence{*this});
    }

    /// Writes the results, to shared memory unless ONCE; element 0 has number `start` in the whole row.
    template <typename Out, bool ONCE = true, typename Address, typename Op>
    __device__ void store(
        Address address, const Op& op, const typename Op::state& own, const typename Op::state& all,
        long long start = 0) {
        const auto scaling = op.scaling(own, all);
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const long long at = start + first + p * STEP;
            if (is_whole(p)) {
                op.finish(values[p], at, scaling);
                pack<Out, COUNT> results;
#pragma unroll
                for (int k = 0; k < COUNT; ++k) results.values[k] = static_cast<Out>(values[p][k]);
                if constexpr (ONCE) store_pack_once<COUNT>(address(p), results);
                else *address(p) = results.values[0];
            } else if constexpr (RAGGED) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) {
                    if (!has(p, k)) continue;
                    Value one[1] = {values[p][k]};
                    op.finish(one, at + k, scaling);
                    address(p)[k] = static_cast<Out>(one[0]);
                }
            }
        }
    }
};

/// The state of a row from those of its threads: GROUP lanes of a warp, or the BLOCK threads of each block of a
/// cluster.
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

/// Blocks that a multiprocessor should hold, which bounds a thread's registers: to 64, where the fastest are; to 32
/// where nothing but a row's one result is written, the more reads being in flight.
template <typename Op, int BLOCK, int VALUES>
__host__ __device__ constexpr int resident_blocks() {
    return (Op::PER_ROW && VALUES * sizeof(typename Op::value) <= 64 && sizeof(typename Op::value) == 4 ? 2048 : 1024)
           / BLOCK;
}

/// How rows lie to packs: a row is whole packs; begins and ends inside of some; or comes by shared memory.
enum class ends { whole, ragged, staged };

/// from[0 … count) to `to`, both aligned to 16 bytes, by the BLOCK threads of a block.
template <int BLOCK, typename T>
__device__ void move_span(const T* from, T* to, int count) {
    const int words = count * static_cast<int>(sizeof(T)) / 16, moved = words * (16 / static_cast<int>(sizeof(T)));
#pragma unroll 4
    for (int i = threadIdx.x; i < words; i += BLOCK)
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    for (int i = moved + threadIdx.x; i < count; i += BLOCK) to[i] = from[i];
}

/// `for_each_row` of short rows that lie unaligned: they come and go by shared memory, 16 bytes a thread. A row has at most
/// GROUP · PACKS elements; x and out are aligned to 16 bytes.
template <int GROUP, int BLOCK, int PACKS, typename T, typename Out, typename Op>
__device__ void for_each_short_row(const T* x, Out* out, long long rows, int length, const Op& op) {
    constexpr int ROWS = BLOCK / GROUP;
    static_assert(ROWS % 16 == 0, "the rows of a block begin aligned");
    __shared__ alignas(16) unsigned char bytes[BLOCK * PACKS * (sizeof(T) < sizeof(Out) ? sizeof(Out) : sizeof(T))];
    T* const elements = reinterpret_cast<T*>(bytes);
    Out* const results = reinterpret_cast<Out*>(bytes);
    const long long first = static_cast<long long>(blockIdx.x) * ROWS;
    const int here = static_cast<int>(min(rows - first, static_cast<long long>(ROWS)));
    const int row = threadIdx.x / GROUP, lane = threadIdx.x % GROUP, place = row * length + lane;
    const bool exists = row < here;

    move_span<BLOCK>(x + first * length, elements, here * length);
    __syncthreads();
    row_values<typename Op::value, GROUP, PACKS, 1, false> part(lane, exists ? length : 0);
    part.template load<false>([=](int p) { return elements + place + p * GROUP; }, Op::PAD);
    const typename Op::state own = part.summarise(op);
    const typename Op::state all = row_state<GROUP, BLOCK>(op, own);
    if constexpr (Op::PER_ROW) {
        if (exists && lane == 0) out[first + row] = static_cast<Out>(op.total(all));
    } else {
        __syncthreads();
        part.template store<Out, false>([=](int p) { return results + place + p * GROUP; }, op, own, all);
        __syncthreads();
        move_span<BLOCK>(results, out + first * length, here * length);
    }
}

/// out[row] = the results of x[row], for `rows` rows of `length` neighbouring elements, each read once and written
/// once.
///
/// GROUP threads a row, of BLOCK a block; where GROUP > BLOCK, a cluster of GROUP / BLOCK blocks. x and out are aligned
/// to COUNT elements. A row has at most GROUP · PACKS packs of COUNT elements, of which COUNT divides `length` unless ENDS
/// says otherwise.
template <int GROUP, int BLOCK, int PACKS, int COUNT, ends ENDS, typename T, typename Out, typename Op>
__device__ void for_each_row(const T* x, Out* out, long long rows, int length, const Op& op) {
    if constexpr (ENDS == ends::staged) {
        for_each_short_row<GROUP, BLOCK, PACKS>(x, out, rows, length, op);
        return;
    }
    constexpr bool RAGGED = ENDS == ends::ragged;
    static_assert(GROUP <= 32 || GROUP % BLOCK == 0, "a group is lanes of one warp, or whole blocks");
    if constexpr (GROUP > BLOCK) cluster_arrive();
    const long long thread = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
    const long long row = thread / GROUP;
    const int lane = static_cast<int>(thread % GROUP);
    const bool exists = row < rows;  // groups past the end have no row, but shuffle with the others of their warp
    const int first = lane * COUNT - (RAGGED ? static_cast<int>(row * length % COUNT) : 0);

    row_values<typename Op::value, GROUP, PACKS, COUNT, RAGGED> part(first, exists ? length : 0);
    const T* const source = x + (row * length + first);
    part.template load<true>([source](int p) { return source + p * (GROUP * COUNT); }, Op::PAD);
    const typename Op::state own = part.summarise(op);
    const typename Op::state all = row_state<GROUP, BLOCK>(op, own);
    if constexpr (Op::PER_ROW) {
        if (exists && lane == 0) out[row] = static_cast<Out>(op.total(all));
    } else {
        Out* const target = out + (row * length + first);
        part.template store<Out>([target](int p) { return target + p * (GROUP * COUNT); }, op, own, all);
    }
}

}  // namespace cudakit
