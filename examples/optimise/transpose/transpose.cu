// out[c, r] = x[r, c] for a matrix of `rows` × `columns` floats, by three kernels: naive, coalesced and fast.
//
// Memory is read and written by sectors of 32 bytes. A warp whose 32 lanes touch 32 sectors moves 1024 bytes and uses 128.
// In a transposition neighbours in x are not neighbours in out, unless threads exchange elements in between.
//
// Preconditions of all three: x is (rows, columns), out is (columns, rows), both C-contiguous, without overlap. Rows and
// columns are multiples of 64, and the arrays begin at multiples of 16 bytes. cudakit.ops.transpose needs none of this.

// Step 1, naive: one thread for each element.
//
// Launch: (columns / 32, rows / 8) blocks of 32 × 8 threads.
// A warp reads 32 neighbours in a row of x: 4 sectors. It writes them to a column of out, `rows` floats apart: 32 sectors,
// and it uses 4 bytes of each.
__global__ void naive(const float* __restrict__ x, float* __restrict__ out, long long rows, long long columns) {
    const long long r = blockIdx.y * 8ll + threadIdx.y, c = blockIdx.x * 32ll + threadIdx.x;
    out[c * rows + r] = x[r * columns + c];
}

// Step 2, coalesced: a block reads a tile of 32 × 32 into shared memory, and writes it transposed.
//
// Launch: (columns / 32, rows / 32) blocks of 32 × 8 threads, four rows of the tile a thread.
// Both the reads and the writes of a warp are 32 neighbours: 4 sectors. But shared memory has 32 banks of 4 bytes, and the
// elements of a column of the tile are all in one bank: the 32 lanes take turns, a conflict of 32 ways. And a load of a
// thread has only 4 bytes.
__global__ void coalesced(const float* __restrict__ x, float* __restrict__ out, long long rows, long long columns) {
    __shared__ float tile[32][32];
    const long long top = blockIdx.y * 32ll, left = blockIdx.x * 32ll;
    for (int r = threadIdx.y; r < 32; r += 8) tile[r][threadIdx.x] = x[(top + r) * columns + left + threadIdx.x];
    __syncthreads();
    for (int c = threadIdx.y; c < 32; c += 8) out[(left + c) * rows + top + threadIdx.x] = tile[threadIdx.x][c];
}

// Step 3, fast: tiles of 64 × 64, accesses of 16 bytes, no bank conflicts, and neighbouring blocks write whole rows of out.
//
// Launch: rows / 64 · columns / 64 blocks of 256 threads, four chunks of 16 bytes in each thread.
// Chunk q of row r of the tile (floats 4q … 4q + 3) is stored at position q ^ r / 4 of its row. The chunks of a row are in
// different banks, so a row is stored by 16 bytes. In a column, lane i of eight reads rows 4i … 4i + 3, and the chunks of
// the eight lanes are at eight different positions: no bank is used twice. Padding each row by one float would avoid the
// conflicts as well, but the chunks of 16 bytes would not be aligned.
// Each thread has four loads under way before it waits for the first. Blocks go down the columns of x, so blocks that run
// at the same time write neighbouring parts of the same rows of out.
__global__ void __launch_bounds__(256, 6)
    fast(const float* __restrict__ x, float* __restrict__ out, long long rows, long long columns) {
    __shared__ float4 tile[64][16];
    const unsigned int down = static_cast<unsigned int>(rows / 64);
    const long long top = blockIdx.x % down * 64ll, left = blockIdx.x / down * 64ll;
    const int thread = threadIdx.x;

    float4 chunk[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int r = thread / 16 + 16 * j, q = thread % 16;
        chunk[j] = *reinterpret_cast<const float4*>(x + (top + r) * columns + left + 4 * q);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int r = thread / 16 + 16 * j, q = thread % 16;
        tile[r][q ^ r / 4] = chunk[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        // Eight lanes along a row of out, 128 bytes; a warp does four rows.
        const int group = thread / 8 + 32 * j, c = group % 64, q = group / 64 * 8 + thread % 8;
        float down_column[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
            down_column[k] = reinterpret_cast<const float*>(&tile[4 * q + k][c / 4 ^ q])[c % 4];
        const float4 written = make_float4(down_column[0], down_column[1], down_column[2], down_column[3]);
        __stwb(reinterpret_cast<float4*>(out + (left + c) * rows + top + 4 * q), written);  // never split in four
    }
}
