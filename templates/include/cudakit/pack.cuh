// COUNT neighbours of an array as one aligned word, which one load or store instruction moves.
#pragma once

namespace cudakit {

template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT) pack {
    static_assert(sizeof(T) * COUNT <= 16, "a thread moves at most 16 bytes in one instruction");
    T values[COUNT];
};

/// Whether `pointer` may be read as packs: a view need not start at an aligned element.
template <typename Pack, typename T>
__host__ __device__ bool is_aligned(const T* pointer) {
    return reinterpret_cast<unsigned long long>(pointer) % alignof(Pack) == 0;
}

}  // namespace cudakit
