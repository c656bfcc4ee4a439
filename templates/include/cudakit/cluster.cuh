// Blocks of a cluster (compute capability 9.0 and later): their barrier, and each other's shared memory.
#pragma once

namespace cudakit {

/// The number of this block in its one-dimensional cluster.
__device__ inline unsigned int cluster_rank() {
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// Says that this thread has come so far; what it wrote before is visible to those who then have waited.
__device__ inline void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// As `cluster_arrive`, for reads alone: what this thread wrote before need not be visible. Costs no fence.
__device__ inline void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// Waits until all threads of the cluster have arrived as often as this one.
__device__ inline void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The same variable of shared memory in block `rank` of the cluster.
template <typename T>
__device__ T* cluster_shared(T* own, unsigned int rank) {
    unsigned long long there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(reinterpret_cast<unsigned long long>(own)), "r"(rank));
    return reinterpret_cast<T*>(there);
}

}  // namespace cudakit
