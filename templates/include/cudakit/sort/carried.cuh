// What goes with the keys of a sort: nothing, the index of each key, or an element of another array.
#pragma once

namespace cudakit {

struct no_values {
    using carried = unsigned char;
    static constexpr bool ANY = false, FROM_MEMORY = false;
    static __device__ carried load(const void*, long long, long long) { return 0; }
};

/// The index of each key along its row, which fits Index.
template <typename Index>
struct indices {
    using carried = Index;
    static constexpr bool ANY = true, FROM_MEMORY = false;
    static __device__ Index load(const void*, long long, long long in_row) { return static_cast<Index>(in_row); }
};

/// Elements, as the words W that they lie in memory as.
template <typename W>
struct elements {
    using carried = W;
    static constexpr bool ANY = true, FROM_MEMORY = true;
    static __device__ W load(const void* values, long long at, long long) { return static_cast<const W*>(values)[at]; }
};

}  // namespace cudakit
