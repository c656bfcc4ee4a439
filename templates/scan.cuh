#include <cudakit/scan/expression.cuh>

// Every named scan is one of these kernels, by a way `How` (<cudakit/scan/expression.cuh>) that its lines in memory take.

namespace cudakit {

/// Op over the elements so far, as what <cudakit/scan/expression.cuh> calls. Elements are converted to Out first.
template <typename Out, typename Acc, typename Op, bool KEYED, bool EXCLUSIVE>
struct named_scan {
    using cudakit_state = Acc;
    static constexpr bool CUDAKIT_IS_SEGMENTED = KEYED, CUDAKIT_OUTPUT_SEES_INPUTS = false, CUDAKIT_COMMUTES = true;
    static constexpr bool CUDAKIT_HAS_NEUTRAL = true, CUDAKIT_OUTPUT_IS_ITEM = true;

    static __device__ Acc cudakit_identity() { return Op::template identity<Acc>(); }
    static __device__ Acc cudakit_reduce(const Acc& a, const Acc& b) { return Op()(a, b); }
    template <typename T, typename... Others>
    static __device__ Acc cudakit_map(const T& x, const Others&...) {
        return static_cast<Acc>(static_cast<Out>(x));
    }
    template <typename T>
    static __device__ T cudakit_neutral() {
        if constexpr (detail::is_complex<Acc>(0) && !detail::is_complex<T>(0)) return static_cast<T>(cudakit_identity().real());
        else return static_cast<T>(cudakit_identity());
    }
    template <typename T>
    static __device__ bool cudakit_head(const T&, bool differs, long long, long long) {
        return differs;
    }
    template <typename Values, typename Results>
    static __device__ void cudakit_output(
        const Acc& item, const Acc& prev_item, const Acc&, long long, long long, const Values&, const Results& results) {
        *results.first = static_cast<Out>(EXCLUSIVE ? prev_item : item);
    }
};

}  // namespace cudakit

// out[…, i, …] = x[…, 0, …] ∘ … ∘ x[…, i, …] (EXCLUSIVE: … ∘ x[…, i-1, …]) along an axis
//
// Shapes: x and out as `layout` says: lines of any strides, few long ones or many.
// Threads: those of the way: of one line or few `line_scan` (<cudakit/scan/line_scan.cuh>), of many `scan_rows`,
//   `scan_short_rows` or `scan_columns` (<cudakit/scan/axis_scan.cuh>).
// Memory: sizeof(T) + sizeof(Out) bytes an element: each is read and each result written once.
// Preconditions: out is x itself or does not overlap it; status as <cudakit/lookback.cuh> wants it.
// Launch: How::BLOCK threads a block; else the way's.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016); Sengupta, Harris, Garland
//   and Owens, Efficient parallel scan algorithms for many-core GPUs (2011).
template <typename T, typename Out, typename Acc, typename Op, bool EXCLUSIVE, typename How, typename Layout>
__global__ void __launch_bounds__(
    How::BLOCK, cudakit::SCAN_RESIDENT<How, cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>)
    scanned(const T* x, Out* out, unsigned char* status, Layout layout) {
    How::template run<cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>(
        cudakit::several_of(cudakit::array_of<T>(x)), cudakit::several_of(out),
        cudakit::ends_of<cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>(nullptr), status, layout);
}

// As `scanned`, of elements that `initial` comes before.
template <typename T, typename Out, typename Acc, typename Op, bool EXCLUSIVE, typename How, typename Layout>
__global__ void __launch_bounds__(
    How::BLOCK, cudakit::SCAN_RESIDENT<How, cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>)
    scanned_from(const T* x, Out* out, const Acc initial, unsigned char* status, Layout layout) {
    How::template run<cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>(
        cudakit::several_of(cudakit::array_of<T>(x)), cudakit::several_of(out),
        cudakit::ends_of<cudakit::named_scan<Out, Acc, Op, false, EXCLUSIVE>>(nullptr, initial), status, layout);
}

// As `scanned`, from where the keys last differed from the ones before.
//
// Shapes: keys as x.
// Memory: sizeof(K) bytes an element more.
template <typename T, typename K, typename Out, typename Acc, typename Op, bool EXCLUSIVE, typename How, typename Layout>
__global__ void __launch_bounds__(
    How::BLOCK, cudakit::SCAN_RESIDENT<How, cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>)
    scanned_by_keys(const T* x, const K* keys, Out* out, unsigned char* status, Layout layout) {
    const auto both = cudakit::several_of(cudakit::array_of<T>(x), cudakit::keys_of(keys));
    How::template run<cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>(
        both, cudakit::several_of(out), cudakit::ends_of<cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>(nullptr),
        status, layout);
}

// As `scanned_by_keys`, where `initial` comes before the elements of each run of keys.
template <typename T, typename K, typename Out, typename Acc, typename Op, bool EXCLUSIVE, typename How, typename Layout>
__global__ void __launch_bounds__(
    How::BLOCK, cudakit::SCAN_RESIDENT<How, cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>)
    scanned_by_keys_from(
        const T* x, const K* keys, Out* out, const Acc initial, unsigned char* status, Layout layout) {
    const auto both = cudakit::several_of(cudakit::array_of<T>(x), cudakit::keys_of(keys));
    How::template run<cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>(
        both, cudakit::several_of(out),
        cudakit::ends_of<cudakit::named_scan<Out, Acc, Op, true, EXCLUSIVE>>(nullptr, initial), status, layout);
}
