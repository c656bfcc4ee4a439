// Copies from global to shared memory, several on their way at once.
#pragma once

#include <cudakit/pack.cuh>

namespace cudakit {

namespace detail {
template <int BYTES>
inline constexpr bool IS_COPIED_BEHIND = BYTES == 4 || BYTES == 8 || BYTES == 16;
}  // namespace detail

/// COUNT neighbours, of which `present` are there and the others 0; behind the thread's back where the hardware can.
template <int COUNT, typename T>
__device__ __forceinline__ void stage(T* shared, const T* source, int present) {
#if __CUDA_ARCH__ >= 800
    constexpr int BYTES = COUNT * sizeof(T);
    if constexpr (detail::IS_COPIED_BEHIND<BYTES>) {
        const unsigned int to = static_cast<unsigned int>(__cvta_generic_to_shared(shared));
        const int bytes = present * static_cast<int>(sizeof(T));
        if constexpr (BYTES == 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(bytes) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(source), "n"(BYTES), "r"(bytes)
                         : "memory");
        return;
    }
#endif
    pack<T, COUNT> values{};
    if (present == COUNT)
        values = load_pack<COUNT>(source);
    else
#pragma unroll
        for (int e = 0; e < COUNT; ++e)
            if (e < present) values.values[e] = source[e];
    *reinterpret_cast<pack<T, COUNT>*>(shared) = values;
}

/// What a thread has staged so far is one more group.
__device__ __forceinline__ void close_stage() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until all of a thread's groups but the last `LATER` are in shared memory.
template <int LATER>
__device__ __forceinline__ void wait_for_stages() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}

}  // namespace cudakit
