#include <cudakit/lookback.cuh>
#include <cudakit/mbarrier.cuh>
#include <cudakit/scanning.cuh>

/// shared[i] = global[i · step], begin ≤ i < end, by one warp; returns the bytes that come by a bulk copy.
template <typename T>
__device__ unsigned int load_span(
    T* shared, cudakit::line_of<const T> global, long long first, int begin, int end, cudakit::mbarrier& full) {
    const T* const source = global.data + first * global.step;
    const auto offset = [&](const void* at) { return reinterpret_cast<unsigned long long>(at) % 16; };
    int from = end, to = end;  // the middle, in whole 16 bytes
    if (global.step == 1 && (cudakit::detail::shared_address(shared) - offset(source)) % 16 == 0) {
        from = begin + (16 - offset(source + begin)) % 16 / sizeof(T);
        to = end - offset(source + end) / sizeof(T);
        if (from >= to) from = to = end;
    }
    const unsigned int bytes = (to - from) * sizeof(T);
    if (bytes) cudakit::bulk_load(shared + from, source + from, bytes, full);
#pragma unroll 16
    for (int i = begin + threadIdx.x % 32; i < from; i += 32) shared[i] = source[i * global.step];
    for (int i = to + threadIdx.x % 32; i < end; i += 32) shared[i] = source[i * global.step];
    return bytes;
}

// out[i] = x[0] ∘ … ∘ x[i] (EXCLUSIVE: … ∘ x[i-1]) along one long line; KEYED: back to where keys[i] last differed from
// keys[i-1].
//
// Shapes: x, out (n), keys (n) where KEYED; status as <cudakit/lookback.cuh> wants it.
// Threads: a block stays and does tiles blockIdx.x, + gridDim.x, …, through a ring of `stages` tiles in shared memory,
//   each role a loop of its own over the block's tiles: warp 0 loads; REDUCERS warps combine each segment (a scanner's
//   part of a tile) as soon as it is there, and publish the tile's; a warp gathers what comes before, from all blocks;
//   SCANNERS warps each scan their segment in registers and store it. A row is what a warp loads at once, VEC
//   neighbours a lane. So loads run ahead of the look-back by the depth of the ring, and no warp ever waits for its
//   own block's other warps.
// Memory: sizeof(T) + sizeof(Out) bytes an element: loads by bulk copies, stores of 16 bytes a lane. From shared memory
//   each element is read twice, without conflicts.
// Preconditions: out is x itself or does not overlap it.
// Launch: THREADS threads a block, all blocks at once (cooperative, or no more than one tile a block); stages ·
//   stage_bytes of dynamic shared memory.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
template <
    typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED, bool EXCLUSIVE, int ROWS, int SCANNERS,
    int REDUCERS>
struct line_scan {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    static constexpr int VEC = cudakit::LANE_NEIGHBOURS<T, Out>;
    static constexpr int ROW = 32 * VEC, SEGMENT = ROWS * ROW, TILE = SCANNERS * SEGMENT;
    static constexpr int THREADS = 32 * (2 + REDUCERS + SCANNERS);
    static constexpr int X_BYTES = TILE * sizeof(T), STAGE_BYTES = X_BYTES + (KEYED ? TILE * sizeof(K) + 16 : 0);
    static constexpr int MOST_STAGES = 8;
    static constexpr int SHARE = SCANNERS / REDUCERS;  // segments of a reducer, and the neighbours that it loads at once
    static constexpr int EACH = 16 / sizeof(T) < ROWS * VEC ? 16 / sizeof(T) : ROWS * VEC;
    static_assert(SCANNERS % REDUCERS == 0, "each reducer has as many segments");
    static_assert(SCANNERS <= 32, "a warp combines the segments of a tile, one a lane");

    struct storage {
        cudakit::mbarrier full[MOST_STAGES], reduced[MOST_STAGES], ready[MOST_STAGES], empty[MOST_STAGES];
        alignas(16) unsigned char aggregates[MOST_STAGES][SCANNERS][sizeof(Item)];
        alignas(16) unsigned char prefixes[MOST_STAGES][SCANNERS][sizeof(Item)];
    };

    cudakit::line_of<const T> x;
    cudakit::line_of<const K> keys;
    cudakit::line_of<Out> out;
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
    // The part of a tile that the line covers: elements first + i, begin ≤ i < end. Tiles start at 16 bytes of x.
    struct cover {
        long long first;
        int begin, end;
    };

    __device__ int shift() const { return reinterpret_cast<unsigned long long>(x.data) % 16 / sizeof(T); }
    __device__ long long tiles() const { return (n + shift() + TILE - 1) / TILE; }
    __device__ cover covered(long long tile) const {
        const long long first = tile * TILE - shift();
        return {first, first < 0 ? static_cast<int>(-first) : 0, n - first < TILE ? static_cast<int>(n - first) : TILE};
    }
    __device__ T* x_in(int stage) const { return reinterpret_cast<T*>(ring + stage * STAGE_BYTES); }
    __device__ K* keys_in(int stage) const { return reinterpret_cast<K*>(ring + stage * STAGE_BYTES + X_BYTES + 16); }

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
            const cover part = covered(at.tile);
            unsigned int bytes = load_span(x_in(at.stage), x, part.first, part.begin, part.end, shared.full[at.stage]);
            if constexpr (KEYED) {
                const int begin = part.begin - (part.first + part.begin > 0);  // with the key before, to compare to
                bytes += load_span(keys_in(at.stage), keys, part.first, begin, part.end, shared.full[at.stage]);
            }
            if (part.begin > 0 || part.end < TILE) fill(x_in(at.stage), part);
            __syncwarp();
            if (threadIdx.x == 0) shared.full[at.stage].arrive_expecting(bytes);
        }
    }

    /// The identity where the line does not reach, as far as others read.
    __device__ void fill(T* stage, const cover& part) const {
        T nothing;
        if constexpr (cudakit::detail::is_complex<Acc>(0) && !cudakit::detail::is_complex<T>(0))
            nothing = static_cast<T>(Op::template identity<Acc>().real());
        else
            nothing = static_cast<T>(Op::template identity<Acc>());
        const int end = (part.end + SHARE * SEGMENT - 1) / (SHARE * SEGMENT) * (SHARE * SEGMENT);
        for (int i = threadIdx.x; i < part.begin; i += 32) stage[i] = nothing;
#pragma unroll 4
        for (int i = part.end + threadIdx.x; i < end; i += 32) stage[i] = nothing;
        cudakit::before_bulk_loads();
    }

    /// Neighbours of a stage.
    template <int COUNT>
    __device__ void read(Item (&item)[COUNT], int stage, const cover& part, int from) const {
        const auto values = cudakit::load_pack<COUNT>(x_in(stage) + from);
#pragma unroll
        for (int v = 0; v < COUNT; ++v) {
            bool head = false;
            if constexpr (KEYED) {
                const K* const key = keys_in(stage) + from + v;
                head = part.first + from + v == 0 || key[0] != key[-1];
            }
            item[v] = Rule::item(values.values[v], head);
        }
    }

    __device__ void reduce(int own) const {
        const int lane = threadIdx.x % 32;
        const long long end = tiles();
        const Combine combine;
        cudakit::lookback<Item, Combine> look(status, offset);
        for (position at; at.tile < end; at.advance(stages)) {
            shared.full[at.stage].wait(at.parity);
            const cover part = covered(at.tile);
            Item of_lane = Combine::template identity<Item>();
            if (own * SHARE * SEGMENT < part.end) of_lane = reduced_share(at.stage, part, own);
            if (lane < SHARE) *reinterpret_cast<Item*>(shared.aggregates[at.stage][own * SHARE + lane]) = of_lane;
            asm volatile("bar.sync 1, %0;" ::"n"(32 * REDUCERS) : "memory");
            if (own == 0) {
                const Item total = cudakit::warp_reduce(aggregate(at.stage), combine);
                if (lane == 0) {
                    look.publish(at.tile, total);
                    shared.reduced[at.stage].arrive();
                }
            }
        }
    }

    /// Lane k has what SHARE · own + k, of the tile's segments, comes to.
    __device__ Item reduced_share(int stage, const cover& part, int own) const {
        const int lane = threadIdx.x % 32;
        const Combine combine;
        Item sum[SHARE];  // side by side, so that the latencies of their shuffles overlap
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
#pragma unroll
            for (int i = 0; i < SEGMENT; i += 32 * EACH) {
                Item item[EACH];
                read(item, stage, part, (own * SHARE + k) * SEGMENT + i + lane * EACH);
                Item in_row = item[0];
#pragma unroll
                for (int v = 1; v < EACH; ++v) in_row = combine(in_row, item[v]);
                sum[k] = i ? next_row(sum[k], in_row) : next_row(Combine::template identity<Item>(), in_row);
            }
        }
        Item of_lane = sum[0];
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if constexpr (KEYED) sum[k].value = cudakit::warp_reduce(sum[k].value, Op());
            else sum[k] = cudakit::warp_reduce(sum[k], combine);
            if (lane == k) of_lane = sum[k];
        }
        return of_lane;
    }

    /// This lane's part of what all rows so far come to. KEYED: of what comes after the last head, which a vote finds;
    /// the parts' order does not matter then, as all our operators commute.
    static __device__ Item next_row(Item sum, Item in_row) {
        if constexpr (KEYED) {
            const unsigned int heads = __ballot_sync(cudakit::FULL_WARP, in_row.head);
            if (heads == 0) return {Op()(sum.value, in_row.value), sum.head};
            return {threadIdx.x % 32 >= 31 - __clz(heads) ? in_row.value : Op::template identity<Acc>(), true};
        } else {
            return Combine()(sum, in_row);
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
        cudakit::lookback<Item, Combine> look(status, offset);
        for (position at; at.tile < end; at.advance(stages)) {
            const Item before = look.prefix(at.tile);
            shared.reduced[at.stage].wait(at.parity);
            const Item up_to = cudakit::shuffle_up(cudakit::warp_inclusive_scan(aggregate(at.stage), combine, lane), 1);
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
        const bool packed = out.step == 1 && cudakit::neighbours<Out, VEC>::are_aligned(out.data - shift());
        for (position at; at.tile < end; at.advance(stages)) {
            shared.full[at.stage].wait(at.parity);  // what bulk copies wrote is visible to those who wait for them
            shared.ready[at.stage].wait(at.parity);
            const cover part = covered(at.tile);
            Item item[ROWS][VEC];
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                read(item[row], at.stage, part, own * SEGMENT + row * ROW + lane * VEC);
            Item before = *reinterpret_cast<Item*>(shared.prefixes[at.stage][own]);
            __syncwarp();
            if (lane == 0) shared.empty[at.stage].arrive();
            if (own * SEGMENT >= part.end) continue;

            Item up_to[ROWS];
            cudakit::scan_lanes<Combine, 32>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = cudakit::results<Rule, Out, 32>(item[row], up_to[row], before, lane);
                const int from = own * SEGMENT + row * ROW + lane * VEC;
                if (packed && from >= part.begin && from + VEC <= part.end) {
                    result.store(out.data + part.first + from);
                } else {
#pragma unroll
                    for (int v = 0; v < VEC; ++v)
                        if (from + v >= part.begin && from + v < part.end)
                            out.data[(part.first + from + v) * out.step] = result.values[v];
                }
            }
        }
    }
};

// As `line_scan`, of all elements of C-contiguous arrays.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED = false, bool EXCLUSIVE = false,
    int ROWS = 4, int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1)
    line(const T* x, const K* keys, Out* out, unsigned char* status, long long n, int stages) {
    using Scan = line_scan<T, K, Out, Acc, Op, KEYED, EXCLUSIVE, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    Scan{{x, 1}, {keys, 1}, {out, 1}, status, 0, n, stages, ring, shared}.run();
}

// As `line_scan`, of few long lines of views: gridDim.x blocks a line, and blockIdx.y is its number.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED = false,
    bool EXCLUSIVE = false, int ROWS = 4, int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1) lines(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int stages) {
    using Scan = line_scan<T, K, Out, Acc, Op, KEYED, EXCLUSIVE, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    const cudakit::lines_along<const T, RANK, AXIS> of_x{x};
    const cudakit::lines_along<const K, RANK, AXIS> of_keys{keys};
    const cudakit::lines_along<Out, RANK, AXIS> of_out{out};
    const long long line = blockIdx.y, n = of_x.length();
    const long long before = line * (n / Scan::TILE + 2);  // tiles, one more where a line does not start at 16 bytes
    Scan{of_x[line], of_keys[line], of_out[line], status, before, n, stages, ring, shared}.run();
}
