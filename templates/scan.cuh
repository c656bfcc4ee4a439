#include <cudakit/scan/line_scan.cuh>

// One line of elements, perhaps with keys, and of results, for `line_scan`.
template <typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED, bool EXCLUSIVE>
struct keyed_lines {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    static constexpr int VEC = cudakit::LANE_NEIGHBOURS<T, Out>, EACH = 16 / sizeof(T);
    template <int TILE>
    static constexpr int STAGE_BYTES = TILE * sizeof(T) + (KEYED ? TILE * sizeof(K) + 16 : 0);
    static constexpr bool IS_READ_AGAIN = false;

    cudakit::line_of<const T> x;
    cudakit::line_of<const K> keys;
    cudakit::line_of<Out> out;

    __device__ int shift() const { return reinterpret_cast<unsigned long long>(x.data) % 16 / sizeof(T); }
    template <int TILE>
    static __device__ K* keys_in(unsigned char* stage) {
        return reinterpret_cast<K*>(stage + TILE * sizeof(T) + 16);
    }

    template <int TILE>
    __device__ unsigned int load(unsigned char* stage, const cudakit::line_cover& part, cudakit::mbarrier& full) const {
        T* const to = reinterpret_cast<T*>(stage);
        unsigned int bytes = cudakit::load_span(to, x, part.first, part.begin, part.end, full);
        if constexpr (KEYED) {
            const int begin = part.begin - (part.first + part.begin > 0);  // with the key before, to compare to
            bytes += cudakit::load_span(keys_in<TILE>(stage), keys, part.first, begin, part.end, full);
        }
        return bytes;
    }

    /// The identity where the line does not reach, as far as others read.
    template <int SPAN>
    __device__ void fill(unsigned char* stage, const cudakit::line_cover& part) const {
        T* const to = reinterpret_cast<T*>(stage);
        T nothing;
        if constexpr (cudakit::detail::is_complex<Acc>(0) && !cudakit::detail::is_complex<T>(0))
            nothing = static_cast<T>(Op::template identity<Acc>().real());
        else
            nothing = static_cast<T>(Op::template identity<Acc>());
        const int end = (part.end + SPAN - 1) / SPAN * SPAN;
        for (int i = threadIdx.x; i < part.begin; i += 32) to[i] = nothing;
#pragma unroll 4
        for (int i = part.end + threadIdx.x; i < end; i += 32) to[i] = nothing;
        cudakit::before_bulk_loads();
    }

    template <int TILE, int COUNT>
    __device__ void read(Item (&item)[COUNT], unsigned char* stage, const cudakit::line_cover& part, int from) const {
        const auto values = cudakit::load_pack<COUNT>(reinterpret_cast<T*>(stage) + from);
#pragma unroll
        for (int v = 0; v < COUNT; ++v) {
            bool head = false;
            if constexpr (KEYED) {
                const K* const key = keys_in<TILE>(stage) + from + v;
                head = part.first + from + v == 0 || key[0] != key[-1];
            }
            item[v] = Rule::item(values.values[v], head);
        }
    }

    /// Whether results go by whole packs.
    __device__ bool target() const {
        return out.step == 1 && cudakit::neighbours<Out, VEC>::are_aligned(out.data - shift());
    }
    template <int TILE>
    __device__ void store(
        bool packed, const Item (&item)[VEC], const Item& up_to, Item& before, int lane, unsigned char*,
        const cudakit::line_cover& part, int from, long long) const {
        const auto result = cudakit::results<Rule, Out, 32>(item, up_to, before, lane);
        if (packed && from >= part.begin && from + VEC <= part.end) {
            result.store(out.data + part.first + from);
        } else {
#pragma unroll
            for (int v = 0; v < VEC; ++v)
                if (from + v >= part.begin && from + v < part.end)
                    out.data[(part.first + from + v) * out.step] = result.values[v];
        }
    }
};

// out[i] = x[0] ∘ … ∘ x[i] (EXCLUSIVE: … ∘ x[i-1]) along one long line; KEYED: back to where keys[i] last differed from
// keys[i-1].
//
// Shapes: x, out (n), keys (n) where KEYED; status as <cudakit/lookback.cuh> wants it.
// Threads: those of `line_scan` (<cudakit/scan/line_scan.cuh>): a block stays and does tiles blockIdx.x, + gridDim.x, …, by
//   warps that load, reduce, look back and scan.
// Memory: sizeof(T) + sizeof(Out) bytes an element: loads by bulk copies, stores of 16 bytes a lane. From shared memory
//   each element is read twice, without conflicts.
// Preconditions: out is x itself or does not overlap it.
// Launch: 32 · (2 + REDUCERS + SCANNERS) threads a block, all blocks at once (cooperative, or no more than one tile a
//   block); stages · STAGE_BYTES of dynamic shared memory.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
template <
    typename T, typename K, typename Out, typename Acc, typename Op, bool KEYED = false, bool EXCLUSIVE = false,
    int ROWS = 4, int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1)
    line(const T* x, const K* keys, Out* out, unsigned char* status, long long n, int stages) {
    using Lines = keyed_lines<T, K, Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Scan = cudakit::line_scan<Lines, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    Scan{{{x, 1}, {keys, 1}, {out, 1}}, status, 0, n, stages, ring, shared}.run();
}

// As `line`, of few long lines of views: gridDim.x blocks a line, and blockIdx.y is its number.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED = false,
    bool EXCLUSIVE = false, int ROWS = 4, int SCANNERS = 16, int REDUCERS = 4>
__global__ void __launch_bounds__(32 * (2 + REDUCERS + SCANNERS), 1) lines(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int stages) {
    using Lines = keyed_lines<T, K, Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Scan = cudakit::line_scan<Lines, ROWS, SCANNERS, REDUCERS>;
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ typename Scan::storage shared;
    const cudakit::lines_along<const T, RANK, AXIS> of_x{x};
    const cudakit::lines_along<const K, RANK, AXIS> of_keys{keys};
    const cudakit::lines_along<Out, RANK, AXIS> of_out{out};
    const long long line = blockIdx.y, n = of_x.length();
    const long long before = line * (n / Scan::TILE + 2);  // tiles, one more where a line does not start at 16 bytes
    Scan{{of_x[line], of_keys[line], of_out[line]}, status, before, n, stages, ring, shared}.run();
}
