#include <cudakit/product/epilogue.cuh>
#include <cudakit/product/wgmma.cuh>

namespace cudakit {

// C = activation(scale · A B + bias) + residual, one matrix or a batch of them, of half, bfloat16, int8, fp8, or float as TF32.
// Shapes: A is m × k, B is k × n; C and the residual are m × n, C-contiguous, the bias n. The maps are of three axes: the batch,
//   then rows of 128 bytes a box, which lie along k (A_DEEP, B_DEEP) or across. a_step and b_step are 1, or 0 where all
//   products share a matrix. TURNED: A has n rows and B has m columns of C, which is n × m: Cᵀ = Bᵀ Aᵀ, for an operand that only
//   the place of A serves, or for columns that are not stored 32 at once.
// Threads: one thread of the first warpgroup copies tiles of A and B. Each of GROUPS further warpgroups multiplies 64 rows and
//   WIDE columns, with the layout that `warpgroup_sums` says. A block makes every gridDim-th tile of C. Tiles in turn are of
//   GROUP rows of tiles, column after column, so that what they read is in L2. With SPLIT > 1 a cluster of so many blocks
//   makes a tile: each block multiplies a part of k, and the parts' sums are added in the order of the blocks. The sums
//   of FOLD steps along k are added in float (0: all are those of tensor cores).
// Memory: A is read n / WIDE times and B m / (64 GROUPS) times, mostly from L2, in boxes of 128 bytes a row; C is written once,
//   bias and residual are read once, 16 bytes a thread. STAGES tiles of A and B are in shared memory, swizzled by 128 bytes
//   against bank conflicts.
// Preconditions: sm_90a. m, n, k and batches are positive. Maps have a swizzle of 128 bytes and boxes as boxed_tile says. a and
//   b are the memory of the maps. IS_ALIGNED: 16 bytes of C, bias and residual begin at multiples of 16 in every row. What is
//   not read (bias, residual) may be any address; C overlaps nothing that is. Arithmetic after the sum is in V. A_DEEP and
//   B_DEEP for int8 and fp8, B_DEEP for float, whose elements the maps round. SPLIT is at most the number of tiles along k.
// Launch: along x, blocks of 128 (GROUPS + 1) threads and SHARED bytes of shared memory: at most one for each tile, or with
//   SPLIT > 1 a cluster of SPLIT for each tile. BLOCKS run on a multiprocessor at once.
// Source: warp specialization as in Bauer, Cook, Khailany, CudaDMA (2011); wgmma and TMA as in the PTX ISA, 9.7.15 and 9.7.9.27.
template <typename T, typename V, typename Out, typename Activation, int GROUPS, int WIDE, int STAGES, bool A_DEEP,
          bool B_DEEP, bool BIAS, bool RESIDUAL, bool IS_ALIGNED, bool TURNED = false, int SPLIT = 1, int BLOCKS = 1,
          int FOLD = fold_steps<T, Out>, int GROUP = 16>
__global__ void __launch_bounds__(128 * (GROUPS + 1), BLOCKS)
    warpgroup_matmul(const T* __restrict__ a, const T* __restrict__ b, const Out* __restrict__ bias,
                     const Out* __restrict__ residual, Out* __restrict__ c, V scale, int m, int n, int k, int batches,
                     int a_step, int b_step, const __grid_constant__ CUtensorMap a_map,
                     const __grid_constant__ CUtensorMap b_map) {
    constexpr int HIGH = 64 * GROUPS;
    using ATile = boxed_tile<T, HIGH, A_DEEP>;
    using BTile = boxed_tile<T, WIDE, B_DEEP>;
    constexpr int STAGE = ATile::BYTES + BTile::BYTES;
    static_assert(WIDE % 32 == 0 || TURNED, "a warp stores 8 rows of 32 columns, or 16 of 16 as rows of C");
    extern __shared__ __align__(1024) unsigned char memory[];
    mbarrier* const full = reinterpret_cast<mbarrier*>(memory + STAGES * STAGE);
    mbarrier* const empty = full + STAGES;

    const int rows = (m + HIGH - 1) / HIGH, columns = (n + WIDE - 1) / WIDE, each = rows * columns;
    const int steps = (k + ATile::DEPTH - 1) / ATile::DEPTH;
    const int rank = SPLIT > 1 ? cluster_rank() : 0, clusters = gridDim.x / SPLIT;
    const int first_step = steps * rank / SPLIT, end_step = steps * (rank + 1) / SPLIT;
    int row, column, batch;
    const auto place = [&](int number) {
        const int tile = number % each, group = GROUP * columns, first = tile / group * GROUP, height = min(rows - first, GROUP);
        batch = number / each;
        row = (first + tile % group % height) * HIGH, column = tile % group / height * WIDE;
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            full[i].init(1);
            empty[i].init(4 * GROUPS);
        }
        before_bulk_loads();
    }
    __syncthreads();
    int slot = 0;
    unsigned int parity = 0;
    const auto advance = [&]() {
        if (++slot == STAGES) slot = 0, parity ^= 1;
    };
    if (threadIdx.x < 128) {
        if constexpr (GROUPS > 1) detail::set_registers<GROUPS == 2 ? 40 : 24, false>();
        if (threadIdx.x == 0)
            for (int number = blockIdx.x / SPLIT; number < each * batches; number += clusters) {
                place(number);
                for (int step = first_step; step < end_step; ++step) {
                    // The slots are empty in the first round: the phase before the first counts as ended.
                    empty[slot].wait(parity ^ 1);
                    full[slot].arrive_expecting(STAGE);
                    unsigned char* const tile = memory + slot * STAGE;
                    ATile::load(tile, a_map, row, step * ATile::DEPTH, batch * a_step, full[slot]);
                    BTile::load(tile + ATile::BYTES, b_map, column, step * ATile::DEPTH, batch * b_step, full[slot]);
                    advance();
                }
            }
        if constexpr (SPLIT > 1) {
            // As often as the sums do.
            __syncwarp();
            for (int i = 0; i < 2; ++i) cluster_arrive_relaxed(), cluster_wait();
        }
    } else {
        if constexpr (GROUPS > 1) detail::set_registers<GROUPS == 2 ? 232 : 160, true>();
        using Made = typename detail::storage<Out>::type;
        const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, group = warp / 4;
        warpgroup_sums<T, WIDE, (FOLD > 0)> sums;
        const auto release = [&](int slot) {
            if (lane == 0) empty[slot].arrive();
        };
        for (int number = blockIdx.x / SPLIT; number < each * batches; number += clusters) {
            place(number);
            int last = slot;
            bool is_held = false;
            if constexpr (FOLD > 0) sums.clear();
            for (int step = first_step; step < end_step; ++step) {
                full[slot].wait(parity);
                const unsigned char* const tile = memory + slot * STAGE;
                const int link = FOLD > 0 ? (step - first_step) % FOLD : step - first_step;
                const bool is_last = FOLD == 1 || (FOLD > 0 && (link == FOLD - 1 || step == end_step - 1));
                sums.template add<ATile, BTile>(tile, tile + ATile::BYTES, 64 * group, link > 0);
                if (is_last) {
                    sums.template wait<0>();
                    if (is_held) release(last);
                    release(slot);
                    sums.fold();
                } else {
                    sums.template wait<ATile::IS_READ ? 4 : 1>();
                    if (is_held) release(last);
                }
                is_held = !is_last;
                last = slot;
                advance();
            }
            sums.template wait<0>();
            if (is_held) release(last);
            if constexpr (SPLIT > 1) {
                static_assert((WIDE / 16 + SPLIT - 1) / SPLIT * SPLIT * GROUPS * 128 * 32 <= STAGES * STAGE,
                              "the parts' sums fit the memory of the tiles");
                sums.template total<SPLIT, TURNED>(memory, rank, threadIdx.x - 128, GROUPS * 128);
            }
            // Of C: row and column of the tile, and how many of each there are.
            const int high = TURNED ? column : row, wide = TURNED ? row : column, height = TURNED ? n : m, width = TURNED ? m : n;
            const long long begin = (static_cast<long long>(batch) * height + high) * width + wide;
            const product_epilogue<V, V, Made, Activation, BIAS, RESIDUAL, IS_ALIGNED> epilogue{
                reinterpret_cast<const Made*>(bias + wide), reinterpret_cast<const Made*>(residual + begin),
                reinterpret_cast<Made*>(c + begin), width, scale, height - high, width - wide};
            sums.template store<ATile, SPLIT, TURNED>(epilogue, rank, 64 * group);
        }
    }
}

}  // namespace cudakit
