// A row of an array in the registers of a group of threads: read once, summarised, changed, written once.
//
// A group is 1 … 32 neighbouring lanes of a warp, a block, or a cluster of blocks, whichever holds the row. What is done to
// a row is an operation `Op` over Acc, the type that its arithmetic is done in:
//   Op::state                  what some elements of a row come to: (maximum, sum), (count, mean, squares) …
//   op.summarise(values, count)  the state of a thread's own values; it may put others in their place
//   op.combine(a, b)           the state of the elements of both
//   op.finish(values, own, all)  results from the values, the thread's own state and the row's
#pragma once

#include <cudakit/block.cuh>
#include <cudakit/pack.cuh>

namespace cudakit {

/// The values of one row that a thread has: packs `lane`, `lane + group`, `lane + 2 · group` … of COUNT neighbours each.
template <typename Acc, int PACKS, int COUNT>
struct row_values {
    Acc values[PACKS * COUNT];

    /// Reads them, all loads in flight at once; `pad` where the row has ended. Returns how many there are.
    template <typename T>
    __device__ int load(const T* row, int length, int lane, int group, Acc pad) {
        using Pack = pack<T, COUNT>;
        const Pack* const packs = reinterpret_cast<const Pack*>(row);
        Pack raw[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            if (p * group + lane < length / COUNT) raw[p] = load_streaming(packs + p * group + lane);
        int count = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const bool inside = p * group + lane < length / COUNT;
            count += inside ? COUNT : 0;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values[p * COUNT + k] = inside ? static_cast<Acc>(raw[p].values[k]) : pad;
        }
        return count;
    }

    /// Writes them.
    template <typename Out>
    __device__ void store(Out* row, int length, int lane, int group) const {
        using Pack = pack<Out, COUNT>;
        Pack* const packs = reinterpret_cast<Pack*>(row);
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            Pack raw;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) raw.values[k] = static_cast<Out>(values[p * COUNT + k]);
            if (p * group + lane < length / COUNT) store_streaming(packs + p * group + lane, raw);
        }
    }
};

}  // namespace cudakit
