// Barriers in shared memory that count arrivals and bytes, and copies that report to them (compute capability 8.0 and
// later).
#pragma once

namespace cudakit {

namespace detail {
__device__ inline unsigned int shared_address(const void* pointer) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(pointer));
}
}  // namespace detail

/// One phase after the other: each ends when `count` threads have arrived and all expected bytes are there.
struct mbarrier {
    unsigned long long state;

    /// By one thread; then the block synchronises.
    __device__ void init(unsigned int count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(count) : "memory");
    }
    __device__ void arrive() {
        unsigned long long token;
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(address()) : "memory");
    }
    /// The phase also waits for `bytes` of bulk_load.
    __device__ void arrive_expecting(unsigned int bytes) {
#if __CUDA_ARCH__ >= 900
        unsigned long long token;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"
                     : "=l"(token)
                     : "r"(address()), "r"(bytes)
                     : "memory");
#else
        arrive();
#endif
    }
    /// Until the phase of this parity has ended; what was written before its arrivals is then visible. Phases count
    /// from 0.
    __device__ void wait(unsigned int parity) {
        unsigned int done;
        do {
#if __CUDA_ARCH__ >= 900
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                         : "=r"(done)
                         : "r"(address()), "r"(parity)
                         : "memory");
        } while (!done);
    }

private:
    __device__ unsigned int address() const { return detail::shared_address(this); }
};

/// Copy `bytes` from global to shared memory; both addresses and `bytes` are multiples of 16. Every lane of a warp
/// calls it, then lane 0 arrives at `barrier`, expecting the bytes: on 9.0 and later the copy goes on by itself.
__device__ inline void bulk_load(void* shared, const void* global, unsigned int bytes, mbarrier& barrier) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         detail::shared_address(shared)),
                     "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(detail::shared_address(&barrier))
                     : "memory");
#else
#pragma unroll 8
    for (unsigned int i = threadIdx.x % 32; i < bytes / 16; i += 32)
        static_cast<uint4*>(shared)[i] = static_cast<const uint4*>(global)[i];
#endif
}

/// By threads that have written to shared memory themselves, where bulk_load later writes.
__device__ inline void before_bulk_loads() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace cudakit
