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

/// combine over the lanes up to and including this one, of each WIDTH neighbours.
template <int WIDTH, typename Combine, typename Item>
__device__ Item scan_over_lanes(Item item, Combine combine, int lane) {
    return cudakit::warp_inclusive_scan<WIDTH>(item, combine, lane);
}
// The lane where this lane's segment begins is known from a vote, so that heads need not travel with the values.
template <int WIDTH, typename Op, typename Acc>
__device__ keyed<Acc> scan_over_lanes(keyed<Acc> item, segmented<Op>, int lane) {
    const unsigned int heads = __ballot_sync(cudakit::FULL_WARP, item.head) >> (threadIdx.x % 32 - lane) & ((2u << lane) - 1);
    const int start = heads ? 31 - __clz(heads) : 0;
#pragma unroll
    for (int step = 1; step < WIDTH; step *= 2) {
        const Acc other = cudakit::shuffle_up(item.value, step, WIDTH);
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
            if (own * SEGMENT >= part.end) continue;

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
            if (d == (axis == 0)) {  // the outermost of them
                offset += static_cast<long long>(rest) * view.strides[d];
                break;
            }
            const unsigned long long length = view.shape[d], outer = quotient(rest, length);
            offset += static_cast<long long>(rest - outer * length) * view.strides[d];
            rest = outer;
        }
        return {view.data + offset, view.strides[axis]};
    }
    // Dividing 32 bits takes a quarter of the time.
    static __device__ unsigned long long quotient(unsigned long long a, unsigned long long b) {
        if ((a | b) >> 32) return a / b;
        return static_cast<unsigned int>(a) / static_cast<unsigned int>(b);
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

/// Whether 16-byte accesses do for all lines of a view: they are next to each other, whole and aligned.
template <int VEC, typename T, int RANK>
__device__ bool are_packed(const lines_along<T, RANK>& lines) {
    bool packed = lines.view.strides[lines.axis] == 1 && lines.length() % VEC == 0
                  && cudakit::is_aligned<cudakit::pack<T, VEC>>(lines.view.data);
#pragma unroll
    for (int d = 0; d < RANK; ++d) packed = packed && (d == lines.axis || lines.view.strides[d] % VEC == 0);
    return packed;
}

/// Elements from … from + VEC of a line of `n`; what is past its end is not read.
template <int VEC, typename T>
__device__ cudakit::pack<T, VEC> read_line(line_of<const T> line, bool packed, long long from, long long n) {
    cudakit::pack<T, VEC> values;
    if (packed) {
        if (from < n) values = cudakit::load_pack<VEC>(line.data + from);
        return values;
    }
#pragma unroll
    for (int v = 0; v < VEC; ++v)
        if (from + v < n) values.values[v] = line.data[(from + v) * line.step];
    return values;
}
template <int VEC, typename T>
__device__ void write_line(line_of<T> line, bool packed, long long from, long long n, const cudakit::pack<T, VEC>& values) {
    if (packed) {
        if (from < n) cudakit::store_pack(line.data + from, values);
        return;
    }
#pragma unroll
    for (int v = 0; v < VEC; ++v)
        if (from + v < n) line.data[(from + v) * line.step] = values.values[v];
}

/// Values of a line as items: the identity past its end, a head where a key differs from the one before.
template <typename Rule, bool KEYED, int VEC, typename T, typename K>
__device__ void items_of(
    typename Rule::Item (&item)[VEC], const cudakit::pack<T, VEC>& values, line_of<const K> key, long long from, long long n) {
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
        const long long i = from + v;
        bool head = false;
        if constexpr (KEYED) head = i < n && (i == 0 || key.data[i * key.step] != key.data[(i - 1) * key.step]);
        item[v] = Rule::item(values.values[v], head);
        if (i >= n) item[v] = Rule::Combine::template identity<typename Rule::Item>();
    }
}

// out[…, i, …] = x[…, 0, …] ∘ … ∘ x[…, i, …] (EXCLUSIVE: … ∘ x[…, i-1, …]) along `axis`, for many lines; KEYED: back to where
// the keys last changed.
//
// Shapes: x, keys, out (of RANK dimensions).
// Threads: a block of 32 · WARPS does a line, ROWS · VEC elements a thread at a time, then the next; what came before goes
//   on in registers. A row is 32 · VEC elements, VEC neighbours a lane.
// Memory: sizeof(T) + sizeof(Out) bytes an element, by 16 bytes a lane where all lines lie so; the next elements are loaded
//   while these are scanned.
// Preconditions: out is x itself or does not overlap it.
// Launch: one-dimensional, 32 · WARPS threads a block; blocks stride over the lines.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED, bool EXCLUSIVE, int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, 32 / WARPS) rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out, int axis) {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = 16 / (sizeof(T) > sizeof(Out) ? sizeof(T) : sizeof(Out)), ROW = 32 * VEC, TILE = WARPS * ROWS * ROW;
    __shared__ alignas(16) unsigned char totals[2][WARPS][sizeof(Item)];

    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const bool packed_in = are_packed<VEC>(of_x), packed_out = are_packed<VEC>(of_out);
    const long long count = of_x.count(), n = of_x.length();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Combine combine;
    int turn = 0;
    for (long long line = blockIdx.x; line < count; line += gridDim.x) {
        const line_of<const T> from = of_x[line];
        const line_of<const K> key = of_keys[line];
        const line_of<Out> to = of_out[line];
        cudakit::pack<T, VEC> values[ROWS];
        long long own = warp * ROWS * ROW + lane * VEC;
#pragma unroll
        for (int row = 0; row < ROWS; ++row) values[row] = read_line<VEC>(from, packed_in, own + row * ROW, n);
        Item before = Combine::template identity<Item>();
        for (long long start = 0; start < n; start += TILE, own += TILE, turn ^= 1) {
            Item item[ROWS][VEC], up_to[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) items_of<Rule, KEYED>(item[row], values[row], key, own + row * ROW, n);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) values[row] = read_line<VEC>(from, packed_in, own + TILE + row * ROW, n);
            scan_lanes<Combine, 32>(item, up_to, lane);
            Item total = cudakit::shuffle(up_to[0], 31);
#pragma unroll
            for (int row = 1; row < ROWS; ++row) total = combine(total, cudakit::shuffle(up_to[row], 31));
            const auto total_of = [&](int warp) -> Item& { return *reinterpret_cast<Item*>(totals[turn][warp]); };
            if (lane == 0) total_of(warp) = total;
            __syncthreads();  // once a tile: the next one's totals go elsewhere
            for (int other = 0; other < warp; ++other) before = combine(before, total_of(other));
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = results<Rule, Out, 32>(item[row], up_to[row], before, lane);
                write_line(to, packed_out, own + row * ROW, n, result);
            }
            for (int other = warp + 1; other < WARPS; ++other) before = combine(before, total_of(other));
        }
    }
}

// As `rows`, for lines of at most WIDTH · VEC · ROWS elements.
//
// Threads: WIDTH lanes do LINES lines at once, ROWS · VEC elements of each a lane; groups of lanes do neighbouring lines.
// Memory: sizeof(T) + sizeof(Out) bytes an element; LINES · ROWS loads of 16 bytes a lane in flight, where all lines lie so.
// Preconditions: those of `rows`. WIDTH divides 32, and is 32 where ROWS > 1.
// Launch: one-dimensional, 256 threads a block; a block does 256 / WIDTH · LINES lines at a time, and strides over them.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED, bool EXCLUSIVE, int WIDTH, int ROWS,
    int LINES>
__global__ void __launch_bounds__(256, 4) short_rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out, int axis) {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = 16 / (sizeof(T) > sizeof(Out) ? sizeof(T) : sizeof(Out)), GROUPS = 256 / WIDTH;
    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const bool packed_in = are_packed<VEC>(of_x), packed_out = are_packed<VEC>(of_out);
    const long long count = of_x.count();
    const int lane = threadIdx.x % WIDTH, own = lane * VEC, length = of_x.length();
    for (long long first = static_cast<long long>(blockIdx.x) * GROUPS * LINES; first < count;
         first += static_cast<long long>(gridDim.x) * GROUPS * LINES) {
        cudakit::pack<T, VEC> values[LINES][ROWS];
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const long long line = first + k * GROUPS + threadIdx.x / WIDTH;
            if (line < count)
#pragma unroll
                for (int row = 0; row < ROWS; ++row)
                    values[k][row] = read_line<VEC>(of_x[line], packed_in, own + row * WIDTH * VEC, length);
        }
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const long long line = first + k * GROUPS + threadIdx.x / WIDTH;
            const int n = line < count ? length : 0;  // all lanes shuffle; those past the last line have no elements
            const line_of<const K> key = of_keys[n ? line : 0];
            const line_of<Out> to = of_out[n ? line : 0];
            Item item[ROWS][VEC], up_to[ROWS], before = Combine::template identity<Item>();
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                items_of<Rule, KEYED>(item[row], values[k][row], key, own + row * WIDTH * VEC, n);
            scan_lanes<Combine, WIDTH>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = results<Rule, Out, WIDTH>(item[row], up_to[row], before, lane);
                write_line(to, packed_out, own + row * WIDTH * VEC, n, result);
            }
        }
    }
}

// As `rows`, along an axis that is not the contiguous one.
//
// Threads: a block does a strip of 32 neighbouring lines, a lane a line, so that loads are coalesced; of each tile of
//   WARPS · ROWS elements of the lines, a warp does ROWS. ALONG: strips are few, and `along` blocks share each of them,
//   tile by tile in turn; each carries the prefixes on from its last tile over those of the other blocks since then.
// Memory: sizeof(T) + sizeof(Out) bytes an element; the next ROWS elements of a thread are loaded while these are scanned.
// Preconditions: out is x itself or does not overlap it. ALONG: status as <cudakit/lookback.cuh> wants it, along ≤ 8 · WARPS.
// Launch: strips · along blocks of 32 · WARPS threads; ALONG: all at once.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, bool KEYED, bool EXCLUSIVE, bool ALONG,
    int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, 32 / WARPS) columns(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int axis, int along) {
    using Rule = rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int TILE = WARPS * ROWS;
    __shared__ alignas(16) unsigned char totals[2][WARPS][32][sizeof(Item)];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto total_of = [&](int buffer, int warp) -> Item& { return *reinterpret_cast<Item*>(totals[buffer][warp][lane]); };

    const lines_along<const T, RANK> of_x{x, axis};
    const lines_along<const K, RANK> of_keys{keys, axis};
    const lines_along<Out, RANK> of_out{out, axis};
    const long long lines = of_x.count(), line = blockIdx.x / along * 32ll + lane;
    const bool here = line < lines;
    const long long length = of_x.length(), n = here ? length : 0;
    const line_of<const T> from = of_x[here ? line : 0];
    const line_of<const K> key = of_keys[here ? line : 0];
    const line_of<Out> to = of_out[here ? line : 0];
    const Combine combine;
    cudakit::lookback<Item, Combine> look(status);

    cudakit::pack<T, 1> value[ROWS];
    const auto load = [&](long long own) {
        const T* at = from.data + own * from.step;
#pragma unroll
        for (int row = 0; row < ROWS; ++row, at += from.step)
            if (own + row < n) value[row].values[0] = *at;
    };
    long long tile = blockIdx.x % along;
    load(tile * TILE + warp * ROWS);
    Item before = Combine::template identity<Item>();
    for (int turn = 0; tile * TILE < length; tile += along, turn ^= 1) {
        const long long own = tile * TILE + warp * ROWS;
        Item item[ROWS][1], sum = Combine::template identity<Item>();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            items_of<Rule, KEYED>(item[row], value[row], key, own + row, n);
            sum = combine(sum, item[row][0]);
        }
        load(own + static_cast<long long>(along) * TILE);
        const int buffer = ALONG ? 0 : turn;
        total_of(buffer, warp) = sum;
        __syncthreads();
        Item up_to = Combine::template identity<Item>(), total = up_to;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            if (other == warp) up_to = total;
            total = combine(total, total_of(buffer, other));
        }
        if constexpr (ALONG) {
            if (warp == 0 && here) look.publish(tile * lines + line, total);
            const int since = tile < along ? tile : along - 1, share = (since + WARPS - 1) / WARPS;  // tiles of other blocks
            const int first = warp * share, own_share = min(share, since - first);
            total_of(1, warp) = look.template combined<8>((tile - since + first) * lines + line, lines, here ? own_share : 0);
            __syncthreads();
#pragma unroll
            for (int other = 0; other < WARPS; ++other) before = combine(before, total_of(1, other));
        }
        Item running = combine(before, up_to);
        Out* at = to.data + own * to.step;
#pragma unroll
        for (int row = 0; row < ROWS; ++row, at += to.step) {
            const Item with = combine(running, item[row][0]);
            if (own + row < n) *at = Rule::result(running, with, item[row][0]);
            running = with;
        }
        before = combine(before, total);
    }
    if (ALONG && threadIdx.x == 0) look.finish();
}
