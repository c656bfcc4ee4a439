// Barriers of a part of a block, barriers in shared memory, and copies that complete on them.
typedef unsigned long long u64;

__device__ inline int at() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ── named barriers ──

template <int number, int count> __device__ void meet() { asm volatile("bar.sync %0, %1;" :: "n"(number), "n"(count) : "memory"); }
template <int number, int count> __device__ void come() { asm volatile("bar.arrive %0, %1;" :: "n"(number), "n"(count) : "memory"); }

// Two teams of a block, each with a barrier of its own, that meet a different number of times.
__global__ void teams(int* o) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = t;
    if (t < 64) {
        for (int k = 0; k < 5; ++k) {
            meet<1, 64>();
            int v = s[(t + 1) % 64];
            meet<1, 64>();
            s[t] = v + k;
        }
    } else {
        for (int k = 0; k < 2; ++k) {
            meet<2, 64>();
            int v = s[64 + (t + 3) % 64];
            meet<2, 64>();
            s[t] = v * 3;
        }
    }
    __syncthreads();
    o[at()] = s[127 - t];
}

// The first warp waits at a barrier while another one is met: it must not take that for its own.
__global__ void met_elsewhere(int* o) {
    __shared__ int s[32];
    int t = threadIdx.x, lane = t % 32;
    if (t < 32) s[lane] = -1;
    __syncthreads();
    if (t < 32) { meet<1, 64>(); o[at()] = s[lane]; return; }
    meet<2, 64>();
    if (t < 64) { s[lane] = 7 * lane; meet<1, 64>(); }
    o[at()] = lane;
}

// A warp fills, the others use: who fills does not wait until it is used, and the other way round.
__global__ void filled_and_used(int* o, int rounds) {
    __shared__ int s[2][32];
    int t = threadIdx.x, sum = 0;
    if (t < 32) {
        for (int k = 0; k < rounds; ++k) {
            if (k % 2 == 0) meet<3, 96>(); else meet<4, 96>();
            s[k % 2][t] = k * 100 + t;
            if (k % 2 == 0) come<5, 96>(); else come<6, 96>();
        }
    } else {
        come<3, 96>(), come<4, 96>();
        for (int k = 0; k < rounds; ++k) {
            if (k % 2 == 0) meet<5, 96>(); else meet<6, 96>();
            sum = sum * 7 + s[k % 2][t % 32];
            if (k + 2 < rounds) { if (k % 2 == 0) come<3, 96>(); else come<4, 96>(); }
        }
    }
    o[at()] = sum;
}

// Who comes to a barrier that the others do not come to waits forever.
__global__ void left_alone(int* o) {
    if (threadIdx.x < 32) meet<1, 64>();
    else meet<2, 64>();
    o[at()] = 1;
}
__global__ void one_too_few(int* o) {
    if (threadIdx.x < 32) meet<1, 96>();
    else come<1, 96>();
    o[at()] = 1;
}

// ── barriers in shared memory ──

__device__ void init(u64* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void inval(u64* bar) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(shared(bar)) : "memory"); }
__device__ u64 arrive(u64* bar) {
    u64 word;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(word) : "r"(shared(bar)) : "memory");
    return word;
}
__device__ u64 arrive(u64* bar, int count) {
    u64 word;
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;" : "=l"(word) : "r"(shared(bar)), "r"(count) : "memory");
    return word;
}
__device__ void drop(u64* bar) { asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" :: "r"(shared(bar)) : "memory"); }
__device__ void expect(u64* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ void expect_more(u64* bar, int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ void complete(u64* bar, int bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ unsigned pending(u64 word) {
    unsigned count;
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(word));
    return count;
}
__device__ bool is_over(u64* bar, u64 word) {
    int over;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(shared(bar)), "l"(word) : "memory");
    return over;
}
__device__ void wait(u64* bar, int phase) {
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;"
                 " @!p bra AGAIN; }" :: "r"(shared(bar)), "r"(phase) : "memory");
}

// All arrive, round after round, and read what the others wrote.
__global__ void rounds(int* o, int many) {
    __shared__ u64 bar;
    __shared__ int s[128];
    int t = threadIdx.x;
    if (t == 0) init(&bar, blockDim.x);
    s[t] = t;
    __syncthreads();
    for (int k = 0; k < many; ++k) {
        u64 word = arrive(&bar);
        while (!is_over(&bar, word)) {}
        int v = s[(t + 5) % blockDim.x];
        arrive(&bar);
        wait(&bar, 1);
        s[t] = v + k;
    }
    __syncthreads();
    o[at()] = s[t];
}

// What each finds: arrivals one after the other, more than one at once, and those that go for good.
__global__ void words(u64* o) {
    __shared__ u64 bar[2];
    int t = threadIdx.x;
    if (t < 2) init(&bar[t], 40 + 60 * t);
    __syncthreads();
    u64* own = o + 8 * at();
    if (t % 3 == 0) own[0] = arrive(&bar[0]);
    __syncwarp();
    if (t % 3 == 1) own[1] = arrive(&bar[t % 2], 2);
    own[2] = t % 3 ? pending(own[1]) : pending(own[0]);
    if (t == 7) { expect_more(&bar[1], 48); drop(&bar[1]); }
    __syncthreads();
    own[3] = bar[0], own[4] = bar[1];
    __syncthreads();
    if (t == 9) complete(&bar[1], 48);
    if (t > 20) own[5] = arrive(&bar[1]);
    __syncthreads();
    own[6] = bar[1], own[7] = is_over(&bar[1], own[5]);
    __syncthreads();
    if (t < 2) inval(&bar[t]);
}

// All have arrived, and bytes are owed: the phase is over once they have come, whoever says so first.
__global__ void owing(int* o) {
    __shared__ u64 bar[2];
    int t = threadIdx.x;
    if (t == 0) { init(&bar[0], 1), init(&bar[1], 2); expect(&bar[0], 48); complete(&bar[1], 16); }
    __syncthreads();
    u64 before[2] = {0, 0};  // phase 0
    int found = is_over(&bar[0], before[0]) + 10 * is_over(&bar[1], before[1]);
    __syncthreads();
    if (t == 1) { complete(&bar[0], 32); arrive(&bar[1], 2); }
    __syncthreads();
    found += 100 * is_over(&bar[0], before[0]) + 1000 * is_over(&bar[1], before[1]);
    __syncthreads();
    if (t == 2) { complete(&bar[0], 16); expect_more(&bar[1], 16); }
    __syncthreads();
    found += 10000 * is_over(&bar[0], before[0]) + 100000 * is_over(&bar[1], before[1]);
    o[at()] = found;
}

// A ring of two tiles: one thread asks for copies, the others use them.
__global__ void ring(int* o, const int* x, int tiles) {
    __shared__ alignas(128) int s[2][64];
    __shared__ u64 full[2], empty[2];
    int t = threadIdx.x, sum = 0;
    if (t == 0) for (int k = 0; k < 2; ++k) { init(&full[k], 1); init(&empty[k], 64); }
    __syncthreads();
    if (t >= 64) {
        if (t == 64)
            for (int k = 0; k < tiles; ++k) {
                if (k >= 2) wait(&empty[k % 2], k / 2 - 1 & 1);
                expect(&full[k % 2], 256);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                    :: "r"(shared(s[k % 2])), "l"(x + (blockIdx.x * tiles + k) * 64), "r"(shared(&full[k % 2])) : "memory");
            }
    } else {
        for (int k = 0; k < tiles; ++k) {
            wait(&full[k % 2], k / 2 & 1);
            sum = sum * 3 + s[k % 2][63 - t];
            arrive(&empty[k % 2]);
        }
        o[blockIdx.x * 64 + t] = sum;
    }
}

// Back to global memory, by lanes of a warp, each its own piece.
__global__ void stored(int* o, const int* x) {
    __shared__ alignas(16) int s[32][8];
    int t = threadIdx.x;
    for (int k = 0; k < 8; ++k) s[t][k] = x[at() * 8 + k] + k;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t % 3) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
            :: "l"(o + (blockIdx.x * 32 + 31 - t) * 8), "r"(shared(s[t])), "r"(t % 2 ? 32 : 16) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// One lane of those that are there.
__global__ void elected(int* o) {
    int t = threadIdx.x;
    unsigned here = __activemask();
    if (t % 5 > 1) {
        unsigned leader, mask = __ballot_sync(__activemask(), 1);
        int chosen;
        asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.s32 %1, 1, 0, p; }" : "=r"(leader), "=r"(chosen) : "r"(mask));
        o[at()] = 100 + leader * 10 + chosen;
    } else o[at()] = here != 0;
}

// ── errors ──

__global__ void never_made(int* o) {
    __shared__ u64 bar;
    bar = 0;
    __syncwarp();
    if (threadIdx.x == 3) arrive(&bar);
}
__global__ void waited_for_none(int* o) {
    __shared__ u64 bar;
    bar = 0;
    __syncwarp();
    if (threadIdx.x == 3) o[0] = is_over(&bar, 0);
}
__global__ void for_nobody(int* o) {
    __shared__ u64 bar;
    if (threadIdx.x == 4) init(&bar, o[0]);
}
__global__ void too_many(int* o) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 20);
    __syncwarp();
    if (threadIdx.x == 7) arrive(&bar, 21);
}
__global__ void gone(int* o) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 20); inval(&bar); *(volatile u64*)&bar = 0; }
    __syncwarp();
    arrive(&bar);
}
__global__ void beside_it(int* o) {
    __shared__ u64 bar[4];
    if (threadIdx.x == 0) init(bar, 32);
    __syncwarp();
    arrive((u64*)((char*)bar + threadIdx.x));
}
__global__ void far_from_it(int* o) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 32);
    __syncwarp();
    arrive(&bar + 5000 * (threadIdx.x / 31));
}
__global__ void owing_too_much(int* o) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 32); expect_more(&bar, 1 << 20); }
}

#define BULK(to, from, size, bar)                                                                          \
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \
                 :: "r"(shared(to)), "l"(from), "r"(size), "r"(shared(bar)) : "memory")
__device__ void bulk(int* o, int to, int from, int size) {
    __shared__ alignas(16) int s[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); BULK(s + to, o + from, size, &bar); }
    __syncthreads();
    o[threadIdx.x] = s[threadIdx.x];
}
__global__ void bulk_from_outside(int* o) { bulk(o, 0, 32, 256); }
__global__ void bulk_too_far(int* o) { bulk(o, 16384, 0, 64); }
__global__ void bulk_beside(int* o) { bulk(o, 0, 1, 64); }
__global__ void bulk_to_beside(int* o) { bulk(o, 2, 0, 64); }
__global__ void bulk_of_a_part(int* o) { bulk(o, 0, 0, 20); }
__global__ void bulk_on_none(int* o) {
    __shared__ alignas(16) int s[64];
    __shared__ u64 bar;
    bar = 0;
    __syncwarp();
    if (threadIdx.x == 0) BULK(s, o, 64, &bar);
}
__global__ void bulk_out(int* o) {
    __shared__ alignas(16) int s[64];
    s[threadIdx.x] = s[threadIdx.x + 32] = 5;
    __syncwarp();
    if (threadIdx.x == 5)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" :: "l"(o + 8), "r"(shared(s)) : "memory");
}
