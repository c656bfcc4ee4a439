// Sums of many values into many bins by atomic additions, the same bits whatever the order: sums of whole numbers.
#pragma once

namespace cudakit {

namespace detail {
template <typename W>
__device__ double as_double(W weight) {
    if constexpr (sizeof(W) == 2) return static_cast<float>(weight);  // half converts to nothing wider
    else return static_cast<double>(weight);
}
}  // namespace detail

/// Whole numbers, modulo 2^64.
struct whole_sum {
    static constexpr int LIMBS = 1;
    struct scale {
        __device__ scale(const double*, long long) {}
        template <typename W>
        __device__ bool split(W weight, long long (&limbs)[LIMBS]) const {
            limbs[0] = static_cast<long long>(weight);
            return true;
        }
    };
    /// `sums[limb · bins]`, as W sees it.
    template <typename Out, typename W>
    static __device__ Out value(const unsigned long long* sums, unsigned int, const scale&) {
        if constexpr (W(-1) > W(0)) return static_cast<Out>(sums[0]);
        else return static_cast<Out>(static_cast<long long>(sums[0]));
    }
};

/// Floating point, as two whole numbers: w = (high + low · 2^-BITS) · unit, with unit so that no sum of high overflows,
/// and BITS = 61 − ⌊log2 number of values⌋. A value is rounded to 2^(−2 BITS) of the greatest: to 2^-66 of it for 2^28
/// values, 2^-102 for 2^10. Nothing else is rounded but the result. Infinities and NaN are noted in a third number.
/// Source: the fixed-point accumulator of Kulisch, cut to the exponents that matter; as Demmel and Nguyen, Parallel
/// reproducible summation, IEEE Trans. Comput. 64 (2015), with the greatest value known before.
struct fixed_sum {
    static constexpr int LIMBS = 2;
    static constexpr unsigned long long PLUS = 1, MINUS = 2, NEITHER = 4;
    struct scale {
        double up[2], down[2], fraction;  // 1 / unit and unit, in two factors that are both in range; 2^BITS

        __device__ scale(const double* range, long long size) {
            const double most = fmax(fabs(range[0]), fabs(range[1]));
            const int bits = 62 - (64 - __clzll(size));
            const int exponent = most > 0 && range[0] <= range[1] ? ilogb(most) + 1 : 0;
            const int shift = bits - exponent, half = shift / 2;
            fraction = scalbn(1.0, bits);
            up[0] = scalbn(1.0, half);
            up[1] = scalbn(1.0, shift - half);
            down[0] = scalbn(1.0, -half);
            down[1] = scalbn(1.0, half - shift);
        }
        template <typename W>
        __device__ bool split(W weight, long long (&limbs)[LIMBS]) const {
            const double scaled = detail::as_double(weight) * up[0] * up[1];
            if (!(fabs(scaled) < 0x1p62)) return false;
            const double high = rint(scaled);
            limbs[0] = static_cast<long long>(high);
            limbs[1] = static_cast<long long>(rint((scaled - high) * fraction));
            return true;
        }
    };
    template <typename W>
    static __device__ unsigned long long note(W weight) {
        const double value = detail::as_double(weight);
        return value > 0 ? PLUS : value < 0 ? MINUS : NEITHER;
    }
    template <typename Out, typename W>
    static __device__ Out value(const unsigned long long* sums, unsigned int bins, const scale& scale) {
        const unsigned long long noted = sums[2ull * bins];
        if (noted) {
            const double infinity = __longlong_as_double(0x7ff0000000000000ll);
            return static_cast<Out>(noted == PLUS ? infinity : noted == MINUS ? -infinity : infinity - infinity);
        }
        const double high = static_cast<double>(static_cast<long long>(sums[0]));
        const double low = static_cast<double>(static_cast<long long>(sums[bins])) / scale.fraction;
        return static_cast<Out>((high + low) * scale.down[0] * scale.down[1]);
    }
};

/// COPIES sums a bin in shared memory, as words of 32 bits: atomic additions of 64 bits are not native there, two of 32
/// with the carry between them are. Shared bytes: 8 · LIMBS · COPIES · bins.
template <int LIMBS, int COPIES>
struct shared_sums {
    unsigned int* words;
    unsigned int bins;

    __device__ shared_sums(unsigned char* shared, unsigned int bins, unsigned long long*)
        : words(reinterpret_cast<unsigned int*>(shared)), bins(bins) {
        for (unsigned int i = threadIdx.x; i < 2 * LIMBS * COPIES * bins; i += blockDim.x) words[i] = 0;
        __syncthreads();
    }
    __device__ void add(unsigned int bin, const long long (&limbs)[LIMBS]) {
#pragma unroll
        for (int limb = 0; limb < LIMBS; ++limb) {
            unsigned int* const word = at(limb, bin, threadIdx.x % COPIES);
            const unsigned int low = static_cast<unsigned int>(limbs[limb]);
            const unsigned int old = low ? atomicAdd(word, low) : 0;
            const unsigned int high = static_cast<unsigned int>(limbs[limb] >> 32) + (old + low < low);
            if (high) atomicAdd(word + COPIES * bins, high);
        }
    }
    __device__ void flush(unsigned long long* sums) {
        __syncthreads();
        for (unsigned int i = threadIdx.x; i < LIMBS * bins; i += blockDim.x) {
            unsigned long long sum = 0;
            for (unsigned int k = 0; k < COPIES; ++k) {
                const unsigned int* const word = at(i / bins, i % bins, (threadIdx.x + k) % COPIES);
                sum += word[0] | static_cast<unsigned long long>(word[COPIES * bins]) << 32;
            }
            if (sum) atomicAdd(sums + i, sum);
        }
    }

 private:
    __device__ unsigned int* at(int limb, unsigned int bin, unsigned int copy) const {
        return words + (2 * limb * bins + bin) * COPIES + copy;
    }
};

/// Global memory itself.
template <int LIMBS, int>
struct global_sums {
    unsigned long long* sums;
    unsigned int bins;

    __device__ global_sums(unsigned char*, unsigned int bins, unsigned long long* sums) : sums(sums), bins(bins) {}
    __device__ void add(unsigned int bin, const long long (&limbs)[LIMBS]) {
#pragma unroll
        for (int limb = 0; limb < LIMBS; ++limb)
            atomicAdd(sums + static_cast<long long>(limb) * bins + bin, static_cast<unsigned long long>(limbs[limb]));
    }
    __device__ void flush(unsigned long long*) {}
};

}  // namespace cudakit
