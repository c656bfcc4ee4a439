#include <cudakit/product/epilogue.cuh>
#include <cudakit/product/fma.cuh>
#include <cudakit/product/mma.cuh>

namespace cudakit {

// C = activation(scale · A B + bias) + residual, one matrix or a batch of them.
// Shapes: A is m × k, B is k × n, with steps from row to row and from column to column; C and the residual are m × n,
//   C-contiguous, the bias n. A batch has three axes, of the extents of which the launch makes up the first: along each a
//   step in A and one in B, 0 where all share a matrix. Both begin a_begin, b_begin elements after the address.
// Threads: a block makes Product::HIGH × Product::WIDE of C, each thread what `Product` says (fma_product, mma_product).
//   Neighbouring blocks make tiles of GROUP rows of tiles, column after column, so that what they read is in L2.
// Memory: A is read n / WIDE times and B m / HIGH times, mostly from L2, A_COUNT and B_COUNT elements at once, which are
//   neighbours along k (A_DEEP, B_DEEP) or along the other axis; C is written once, bias and residual are read once.
//   STAGES tiles of Product::DEEP of A and B are in shared memory, padded as `Product` says, all but one on their way; what is
//   multiplied next is read from there before.
// Preconditions: A_COUNT elements begin at multiples of their bytes, 16 at most, wherever a tile does, and so for B;
//   IS_ALIGNED: so do 16 bytes of C, bias and residual, in every row. What is not read (bias, residual) may be any
//   address; C overlaps nothing that is. Arithmetic after the sum is in V, whose parts are of type Scale.
// Launch: a block for each tile of all matrices along x, of Product::THREADS; shared memory for STAGES tiles.
// Source: the order of tiles is that of Tillet, Kung and Cox, Triton (2019); stages as in the PTX ISA's cp.async.
template <typename T, typename Product, typename V, typename Scale, typename Out, typename Activation, int STAGES,
          bool A_DEEP, int A_COUNT, bool B_DEEP, int B_COUNT, bool BIAS, bool RESIDUAL, bool IS_ALIGNED, int BLOCKS = 1,
          int GROUP = 8>
__global__ void __launch_bounds__(Product::THREADS, BLOCKS)
    matmul(const T* __restrict__ a, const T* __restrict__ b, const Out* __restrict__ bias,
           const Out* __restrict__ residual, Out* __restrict__ c, Scale scale, int m, int n, int k, long long a_row,
           long long a_column, long long b_row, long long b_column, long long a_begin, long long b_begin, int middle,
           int inner, long long a_outer, long long a_middle, long long a_inner, long long b_outer, long long b_middle,
           long long b_inner) {
    using Stored = typename Product::stored;
    using Made = typename detail::storage<Out>::type;
    constexpr int BM = Product::HIGH, BN = Product::WIDE, BK = Product::DEEP;
    using ATile = operand_tile<Stored, BM, BK, Product::A_DEEP, A_DEEP, A_COUNT, Product::THREADS, Product::A_PAD>;
    using BTile = operand_tile<Stored, BN, BK, Product::B_DEEP, B_DEEP, B_COUNT, Product::THREADS, Product::B_PAD>;

    const int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN, each = rows * columns;
    const int tile = static_cast<int>(blockIdx.x) % each, batch = static_cast<int>(blockIdx.x) / each;
    const int group = GROUP * columns, first = tile / group * GROUP, height = min(rows - first, GROUP);
    const int row = (first + tile % group % height) * BM, column = tile % group / height * BN;
    const int outer = batch / inner / middle, between = batch / inner % middle, last = batch % inner;
    a += a_begin + outer * a_outer + between * a_middle + last * a_inner + row * a_row;
    b += b_begin + outer * b_outer + between * b_middle + last * b_inner + column * b_column;

    static_assert(Product::STEPS % 2 == 0, "the fragments change places as often as not");
    extern __shared__ __align__(16) unsigned char memory[];
    Stored* const left = reinterpret_cast<Stored*>(memory);
    Stored* const right = left + STAGES * ATile::SIZE;
    const Stored *from_a = reinterpret_cast<const Stored*>(a), *from_b = reinterpret_cast<const Stored*>(b);
    int depth = k;  // of what is still to be fetched
    int slot = 0, next = 0;
    const auto fetch = [&]() {
        ATile::load(left + next * ATile::SIZE, from_a, a_row, a_column, m - row, depth);
        BTile::load(right + next * BTile::SIZE, from_b, b_column, b_row, n - column, depth);
        from_a += BK * a_column, from_b += BK * b_row;
        depth -= BK;
        next = next + 1 == STAGES ? 0 : next + 1;
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (depth > 0) fetch();
        close_stage();
    }
    Product product;
    typename Product::fragments of[2];
    wait_for_stages<STAGES - 2>();
    __syncthreads();
    if (k > 0) product.template read<ATile, BTile>(of[0], left, right, 0);
    for (int still = k; still > 0; still -= BK) {
#pragma unroll
        for (int step = 0; step < Product::STEPS; ++step) {
            if (step == 0) {
                if (depth > 0) fetch();
                close_stage();
            }
            if (step == Product::STEPS - 1) {
                // The next tile is whole once all threads' parts are, and none reads the last one but one any more.
                slot = slot + 1 == STAGES ? 0 : slot + 1;
                wait_for_stages<STAGES - 2>();
                __syncthreads();
            }
            // What is multiplied next is on its way from shared memory meanwhile.
            product.template read<ATile, BTile>(of[(step + 1) % 2], left + slot * ATile::SIZE,
                                                right + slot * BTile::SIZE, (step + 1) % Product::STEPS);
            product.add(of[step % 2]);
        }
    }
    const long long begin = (static_cast<long long>(batch) * m + row) * n + column;
    product.finish(product_epilogue<V, Scale, Made, Activation, BIAS, RESIDUAL, IS_ALIGNED>{
        reinterpret_cast<const Made*>(bias + column), reinterpret_cast<const Made*>(residual + begin),
        reinterpret_cast<Made*>(c + begin), n, scale, m - row, n - column});
}

}  // namespace cudakit
