// What tiles of a sort tell each other: for each digit how many keys a tile has (PART), or it and all before it (WHOLE), in
// one word with the flag, so that they arrive together. 0: nothing yet.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016): here a chain a digit, whose
// tiles publish what they find, as the aggregates of 256 digits are too many to be read by all blocks.
#pragma once

#include <cudakit/lookback.cuh>
#include <cudakit/sort/ranks.cuh>

namespace cudakit {

namespace detail {
__device__ int signed_word(unsigned int);
__device__ long long signed_word(unsigned long long);
}  // namespace detail

template <typename Word>
struct digit_words {
    using difference = decltype(detail::signed_word(Word()));
    static constexpr int FLAGS_AT = 8 * sizeof(Word) - 2;
    static constexpr Word PART = static_cast<Word>(1) << FLAGS_AT, WHOLE = static_cast<Word>(2) << FLAGS_AT;
    static constexpr Word NUMBER = PART - 1;

    /// The sum of a digit over the `left` tiles of the row before `own`, the word of this digit and tile. Several are
    /// read at once: the way to L2 is long.
    static __device__ Word before(const Word* own, long long left) {
        constexpr int AHEAD = 4;
        Word sum = 0;
        while (true) {
            Word words[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) words[k] = k < left ? detail::load_relaxed(own - (k + 1) * DIGITS) : 0;
            int done = 0;
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (done < k || words[k] < PART) continue;
                sum += words[k] & NUMBER;
                if (words[k] >= WHOLE) return sum;
                ++done;
            }
            own -= done * DIGITS;
            left -= done;
        }
    }
};

}  // namespace cudakit
