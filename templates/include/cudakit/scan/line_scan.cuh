// A scan of one long line by blocks that stay: what a line's elements are, and where results go, `Lines` knows:
//   Rule                                    what is combined, and how (<cudakit/scan/result.cuh>)
//   VEC, EACH                               neighbours that a lane scans, and that it reads at once to combine them
//   STAGE_BYTES<TILE>                       of a tile's elements in shared memory
//   IS_READ_AGAIN                           whether results are made of the elements too
//   shift()                                 elements by which tiles begin early, so that they begin at 16 bytes
//   load<TILE>(stage, part, full)           a tile's elements into shared memory, by one warp; the bytes that come by
//                                           bulk copies; fill<SPAN>(stage, part): where the line does not reach
//   read<TILE>(item, stage, part, from)     neighbours as items
//   store<TILE>(…)                          results of a row
#pragma once

#include <cudakit/lookback.cuh>
#include <cudakit/mbarrier.cuh>
#include <cudakit/scan/scanning.cuh>

namespace cudakit {

/// The part of a tile that a line covers: elements first + i, begin ≤ i < end. Tiles start at 16 bytes.
struct line_cover {
    long long first;
    int begin, end;
};

/// shared[i] = global[i · step], begin ≤ i < end, by one warp; returns the bytes that come by a bulk copy.
template <typename T>
__device__ unsigned int load_span(
    T* shared, line_of<const T> global, long long first, int begin, int end, mbarrier& full) {
    const T* const source = global.data + first * global.step;
    const auto offset = [&](const void* at) { return reinterpret_cast<unsigned long long>(at) % 16; };
    int from = end, to = end;  // the middle, in whole 16 bytes
    if (16 % sizeof(T) == 0 && global.step == 1 && (detail::shared_address(shared) - offset(source)) % 16 == 0) {
        from = begin + (16 - offset(source + begin)) % 16 / sizeof(T);
        to = end - offset(source + end) / sizeof(T);
        if (from >= to) from = to = end;
    }
    const unsigned int bytes = (to - from) * sizeof(T);
    if (bytes) bulk_load(shared + from, source + from, bytes, full);
#pragma unroll 16
    for (int i = begin + threadIdx.x % 32; i < from; i += 32) shared[i] = source[i * global.step];
    for (int i = to + threadIdx.x % 32; i < end; i += 32) shared[i] = source[i * global.step];
    return bytes;
}

// The results of a line of n elements; status as <cudakit/lookback.cuh> wants it.
//
// Threads: a block stays and does tiles blockIdx.x, + gridDim.x, …, through a ring of `stages` tiles in shared memory,
//   each role a loop of its own over the block's tiles: warp 0 loads; REDUCERS warps combine each segment (a scanner's
//   part of a tile) as soon as it is there, and publish the tile's; a warp gathers what comes before, from all blocks;
//   SCANNERS warps each scan their segment in registers and store it. A row is what a warp loads at once, VEC
//   neighbours a lane. So loads run ahead of the look-back by the depth of the ring, and no warp ever waits for its
//   own block's other warps.
// Memory: each element is read and each result written once: loads by bulk copies, stores of 16 bytes a lane. From
//   shared memory each element is read twice, without conflicts.
// Preconditions: results go where their own element was, or to memory that is not read.
// Launch: THREADS threads a block, all blocks at once (cooperative, or no more than one tile a block); stages ·
//   stage_bytes of dynamic shared memory.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
template <typename Lines, int ROWS, int SCANNERS, int REDUCERS>
struct line_scan {
    using Rule = typename Lines::Rule;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    static constexpr int VEC = Lines::VEC;
    static constexpr int ROW = 32 * VEC, SEGMENT = ROWS * ROW, TILE = SCANNERS * SEGMENT;
    static constexpr int THREADS = 32 * (2 + REDUCERS + SCANNERS);
    static constexpr int STAGE_BYTES = Lines::template STAGE_BYTES<TILE>;
    static constexpr int MOST_STAGES = 8;
    // Segments of a reducer, and the neighbours that it loads at once.
    static constexpr int SHARE = SCANNERS / REDUCERS;
    static constexpr int EACH = Lines::EACH < ROWS * VEC ? Lines::EACH : ROWS * VEC;
    static_assert(SCANNERS % REDUCERS == 0, "each reducer has as many segments");
    static_assert(SCANNERS <= 32, "a warp combines the segments of a tile, one a lane");

    struct storage {
        mbarrier full[MOST_STAGES], reduced[MOST_STAGES], ready[MOST_STAGES], empty[MOST_STAGES];
        alignas(16) unsigned char aggregates[MOST_STAGES][SCANNERS][sizeof(Item)];
        alignas(16) unsigned char prefixes[MOST_STAGES][SCANNERS][sizeof(Item)];
    };

    Lines lines;
    unsigned char* status;
    long long offset;  // tiles in `status` of other lines
    long long n;
    int stages;
    unsigned char* ring;
    storage& shared;

    // Where a loop over the block's tiles stands in the ring, and the parity of the barriers' phase there.
    struct position {
        long long tile = blockIdx.x;
        int stage = 0;
        unsigned int parity = 0;
        __device__ void advance(int stages) {
            tile += gridDim.x;
            if (++stage == stages) stage = 0, parity ^= 1;
        }
    };

    __device__ long long tiles() const { return (n + lines.shift() + TILE - 1) / TILE; }
    __device__ line_cover covered(long long tile) const {
        const long long first = tile * TILE - lines.shift();
        return {first, first < 0 ? static_cast<int>(-first) : 0, n - first < TILE ? static_cast<int>(n - first) : TILE};
    }
    __device__ unsigned char* stage_at(int stage) const { return ring + stage * STAGE_BYTES; }

    __device__ void run() const {
        if (threadIdx.x < stages) {
            shared.full[threadIdx.x].init(1);
            shared.reduced[threadIdx.x].init(1);
            shared.ready[threadIdx.x].init(1);
            shared.empty[threadIdx.x].init(SCANNERS);
        }
        __syncthreads();
        const int warp = threadIdx.x / 32;
        if (warp == 0) load();
        else if (warp == 1) look_back();
        else if (warp < 2 + REDUCERS) reduce(warp - 2);
        else scan(warp - 2 - REDUCERS);
    }

    __device__ void load() const {
        const long long end = tiles();
        for (position at; at.tile < end; at.advance(stages)) {
            shared.empty[at.stage].wait(at.parity ^ 1);  // at once the first time: the phase before the first has ended
            const line_cover part = covered(at.tile);
            const unsigned int bytes = lines.template load<TILE>(stage_at(at.stage), part, shared.full[at.stage]);
            if (part.begin > 0 || part.end < TILE) lines.template fill<SHARE * SEGMENT>(stage_at(at.stage), part);
            __syncwarp();
            if (threadIdx.x == 0) shared.full[at.stage].arrive_expecting(bytes);
        }
    }

    __device__ void reduce(int own) const {
        const int lane = threadIdx.x % 32;
        const long long end = tiles();
        const Combine combine;
        lookback<Item, Combine> look(status, offset);
        for (position at; at.tile < end; at.advance(stages)) {
            shared.full[at.stage].wait(at.parity);
            const line_cover part = covered(at.tile);
            Item of_lane = Combine::template identity<Item>();
            if (own * SHARE * SEGMENT < part.end) of_lane = reduced_share(at.stage, part, own);
            if (lane < SHARE) *reinterpret_cast<Item*>(shared.aggregates[at.stage][own * SHARE + lane]) = of_lane;
            asm volatile("bar.sync 1, %0;" ::"n"(32 * REDUCERS) : "memory");
            if (own == 0) {
                const Item total = warp_reduce(aggregate(at.stage), combine);
                if (lane == 0) {
                    look.publish(at.tile, total);
                    shared.reduced[at.stage].arrive();
                }
            }
        }
    }

    /// Lane k has what SHARE · own + k, of the tile's segments, comes to.
    __device__ Item reduced_share(int stage, const line_cover& part, int own) const {
        const int lane = threadIdx.x % 32;
        const Combine combine;
        Item sum[SHARE];  // side by side, so that the latencies of their shuffles overlap
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
#pragma unroll
            for (int i = 0; i < SEGMENT; i += 32 * EACH) {
                Item item[EACH];
                lines.template read<TILE>(item, stage_at(stage), part, (own * SHARE + k) * SEGMENT + i + lane * EACH);
                Item in_row = item[0];
#pragma unroll
                for (int v = 1; v < EACH; ++v) in_row = combine(in_row, item[v]);
                if constexpr (!Rule::COMMUTES) {
                    in_row = whole_row(in_row);
                    sum[k] = i ? combine(sum[k], in_row) : in_row;
                } else {
                    sum[k] = i ? next_row(sum[k], in_row) : next_row(Combine::template identity<Item>(), in_row);
                }
            }
        }
        Item of_lane = sum[0];
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if constexpr (!Rule::COMMUTES) {
            } else if constexpr (Rule::IS_KEYED) {
                sum[k].value = warp_reduce(sum[k].value, typename Rule::Operator());
            } else {
                sum[k] = warp_reduce(sum[k], combine);
            }
            if (lane == k) of_lane = sum[k];
        }
        return of_lane;
    }

    /// This lane's part of what all rows so far come to. KEYED: of what comes after the last head, which a vote finds;
    /// the parts' order does not matter then, of operators that commute.
    static __device__ Item next_row(Item sum, Item in_row) {
        if constexpr (Rule::IS_KEYED) {
            using Op = typename Rule::Operator;
            const unsigned int heads = __ballot_sync(FULL_WARP, in_row.head);
            if (heads == 0) return {Op()(sum.value, in_row.value), sum.head};
            const bool is_after = threadIdx.x % 32 >= 31 - __clz(heads);
            return {is_after ? in_row.value : Op::template identity<decltype(sum.value)>(), true};
        } else {
            return Combine()(sum, in_row);
        }
    }

    /// What a row's lanes come to, in their order. KEYED: of those from the last head on, which a vote finds.
    static __device__ Item whole_row(const Item& in_row) {
        if constexpr (Rule::IS_KEYED) {
            using Op = typename Rule::Operator;
            const unsigned int heads = __ballot_sync(FULL_WARP, in_row.head);
            auto value = in_row.value;
            if (heads && threadIdx.x % 32 < 31 - __clz(heads)) value = Op::template identity<decltype(value)>();
            return {warp_reduce(value, Op()), heads != 0};
        } else {
            return warp_reduce(in_row, Combine());
        }
    }

    // This lane's segment's.
    __device__ Item aggregate(int stage) const {
        const int lane = threadIdx.x % 32;
        if (lane >= SCANNERS) return Combine::template identity<Item>();
        return *reinterpret_cast<Item*>(shared.aggregates[stage][lane]);
    }

    __device__ void look_back() const {
        const int lane = threadIdx.x % 32;
        const long long end = tiles();
        const Combine combine;
        lookback<Item, Combine> look(status, offset);
        for (position at; at.tile < end; at.advance(stages)) {
            const Item before = look.prefix(at.tile);
            shared.reduced[at.stage].wait(at.parity);
            const Item up_to = shuffle_up(warp_inclusive_scan(aggregate(at.stage), combine, lane), 1);
            const Item of_lane = lane ? combine(before, up_to) : before;
            if (lane < SCANNERS) *reinterpret_cast<Item*>(shared.prefixes[at.stage][lane]) = of_lane;
            __syncwarp();
            if (lane == 0) shared.ready[at.stage].arrive();
        }
        if (lane == 0) look.finish();
    }

    __device__ void scan(int own) const {
        const int lane = threadIdx.x % 32;
        const long long end = tiles();
        const Combine combine;
        const auto target = lines.target();
        for (position at; at.tile < end; at.advance(stages)) {
            shared.full[at.stage].wait(at.parity);  // what bulk copies wrote is visible to those who wait for them
            shared.ready[at.stage].wait(at.parity);
            const line_cover part = covered(at.tile);
            Item item[ROWS][VEC];
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                lines.template read<TILE>(item[row], stage_at(at.stage), part, own * SEGMENT + row * ROW + lane * VEC);
            Item before = *reinterpret_cast<Item*>(shared.prefixes[at.stage][own]);
            if constexpr (!Lines::IS_READ_AGAIN) {
                __syncwarp();
                if (lane == 0) shared.empty[at.stage].arrive();
                if (own * SEGMENT >= part.end) continue;
            }

            Item up_to[ROWS];
            scan_lanes<Combine, 32>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const int from = own * SEGMENT + row * ROW + lane * VEC;
                lines.template store<TILE>(
                    target, item[row], up_to[row], before, lane, stage_at(at.stage), part, from, n);
            }
            if constexpr (Lines::IS_READ_AGAIN) {
                __syncwarp();
                if (lane == 0) shared.empty[at.stage].arrive();
            }
        }
    }
};

}  // namespace cudakit
