#include <cudakit/lookback.cuh>
#include <cudakit/mbarrier.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/strided.cuh>

/// plus, for inclusive scans: they start from their first element, so that -0 stays -0.
struct running_plus : cudakit::plus {
    template <typename A>
    static __device__ constexpr A identity() {
        if constexpr (cudakit::detail::is_complex<A>(0)) return A(-0.0, -0.0);
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
    template <typename T>
    static __device__ Item item(T x, bool head) {
        return {static_cast<Acc>(static_cast<Out>(x)), head};
    }
    static __device__ Out result(Item before, Item with, Item own) {
        if (EXCLUSIVE && own.head) return static_cast<Out>(Op::template identity<Acc>());
        return static_cast<Out>(EXCLUSIVE ? before.value : with.value);
    }
};

/// up_to[row] = item[row][0] ∘ … of this lane and of the lanes before it among WIDTH.
template <typename Combine, int WIDTH, int ROWS, int VEC, typename Item>
__device__ void scan_lanes(const Item (&item)[ROWS][VEC], Item (&up_to)[ROWS], int lane) {
    const Combine combine;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        up_to[row] = item[row][0];
#pragma unroll
        for (int v = 1; v < VEC; ++v) up_to[row] = combine(up_to[row], item[row][v]);
        up_to[row] = cudakit::warp_inclusive_scan<WIDTH>(up_to[row], combine, lane);
    }
}

/// The results of a row, of which scan_lanes made `up_to`; `before`, of all before the row, moves past it.
template <typename Rule, typename Out, int WIDTH, int VEC>
__device__ cudakit::pack<Out, VEC> results(
    const typename Rule::Item (&item)[VEC], typename Rule::Item up_to, typename Rule::Item& before, int lane) {
    const typename Rule::Combine combine;
    const auto lanes_before = cudakit::shuffle_up(up_to, 1, WIDTH);
    auto running = lane ? combine(before, lanes_before) : before;
    before = combine(before, cudakit::shuffle(up_to, WIDTH - 1, WIDTH));
    cudakit::pack<Out, VEC> result;
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

/// shared[i] = global[i · step], begin ≤ i < end, by one warp; returns the bytes that come by a bulk copy.
template <typename T>
__device__ unsigned int load_span(T* shared, line_of<const T> global, long long first, int begin, int end, cudakit::mbarrier& full) {
    const T* const source = global.data + first * global.step;
    const auto offset = [&](const void* at) { return reinterpret_cast<unsigned long long>(at) % 16; };
    int from = end, to = end;  // the middle, in whole 16 bytes
    if (global.step == 1 && (cudakit::detail::shared_address(shared) - reinterpret_cast<unsigned long long>(source)) % 16 == 0) {
        from = begin + (16 - offset(source + begin)) % 16 / sizeof(T);
        to = end - offset(source + end) / sizeof(T);
        if (from >= to) from = to = end;
    }
    const unsigned int bytes = (to - from) * sizeof(T);
    if (bytes) cudakit::bulk_load(shared + from, source + from, bytes, full);
#pragma unroll 8
    for (int i = begin + threadIdx.x % 32; i < from; i += 32) shared[i] = source[i * global.step];
    for (int i = to + threadIdx.x % 32; i < end; i += 32) shared[i] = source[i * global.step];
    return bytes;
}

// out[i] = x[0] ∘ … ∘ x[i] (EXCLUSIVE: … ∘ x[i-1]) along one long line; KEYED: back to where keys[i] last differed from keys[i-1].
//
// Shapes: x, out (n), keys (n) where KEYED; status as <cudakit/lookback.cuh> wants it.
// Threads: a block stays and does tiles blockIdx.x, + gridDim.x, …, through a ring of `stages` tiles in shared memory, each role
//   a loop of its own over the block's tiles: warp 0 loads; REDUCERS warps combine each segment (a scanner's part of a tile)
//   as soon as it is there, and publish the tile's; a warp gathers what comes before, from all blocks; SCANNERS warps each
//   scan their segment in registers and store it. A row is what a warp loads at once, VEC neighbours a lane.
//   So loads run ahead of the look-back by the depth of the ring, and no warp ever waits for its own block's other warps.
// Memory: sizeof(T) + sizeof(Out) bytes an element: loads by bulk copies, stores of 16 bytes a lane. From shared memory each
//   element is read twice, without conflicts.
// Preconditions: out is x itself or does not overlap it.
// Launch: THREADS threads a block, all blocks at once (cooperative, or no more than one tile a block); stages · stage_bytes of
//   dynamic shared memory.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
template <typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED, bool EXCLUSIVE, int ROWS, int SCANNERS, int REDUCERS>
struct line_scan {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    static constexpr int VEC = 16 / (sizeof(T) > sizeof(Out) ? sizeof(T) : sizeof(Out));
    static constexpr int ROW = 32 * VEC, SEGMENT = ROWS * ROW, TILE = SCANNERS * SEGMENT;
    static constexpr int THREADS = 32 * (2 + REDUCERS + SCANNERS);
    static constexpr int X_BYTES = TILE * sizeof(T), STAGE_BYTES = X_BYTES + (KEYED ? TILE * sizeof(K) + 16 : 0);
    static constexpr int MOST_STAGES = 8;
    static constexpr int SHARE = SCANNERS / REDUCERS;                                            // segments of a reducer
    static constexpr int EACH = 16 / sizeof(T) < ROWS * VEC ? 16 / sizeof(T) : ROWS * VEC;  // neighbours that it loads at once
    static_assert(SCANNERS % REDUCERS == 0, "each reducer has as many segments");
    static_assert(SCANNERS <= 32, "a warp combines the segments of a tile, one a lane");

    struct storage {
        cudakit::mbarrier full[MOST_STAGES], reduced[MOST_STAGES], ready[MOST_STAGES], empty[MOST_STAGES];
        alignas(16) unsigned char aggregates[MOST_STAGES][SCANNERS][sizeof(Item)], prefixes[MOST_STAGES][SCANNERS][sizeof(Item)];
    };

    line_of<const T> x;
    line_of<const K> keys;
    line_of<Out> out;
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
                const int before = part.first + part.begin > 0;  // a segment begins where a key differs from the one before
                bytes += load_span(keys_in(at.stage), keys, part.first, part.begin - before, part.end, shared.full[at.stage]);
            }
            __syncwarp();
            if (threadIdx.x == 0) shared.full[at.stage].arrive_expecting(bytes);
        }
    }

    /// Neighbours of a stage, those that the line does not cover being the identity.
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
            if (part.begin != 0 || part.end != TILE)
                if (from + v < part.begin || from + v >= part.end) item[v] = Combine::template identity<Item>();
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
            Item sum[SHARE];  // side by side, so that the latencies of their shuffles overlap
#pragma unroll
            for (int k = 0; k < SHARE; ++k) {
#pragma unroll
                for (int i = 0; i < SEGMENT; i += 32 * EACH) {
                    Item item[EACH];
                    read(item, at.stage, part, (own * SHARE + k) * SEGMENT + i + lane * EACH);
                    Item in_row = item[0];
#pragma unroll
                    for (int v = 1; v < EACH; ++v) in_row = combine(in_row, item[v]);
                    if constexpr (KEYED) in_row = cudakit::warp_reduce(in_row, combine);  // their order matters
                    sum[k] = i ? combine(sum[k], in_row) : in_row;
                }
            }
            Item of_lane;
#pragma unroll
            for (int k = 0; k < SHARE; ++k) {
                if constexpr (!KEYED) sum[k] = cudakit::warp_reduce(sum[k], combine);
                if (lane == k) of_lane = sum[k];
            }
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

    // This lane's segment's.
    __device__ Item aggregate(int stage) const {
        const int lane = threadIdx.x % 32;
        return lane < SCANNERS ? *reinterpret_cast<Item*>(shared.aggregates[stage][lane]) : Combine::template identity<Item>();
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
            if (lane < SCANNERS) *reinterpret_cast<Item*>(shared.prefixes[at.stage][lane]) = lane ? combine(before, up_to) : before;
            __syncwarp();
            if (lane == 0) shared.ready[at.stage].arrive();
        }
        if (lane == 0) look.finish();
    }

    __device__ void scan(int own) const {
        const int lane = threadIdx.x % 32;
        const long long end = tiles();
        const Combine combine;
        const bool packed = out.step == 1 && cudakit::is_aligned<cudakit::pack<Out, VEC>>(out.data - shift());
        for (position at; at.tile < end; at.advance(stages)) {
            shared.full[at.stage].wait(at.parity);  // what bulk copies wrote is visible to those who wait for them
            shared.ready[at.stage].wait(at.parity);
            const cover part = covered(at.tile);
            Item item[ROWS][VEC];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) read(item[row], at.stage, part, own * SEGMENT + row * ROW + lane * VEC);
            Item before = *reinterpret_cast<Item*>(shared.prefixes[at.stage][own]);
            __syncwarp();
            if (lane == 0) shared.empty[at.stage].arrive();

            Item up_to[ROWS];
            scan_lanes<Combine, 32>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = results<Rule, Out, 32>(item[row], up_to[row], before, lane);
                const int from = own * SEGMENT + row * ROW + lane * VEC;
                if (packed && from >= part.begin && from + VEC <= part.end) {
                    cudakit::store_pack(out.data + part.first + from, result);
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

/// line_scan of all elements of C-contiguous arrays.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED = false, bool EXCLUSIVE = false, int ROWS = 4,
    int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1)
    line(const T* x, const K* keys, Out* out, unsigned char* status, long long n, int stages) {
    using Scan = line_scan<T, K, Out, Acc, Op, KEYED, EXCLUSIVE, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    Scan{{x, 1}, {keys, 1}, {out, 1}, status, 0, n, stages, ring, shared}.run();
}

/// Lines along `axis` of a view: line number l is the l-th of the elements that the other axes count, in row-major order.
template <typename T, int RANK>
struct lines_along {
    const cudakit::strided<T, RANK>& view;
    int axis;

    __device__ long long count() const {
        long long product = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d)
            if (d != axis) product *= view.shape[d];
        return product;
    }
    __device__ line_of<T> operator[](long long line) const {
        unsigned long long rest = line;
        long long offset = 0;
#pragma unroll
        for (int d = RANK - 1; d >= 0; --d) {
            if (d == axis) continue;
            offset += static_cast<long long>(rest % view.shape[d]) * view.strides[d];
            rest /= view.shape[d];
        }
        return {view.data + offset, view.strides[axis]};
    }
    __device__ long long length() const { return view.shape[axis]; }
};

/// line_scan of few long lines of views: gridDim.x blocks a line, and blockIdx.y is its number.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED = false, bool EXCLUSIVE = false,
    int ROWS = 4, int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1) lines(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int axis, int stages) {
    using Scan = line_scan<T, K, Out, Acc, Op, KEYED, EXCLUSIVE, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const long long line = blockIdx.y, n = of_x.length();
    const long long before = line * (n / Scan::TILE + 2);  // tiles, one more where a line does not start at 16 bytes
    Scan{of_x[line], of_keys[line], of_out[line], status, before, n, stages, ring, shared}.run();
}

// out[…, i, …] = x[…, 0, …] ∘ … ∘ x[…, i, …] (EXCLUSIVE: … ∘ x[…, i-1, …]) along `axis`, for many lines; KEYED: back to where
// the keys last changed.
//
// Shapes: x, keys, out (of RANK dimensions).
// Threads: WARPS · WIDTH neighbours do a line, ROWS · VEC elements each at a time, then the next; what they combine goes on
//   in registers. A row is WIDTH · VEC elements, VEC neighbours a lane.
// Memory: sizeof(T) + sizeof(Out) bytes an element; 16 bytes a lane where lines lie so, else one element after the other.
// Preconditions: out is x itself or does not overlap it. WIDTH divides 32, and is 32 where WARPS > 1.
// Launch: one-dimensional, 256 threads a block; blocks stride over the lines.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED, bool EXCLUSIVE, int WIDTH, int WARPS,
    int ROWS>
__global__ void __launch_bounds__(256) rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out, int axis) {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = 16 / (sizeof(T) > sizeof(Out) ? sizeof(T) : sizeof(Out));
    constexpr int ROW = WIDTH * VEC, TILE = WARPS * ROWS * ROW, LINES = 256 / (WIDTH * WARPS);
    static_assert(WARPS == 1 || WIDTH * WARPS == 256, "a line's threads are part of a warp, or the block");
    __shared__ alignas(16) unsigned char totals[WARPS][sizeof(Item)];
    const auto total_of = [&](int warp) -> Item& { return *reinterpret_cast<Item*>(totals[warp]); };

    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const long long count = of_x.count(), n = of_x.length();
    const int lane = threadIdx.x % WIDTH, warp = WARPS > 1 ? threadIdx.x / 32 : 0;
    const Combine combine;
    for (long long first = static_cast<long long>(blockIdx.x) * LINES; first < count;
         first += static_cast<long long>(gridDim.x) * LINES) {
        const long long number = first + threadIdx.x / (WIDTH * WARPS);
        const bool here = number < count;  // all lanes shuffle; those past the last line read and write nothing
        const line_of<const T> from = of_x[here ? number : 0];
        const line_of<const K> key = of_keys[here ? number : 0];
        const line_of<Out> to = of_out[here ? number : 0];
        const bool packed_in = from.step == 1 && cudakit::is_aligned<cudakit::pack<T, VEC>>(from.data);
        const bool packed_out = to.step == 1 && cudakit::is_aligned<cudakit::pack<Out, VEC>>(to.data);
        Item before = Combine::template identity<Item>();
        for (long long start = 0; start < n; start += TILE) {
            const long long own = start + warp * ROWS * ROW + lane * VEC;
            Item item[ROWS][VEC], up_to[ROWS];
            cudakit::pack<T, VEC> values[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const long long i = own + row * ROW;
                if (here && packed_in && i + VEC <= n) {
                    values[row] = cudakit::load_pack<VEC>(from.data + i);
                } else {
#pragma unroll
                    for (int v = 0; v < VEC; ++v)
                        if (here && i + v < n) values[row].values[v] = from.data[(i + v) * from.step];
                }
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
#pragma unroll
                for (int v = 0; v < VEC; ++v) {
                    const long long i = own + row * ROW + v;
                    bool head = false;
                    if constexpr (KEYED)
                        head = here && i < n && (i == 0 || key.data[i * key.step] != key.data[(i - 1) * key.step]);
                    item[row][v] = here && i < n ? Rule::item(values[row].values[v], head) : Combine::template identity<Item>();
                }
            scan_lanes<Combine, WIDTH>(item, up_to, lane);
            if constexpr (WARPS > 1) {
                Item total = cudakit::shuffle(up_to[0], 31);
#pragma unroll
                for (int row = 1; row < ROWS; ++row) total = combine(total, cudakit::shuffle(up_to[row], 31));
                if (lane == 0) total_of(warp) = total;
                __syncthreads();
                for (int other = 0; other < warp; ++other) before = combine(before, total_of(other));
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = results<Rule, Out, WIDTH>(item[row], up_to[row], before, lane);
                const long long i = own + row * ROW;
                if (here && packed_out && i + VEC <= n) {
                    cudakit::store_pack(to.data + i, result);
                } else {
#pragma unroll
                    for (int v = 0; v < VEC; ++v)
                        if (here && i + v < n) to.data[(i + v) * to.step] = result.values[v];
                }
            }
            if constexpr (WARPS > 1) {
                for (int other = warp + 1; other < WARPS; ++other) before = combine(before, total_of(other));
                __syncthreads();
            }
        }
    }
}

// As `rows`, along an axis that is not the contiguous one.
//
// Threads: a block does strips of 32 neighbouring lines, a lane a line, so that loads are coalesced; of each tile of
//   WARPS · ROWS elements of the lines, a warp does ROWS. Where strips are few, `along` blocks share each of them, tile by
//   tile in turn, and look back along every line.
// Memory: sizeof(T) + sizeof(Out) bytes an element, ROWS loads of a thread in flight.
// Preconditions: out is x itself or does not overlap it; status as <cudakit/lookback.cuh> wants it where along > 1.
// Launch: strips · along blocks of 32 · WARPS threads; all at once where along > 1.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED, bool EXCLUSIVE, int WARPS = 16,
    int ROWS = 8>
__global__ void __launch_bounds__(32 * WARPS) columns(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int axis, int along) {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    using Lookback = cudakit::lookback<Item, Combine>;
    constexpr int TILE = WARPS * ROWS, SHARE = 32 / WARPS;  // lines that a warp looks back along
    static_assert(SHARE == 2, "the objects that look back are listed below");
    __shared__ alignas(16) unsigned char totals[WARPS + 1][32][sizeof(Item)];
    const auto total_of = [&](int warp, int lane) -> Item& { return *reinterpret_cast<Item*>(totals[warp][lane]); };

    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const long long n = of_x.length(), strip = blockIdx.x / along * 32ll, number = strip + threadIdx.x % 32;
    const long long tiles = (n + TILE - 1) / TILE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool here = number < of_x.count();
    const line_of<const T> from = of_x[here ? number : 0];
    const line_of<const K> key = of_keys[here ? number : 0];
    const line_of<Out> to = of_out[here ? number : 0];
    const Combine combine;
    Lookback look[SHARE] = {Lookback(status, (strip + warp * SHARE) * tiles), Lookback(status, (strip + warp * SHARE + 1) * tiles)};
    Lookback publisher(status, number * tiles);

    Item before = Combine::template identity<Item>();
    for (long long tile = blockIdx.x % along; tile < tiles; tile += along) {
        const long long own = tile * TILE + warp * ROWS;
        T value[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            if (here && own + row < n) value[row] = from.data[(own + row) * from.step];
        Item item[ROWS];
        Item sum = Combine::template identity<Item>();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const long long i = own + row;
            bool head = false;
            if constexpr (KEYED)
                head = here && i < n && (i == 0 || key.data[i * key.step] != key.data[(i - 1) * key.step]);
            item[row] = here && i < n ? Rule::item(value[row], head) : Combine::template identity<Item>();
            sum = combine(sum, item[row]);
        }
        total_of(warp, lane) = sum;
        __syncthreads();
        Item up_to = Combine::template identity<Item>(), total = up_to;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            if (other == warp) up_to = total;
            total = combine(total, total_of(other, lane));
        }
        if (along > 1) {
            if (warp == 0 && here) publisher.publish(tile, total);
#pragma unroll
            for (int k = 0; k < SHARE; ++k)
                if (strip + warp * SHARE + k < of_x.count()) {
                    const Item found = look[k].prefix(tile);
                    if (lane == 0) total_of(WARPS, warp * SHARE + k) = found;
                }
            __syncthreads();
            before = total_of(WARPS, lane);
        }
        Item running = combine(before, up_to);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const Item with = combine(running, item[row]);
            if (here && own + row < n) to.data[(own + row) * to.step] = Rule::result(running, with, item[row]);
            running = with;
        }
        before = combine(before, total);
        __syncthreads();
    }
    if (along > 1 && threadIdx.x == 0) publisher.finish();
}
