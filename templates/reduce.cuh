#include <cudakit/reduce/reducer.cuh>
#include <cudakit/reduce/ways.cuh>

// Every named reduction is one of these kernels with a reducer (<cudakit/reduce/reducer.cuh>), which says what becomes of
// the elements, and a way (<cudakit/reduce/ways.cuh>), which says which thread takes which of them. `divisor` is for
// reducers that divide: worked out here it would take registers from the loop.

namespace cudakit {

/// out[row] = what the reducer makes of a state.
template <typename Reducer, typename Out>
struct finished {
    Out* out;
    double divisor;
    __device__ void operator()(long long row, const typename Reducer::State& state, long long) const {
        out[row] = Reducer::template finish<Out>(state, divisor);
    }
};

}  // namespace cudakit

// out[r] = reduction of the elements of x that result r is of
//
// Shapes: x as `layout` says (the way's: rows, columns or a view of memory); out, C-contiguous.
// Threads: those of the way.
// Memory: sizeof(T) bytes an element, once; the states of unfinished parts, through `workspace`.
// Preconditions: those of the way.
// Launch: one-dimensional, How::BLOCK threads a block, any number of blocks.
// Source: Harris, Optimizing parallel reduction in CUDA (2007); the last-block pattern of NVIDIA's threadFenceReduction.
template <typename T, typename Out, typename Reducer, typename How, typename Layout>
__global__ void __launch_bounds__(How::BLOCK, cudakit::RESIDENT<How, Reducer, T>) reduced(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, Layout layout, double divisor) {
    const cudakit::finished<Reducer, Out> store{out, divisor};
    How::template run<Reducer>(
        cudakit::several_of(cudakit::array_of<T>(x)), store, static_cast<const int*>(nullptr), workspace, layout);
}

// out = Σ x[i] · y[i], or what else the reducer makes of both
//
// Shapes: x, y (length), A and B, any strides; out (1).
// Threads: those of the way.
// Memory: sizeof(A) + sizeof(B) bytes an element, by loads of which the wider has 16 bytes; one element a load where x
//   and y do not lie alike to such words.
// Preconditions: those of the way.
// Launch: as for `reduced`.
// Source: as for `reduced`.
template <typename A, typename B, typename Out, typename Reducer, typename How, typename Layout>
__global__ void __launch_bounds__(How::BLOCK, cudakit::RESIDENT<How, Reducer>) reduced_together(
    const A* __restrict__ x, const B* __restrict__ y, Out* __restrict__ out, unsigned char* __restrict__ workspace,
    Layout layout, double divisor) {
    const cudakit::finished<Reducer, Out> store{out, divisor};
    const auto both = cudakit::several_of(cudakit::array_of<A>(x), cudakit::array_of<B>(y));
    How::template run<Reducer>(both, store, static_cast<const int*>(nullptr), workspace, layout);
}
