// What the compiled machine of the emulator has to get right, kernel by kernel.
#include <cassert>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__device__ inline int at() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void axpy(float* y, const float* x, float a, int n) {
    int i = at();
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void places(int* out) {
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int* o = out + 4 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
    o[0] = threadIdx.x, o[1] = threadIdx.y, o[2] = threadIdx.z + 100 * block;
    o[3] += 1;
}

__global__ void tiled_product(float* c, const float* a, const float* b, int n) {
    __shared__ float x[16][16], y[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        x[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += x[threadIdx.y][k] * y[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// ── lanes that part ──

__global__ void escapes(int* o, int n) {
    int i = at();
    if (i >= n) return;
    float x = 0, y = 0, a = -2 + 3.0f * i / n, b = 0.3f;
    int k = 0;
    while (k < 100 && x * x + y * y < 4) {
        float t = x * x - y * y + a;
        y = 2 * x * y + b, x = t, ++k;
    }
    o[i] = k;
}

__global__ void collatz(int* o, int n) {
    int i = at();
    if (i >= n) return;
    unsigned v = i + 1;
    int steps = 0;
    while (v != 1) v = v & 1 ? 3 * v + 1 : v >> 1, ++steps;
    o[i] = steps;
}

__global__ void nested(int* o, int n) {
    int i = at(), sum = 0;
    for (int a = 0; a < i % 7; ++a)
        for (int b = a; b < i % 5 + a; ++b) {
            if ((a + b + i) % 3 == 0) continue;
            sum += a * b + 1;
            if (sum > 40) goto out;
        }
    sum += 1000;
out:
    if (i < n) o[i] = sum;
}

__global__ void breaks(int* o, int n) {
    int i = at(), k = 0, last = -1;
    for (;; ++k) {
        if (k > 60) break;
        if (k * k > i) { last = k; break; }
        if ((k ^ i) == 37) return;
    }
    if (i < n) o[i] = last * 100 + k;
}

__global__ void short_circuit(int* o, int n) {
    int i = at();
    if (i < n && (i % 3 == 0 || (i % 5 == 1 && i > 40) || (o[i] == 0 && i % 7 == 2))) o[i] = i;
    else if (i < n) o[i] = -i;
}

__global__ void switched(int* o, int n) {
    int i = at(), v = 0;
    if (i >= n) return;
    if (i % 6 == 0) v = 3;
    else if (i % 6 == 1) v = i * i;
    else if (i % 6 == 2) { for (int k = 0; k < i % 9; ++k) v += k; }
    else if (i % 6 == 3) v = -1;
    else v = i / 7;
    o[i] = v;
}

// ── lanes that talk ──

__global__ void block_sum(int* o, const int* x) {
    __shared__ int part[32];
    int v = x[at()], lane = threadIdx.x % 32;
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = lane < blockDim.x / 32 ? part[lane] : 0;
        for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
        o[blockIdx.x] = v;
    }
}

__global__ void warp_scan(int* o, const int* x) {
    int v = x[at()], lane = threadIdx.x % 32;
    unsigned here = __activemask();
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(here, v, d);
        if (lane >= d) v += other;
    }
    o[at()] = v + __shfl_sync(here, v, 3, 8);
}

__global__ void ballots(int* o, const int* x) {
    unsigned here = __activemask(), held = __ballot_sync(here, x[at()] % 3 == 0);
    o[at()] = __popc(held) + (__any_sync(here, x[at()] == 5) ? 100 : 0) + (__all_sync(here, x[at()] < 20) ? 1000 : 0);
}

__global__ void matched(int* o, const int* x) {
    o[at()] = __match_any_sync(~0u, x[at()] % 5);
}

__global__ void parted_shuffle(int* o, const int* x) {
    int v = x[at()];
    if (v % 2) {
        unsigned odd = __activemask();
        v += __popc(odd);
    }
    v += __shfl_xor_sync(~0u, v, 1);
    if (threadIdx.x % 32 < 16) v += __shfl_down_sync(0xffffu, v, 3, 16);
    o[at()] = v;
}

__global__ void reduced(int* o, const int* x) {
    unsigned here = __activemask();
    o[at()] = __reduce_add_sync(here, x[at()]) * 10000 + __reduce_max_sync(here, x[at()]) * 100 + __reduce_min_sync(here, x[at()]);
}

// ── barriers ──

__global__ void counted(int* o) {
    int i = threadIdx.x;
    o[at()] = __syncthreads_count(i % 3 == 0) + (__syncthreads_and(i < 127) ? 1000 : 0) + (__syncthreads_or(i == 5) ? 5000 : 0);
}

__global__ void parted_barrier(int* o) {
    __shared__ int s[128];
    int i = threadIdx.x;
    if (i < 40) {
        s[i] = i;
        __syncthreads();
        o[at()] = s[39 - i];
    } else {
        s[i] = 2 * i;
        __syncthreads();
        o[at()] = s[167 - i];
    }
}

__global__ void barrier_after_exit(int* o) {
    __shared__ int s[128];
    int i = threadIdx.x;
    if (i >= 100) return;
    s[i] = i;
    __syncthreads();
    for (int k = 0; k < 3; ++k) {
        int v = s[(i + 1) % 100];
        __syncthreads();
        s[i] = v + k;
        __syncthreads();
    }
    o[at()] = s[i];
}

// ── atomics ──

__global__ void histogram(int* o, const int* x, int n) {
    __shared__ int bins[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = at(); i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&o[i], bins[i]);
}

__global__ void taken_in_turn(int* o, const int* x, int n) {
    if (at() < 63) o[1 + atomicAdd(&o[0], 1)] = x[at()] + 1;
}

__global__ void largest(int* o, const int* x, int n) {
    atomicMax(&o[0], x[at()]), atomicMin(&o[1], -x[at()]), atomicOr(&o[2], 1 << (x[at()] % 31));
    atomicXor(&o[3], x[at()] * 77), atomicInc((unsigned*)&o[4], 13), atomicDec((unsigned*)&o[5], 9), atomicExch(&o[6], 5);
}

__global__ void added(int* o, const int* x, int n) {
    atomicAdd((float*)&o[x[at()] % 4], 1.0f / (1 << x[at()] % 20));
}

__global__ void retried(int* o, const int* x, int n) {
    int* to = &o[x[at()] % 3];
    int seen = *to, was;
    do {
        was = seen;
        seen = atomicCAS(to, was, was * 3 + 1);
    } while (seen != was);
}

__global__ void locked(int* o, const int* x, int n) {
    for (int k = 0; k < 2; ++k) {
        bool done = false;
        while (!done)
            if (atomicCAS(&o[0], 0, 1) == 0) {
                __threadfence();
                *(volatile int*)&o[1] = *(volatile int*)&o[1] + 1;
                __threadfence();
                atomicExch(&o[0], 0);
                done = true;
            }
    }
}

// ── threads that wait for others ──

__global__ void in_order(volatile int* turn, int* o) {
    if (threadIdx.x == 0) {
        while (turn[0] != blockIdx.x) {}
        o[blockIdx.x] = blockIdx.x * 10;
        __threadfence();
        turn[0] = blockIdx.x + 1;
    }
    __syncthreads();
    o[at()] += 1;
}

__global__ void in_reverse(volatile int* turn, int* o) {
    int block = gridDim.x - 1 - blockIdx.x;
    if (threadIdx.x == 0) {
        while (turn[0] != block) {}
        turn[0] = block + 1;
        __threadfence();
    }
    __syncthreads();
    o[at()] = block + 1;
}

__global__ void by_warps(volatile int* turn, int* o) {
    __shared__ volatile int next;
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) next = 3;
    __syncthreads();
    while (next != warp) {}
    o[at()] = warp;
    __syncwarp();
    if (threadIdx.x % 32 == 0) next = warp - 1;
    __syncthreads();
    o[at()] += next;
}

__global__ void all_at_once(volatile int* turn, int* o) {
    while (turn[0] != gridDim.x - 1 - blockIdx.x) {}
    __syncthreads();
    o[at()] = 1;
    if (threadIdx.x == 0) turn[0] = turn[0] + 1;
}

// ── calls ──

struct Three { int a; float b; double c; };
__device__ __noinline__ int chosen(int a, int b) { return a > b ? a * b : a - b; }
__device__ __noinline__ Three changed(Three p, int k) { p.a += k, p.b *= 2, p.c -= k; return p; }

__global__ void calls(int* o) {
    int i = threadIdx.x, sum = 0;
    for (int k = 0; k < i % 11; ++k) sum += chosen(k, i - k);
    Three p = changed(Three{i, 1.5f * i, 2.0 * i}, sum);
    o[at()] = chosen(sum, p.a) + int(p.b) + int(p.c);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursive(int* o) { o[threadIdx.x] = fibonacci(threadIdx.x % 8); }

// ── computing ──

__global__ void mathematics(float* o, const float* x) {
    float v = x[at()], a = fabsf(v);
    o[at()] = __expf(v) + __logf(a) + __sinf(v) * __cosf(v) + tanhf(v) + rsqrtf(a + 1) + __fdividef(v, 3.0f) + v / 7 + sqrtf(a)
        + fminf(v, 1) * fmaxf(v, -2) + 1 / (a + 2) + floorf(v) + rintf(v);
}

__global__ void half_precision(float* o, const float* x) {
    __half h = __float2half(x[at()]);
    __half2 two = __hfma2(__halves2half2(h, h * h), __float2half2_rn(0.5f), __halves2half2(h, h));
    two = __hadd2(two, __hmul2(two, two));
    __nv_bfloat16 b = __float2bfloat16(x[at()]);
    o[at()] = __half2float(__hmax(__low2half(two), __high2half(two))) + __bfloat162float(b * b + b) + (h > __float2half(1) ? 1 : 0);
}

__global__ void converted(float* o, const float* x) {
    float v = x[at()];
    double d = v;
    long long l = (long long)v;
    o[at()] = (float)(int)v + (float)(unsigned)v + (float)l + (float)(short)(int)v + (float)(d * d) + (float)(unsigned char)(int)v
        + (float)(unsigned long long)fabsf(v) + (float)__float2int_rn(v) + (float)__double2int_rd(d / 3);
}

__global__ void bits(float* o, const float* x) {
    unsigned u = __float_as_uint(x[at()]), w = u * 2654435761u;
    int s = (int)w;
    unsigned long long l = ((unsigned long long)u << 32) | w;
    unsigned r = __popc(u) + __clz(w) + __ffs(u) + __brev(w) + __byte_perm(u, w, 0x5a3c) + __funnelshift_l(u, w, w & 63)
        + (u >> (w & 31)) + (s >> 3) + u / (w | 1) + s / (int)(u | 1) + u % 7 + s % 11 + __umulhi(u, w) + __mulhi(s, (int)u)
        + (unsigned)(l / 12345) + (unsigned)(l % 977) + __popcll(l) + __clzll(l) + __dp4a((int)u, s, 3) + min(s, (int)u) + max(u, w)
        + __usad(u, w, 0) * 0;
    o[at()] = __uint_as_float(r & 0x3fffffff);
}

__global__ void rounded(float* o, const float* a, const float* b, const float* c) {
    int i = at();
    o[0 * 2048 + i] = __fadd_rn(a[i], b[i]);
    o[1 * 2048 + i] = __fadd_rz(a[i], b[i]);
    o[2 * 2048 + i] = __fadd_rd(a[i], b[i]);
    o[3 * 2048 + i] = __fadd_ru(a[i], b[i]);
    o[4 * 2048 + i] = __fsub_rn(a[i], c[i]);
    o[5 * 2048 + i] = __fsub_rz(a[i], c[i]);
    o[6 * 2048 + i] = __fsub_rd(a[i], c[i]);
    o[7 * 2048 + i] = __fsub_ru(a[i], c[i]);
    o[8 * 2048 + i] = __fmul_rn(a[i], b[i]);
    o[9 * 2048 + i] = __fmul_rz(a[i], b[i]);
    o[10 * 2048 + i] = __fmul_rd(a[i], b[i]);
    o[11 * 2048 + i] = __fmul_ru(a[i], b[i]);
    o[12 * 2048 + i] = __fmaf_rn(a[i], b[i], c[i]);
    o[13 * 2048 + i] = __fmaf_rz(a[i], b[i], c[i]);
    o[14 * 2048 + i] = __fmaf_rd(a[i], b[i], c[i]);
    o[15 * 2048 + i] = __fmaf_ru(a[i], b[i], c[i]);
}

// Indices of 32 bits that wrap around in some vectors, read in 64.
__global__ void wrapped(unsigned long long* wide, int* o, const int* x, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    wide[i] = (unsigned long long)(i - 7u) * 4 + 3;
    long long back = (long long)(int)(0x7ffffff0u + i) - 5;
    wide[n + i] = back;
    if (i >= 7u) o[i] = x[i - 7u];
    if (i % 3 == 0) o[n + i] = x[(size_t)(i * 2u) % n] + x[n - 1 - i];
}

// Counters of loops that lanes leave at different turns: asked for within, behind, and set anew by an outer loop.
__global__ void strided(int* o, const int* x, int n) {
    int sum = 0, t = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    for (int i = t; i < n; i += 64) sum += x[i];
    o[t] = sum;
    int last = t;
    while (last < n && x[last] % 5) last += 64;
    o[all + t] = last;
    int turns = 0;
    for (int a = 0; a < t % 7; ++a)
        for (int b = a; b < t % 5; ++b) {
            if ((a + b + t) % 3 == 0) continue;
            if (x[(a * 8 + b) % n] == 11) break;
            turns += a * 16 + b;
        }
    o[2 * all + t] = turns;
    int k = t % 4;
    for (int a = 0; a < 3; ++a) {
        if (t & 1) k = a;
        while (k < t % 9 + a) { turns ^= k * 5; ++k; }
    }
    o[3 * all + t] = turns + k;
}

// Sums of ever wider neighbourhoods: lanes that have no neighbour, whose index lies before the beginning.
__global__ void widening(int* o, const int* x) {
    __shared__ int s[2][128];
    int t = threadIdx.x, now = 0, kept = t * 3;
    s[0][t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        int sum = s[now][t];
        if (t >= d) sum += s[now][t - d];
        s[1 - now][t] = sum;
        if (t % 11 == d % 11) kept += sum;
        now = 1 - now;
        __syncthreads();
    }
    o[blockIdx.x * 128 + t] = s[now][t] + kept;
}

// Four at a time, the last lanes without the others; and bytes beside words.
__global__ void by_fours(int4* o, const int4* x, const unsigned char* octets, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int4 v = x[i];
    o[i] = make_int4(v.w + octets[4 * i], v.z + octets[4 * i + 1], v.y + octets[4 * i + 2], v.x + octets[4 * i + 3]);
}

// ── asynchronous copies ──

__device__ unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

#define COPY(bytes, form, to, from, last)                                                                     \
    asm volatile("cp.async." form ".shared.global [%0], [%1], " #bytes last ";" :: "r"(shared(to)), "l"(from) \
                 : "memory")
#define COPY_SOME(bytes, form, to, from, used)                                              \
    asm volatile("cp.async." form ".shared.global [%0], [%1], " #bytes ", %2;"              \
                 :: "r"(shared(to)), "l"(from), "r"(used) : "memory")

// Whole, in part, and none; in rows, at the same place and anywhere; by all lanes and by some.
__global__ void copied(int4* o, const int4* x, int n) {
    extern __shared__ int4 dynamic[];
    auto s = (int4(*)[64])dynamic;
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    for (int row = 0; row < 6; ++row) s[row][t] = make_int4(-1, -2, -3, -4);
    __syncthreads();
    COPY(16, "cg", &s[0][t], x + i, "");
    COPY(8, "ca", &s[1][63 - t], x + blockIdx.x, "");
    if (i < n) COPY(4, "ca", &s[2][t * 5 % 64], x + i * 3 % n, "");
    COPY_SOME(16, "cg", &s[3][t], x + i, i < n ? 16 : 0);
    COPY_SOME(16, "cg", &s[4][t], x + i, t % 17);
    if (t % 3) COPY_SOME(8, "ca", (int2*)&s[5][t] + 1, x + i, t % 9);
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int row = 0; row < 6; ++row) o[(blockIdx.x * 6 + row) * 64 + t] = s[row][63 - t];
}

// ── what whole vectors have in common ──

// Numbers of warps and lanes, and bounds that no warp lies across: all lanes have the same, but where it is not so.
__global__ void by_warp_and_lane(int* o, const int* x) {
    int t = threadIdx.x, warp = t >> 5, lane = t & 31, half = t >> 4, low = t & 15, odd = t & 21, most = t & ~31;
    int sum = warp * 1000 + lane + half * 7 + low * 3 + odd + most;
    if (t < 64) sum += x[warp];
    if (t >= 96) sum -= x[lane];
    if (t <= 31) sum ^= 5;
    if (t > 63) sum ^= 9;
    if (t < 40) sum += 100000;
    if (t <= 64) sum += 200000;
    if (t > 64) sum ^= 400000;
    sum += (t & 48) * 11 + (t & 95) * 13 + x[t & 95] + x[t & 48];
    if (t < 0) sum = 0;
    if (t > 2147483646) sum = 1;
    o[at()] = sum;
}

// What begins an index of a loop is asked for behind it, and before; two loops over the same register.
__global__ void begun_anew(int* o, const int* x, int n) {
    int i = at(), all = gridDim.x * blockDim.x;
    int first = i < n ? x[i] : -1, sum = 0;
    for (; i < n; i += all) sum += x[i] * (i & 3);
    o[at()] = sum + first;
    for (int k = at() * 4; k < n; k += all * 4)
        for (int j = k; j < n && j < k + 4; ++j) o[all + j] = x[j] + j;
    int k = n - 1 - at();
    while (k >= 0) { if (x[k] > 20) break; k -= all; }
    o[all + n + at()] = k;
}

// Addresses that are looked at by their last bits, in the whole vector alike, and not.
__global__ void by_alignment(int* o, const int* x, int n) {
    const int* from = x + 4 * at();
    if (((unsigned long long)from & 15) == 0 && at() * 4 + 4 <= n) {
        int4 v = *(const int4*)from;
        o[at()] = v.x + v.y * 2 + v.z * 3 + v.w * 4;
    } else o[at()] = -1;
    const int* odd = x + 3 * at();
    o[gridDim.x * blockDim.x + at()] = (int)((unsigned long long)odd & 15) - (int)((unsigned long long)x & 15);
}

// Lanes that leave a loop within a loop apart have to meet before the barrier behind it.
__global__ void parted_within(int* o, const int* x, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int turn = 0; turn < 3; ++turn) {
        for (int k = 0; k < x[(t + turn) % n] % 7; ++k) { sum += k * t; if (sum % 13 == 5) break; }
        s[t] = sum;
        __syncthreads();
        sum += s[63 - t];
        __syncthreads();
        if (__any_sync(~0u, sum % 11 == turn)) sum += 1;
    }
    o[at()] = sum;
}

// A table that comes by value, read at places that differ from lane to lane.
struct Table { int of[24]; short small[8]; double wide; };
__global__ void by_value(int* o, const __grid_constant__ Table table, const int* x) {
    int v = x[at()];
    o[at()] = table.of[v % 24] + table.small[v & 7] * 100 + (int)(table.wide * v) + table.of[threadIdx.x % 3];
}
__global__ void beyond_its_value(int* o, const __grid_constant__ Table table, const int* x) { o[at()] = table.of[x[at()] + 4000]; }

// ── errors ──

__global__ void outside(int* x) { x[at()] = 1; }
__global__ void outside_shared(int* x) {
    __shared__ int s[8];
    s[1000 * threadIdx.x] = x[0];
    __syncthreads();
    x[0] = s[0];
}
__global__ void misaligned(char* x) { *(int*)(x + 1 + threadIdx.x) = 1; }
__global__ void trapped(int* x) { if (threadIdx.x == 5) __trap(); }
__global__ void added_outside(int* x) { atomicAdd(x + threadIdx.x, 1); }
__global__ void null(int** p) { *p[0] = 1; }
__global__ void asserted(int* o, int n) {
    int i = threadIdx.x;
    o[at()] = i;
    assert(i < n);
}
__global__ void told() { if (threadIdx.x % 7 == 0) printf("block %d lane %d: %f\n", blockIdx.x, threadIdx.x, threadIdx.x * 0.5); }
__global__ void from_block(int* x) {
    if (blockIdx.x >= 37 && threadIdx.x == 0) __trap();
    x[at()] = 1;
}

// Reads past the end in a turn of a loop that some lanes still run.
__global__ void past_the_end(int* o, const int* x, int n) {
    int sum = 0;
    for (int i = threadIdx.x; i < n + (threadIdx.x == 9); i += 32) sum += x[i];
    o[threadIdx.x] = sum;
}

__global__ void copied_from_outside(int* x) {
    __shared__ int4 s[32];
    COPY(16, "cg", s + threadIdx.x, (int4*)x + threadIdx.x, "");
}
__global__ void copied_too_far(int* x) {
    __shared__ int4 s[32];
    COPY(16, "cg", s + 64 * threadIdx.x, x, "");
}
__global__ void copied_beside(int* x) {
    __shared__ int s[64];
    COPY(8, "ca", s + threadIdx.x, x, "");
}
__global__ void copied_from_beside(int2* x) {
    __shared__ int4 s[32];
    COPY(16, "cg", s + threadIdx.x, x + threadIdx.x, "");
}
__global__ void copied_too_much(int* x) {
    __shared__ int4 s[32];
    COPY_SOME(8, "ca", s + threadIdx.x, x, 9);
}
__global__ void copied_in_part_from_outside(int* x) {
    __shared__ int4 s[32];
    COPY_SOME(16, "cg", s + threadIdx.x, (int4*)x + threadIdx.x, threadIdx.x == 5 ? 3 : 0);
}

// ── whole vectors ──

// What lies in a row beside one number, either way round, at the ends of both ranges.
#define BESIDE(k, a, b) \
    if (a < b) o[(k + 0) * n + t] = 1; \
    if (a <= b) o[(k + 1) * n + t] = 1; \
    if (a > b) o[(k + 2) * n + t] = 1; \
    if (a >= b) o[(k + 3) * n + t] = 1; \
    if (a == b) o[(k + 4) * n + t] = 1; \
    if (a != b) o[(k + 5) * n + t] = 1;
__global__ void beside(int* o, unsigned first, unsigned other, long long far) {
    int n = gridDim.x * blockDim.x, t = at();
    unsigned u = first + t, d = first - 3 * t;
    int s = (int)u, m = (int)other;
    long long w = far + 5 * (long long)s;
    BESIDE(0, u, other) BESIDE(6, s, m) BESIDE(12, m, s) BESIDE(18, d, other) BESIDE(24, w, (long long)m) BESIDE(30, other, u)
    if (u < other && s > 7) o[36 * n + t] = 1;
    if (u < other || s > 7) o[37 * n + t] = 1;
    if (!(u < other) || blockIdx.x == 1) o[38 * n + t] = 1;
    for (int i = s; i < m && i < s + 40; i += 5) o[39 * n + t] += 1;
}

__global__ void framed(int* o, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    o[y * w + x] = blockIdx.y * 10000 + blockIdx.x * 100 + threadIdx.y * 10 + threadIdx.z + 1;
}

// Each block but the first fails in its own row of threads, later blocks earlier.
__global__ void fails_by_rows(int* o, int from) {
    int b = blockIdx.x, i = (b * 8 + threadIdx.y) * 32 + threadIdx.x;
    if (b >= from && threadIdx.y == 7 - b % 8) __trap();
    o[i] = 1;
}

// By one warp, whose lanes come in their order on both machines.
__global__ void each_operation(int* o, const int* x, int n) {
    __shared__ unsigned s[64];
    for (int i = threadIdx.x; i < 64; i += 32) s[i] = x[i] * 77;
    __syncwarp();
    for (int i = at(); i < n; i += gridDim.x * blockDim.x) {
        unsigned v = x[i] * 2654435761u, at = x[i] % 13;
        v += atomicAdd(&s[at], v), v ^= atomicMin(&s[at + 13], v), v += atomicMax((int*)&s[at + 26], (int)v);
        v ^= atomicAnd(&s[at + 39], v | 0xf0f0), v += atomicOr(&s[at + 40], v & 0xff), v ^= atomicXor(&s[at + 41], v);
        v += atomicExch(&s[at + 50], v);
        atomicAdd(&o[v % 64], 1), atomicMax(&o[v / 64 % 64], (int)v), atomicXor(&o[x[i]], v);
    }
    __syncwarp();
    for (int i = threadIdx.x; i < 64; i += 32) atomicAdd(&o[i], s[i]);
}
__global__ void added_past(int* o, const int* x) {
    __shared__ int s[16];
    atomicAdd(&s[x[threadIdx.x]], 1);
    o[threadIdx.x] = s[threadIdx.x % 16];
}

// Loads from anywhere, by some of the lanes; the others' pointers lead nowhere.
template <typename T>
__global__ void fetched(T* out, const T* in, const int* where, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const T* place = where[i] < 0 ? nullptr : in + where[i];
    T sum = in[n - 1 - i] + in[(size_t)i * 37 % n];
    if (place != nullptr) sum += *place;
    if (i % 3 != 1) sum += in[i * 5 % n];
    out[i] = sum;
}
