// Random numbers that are a function of where they are: Philox4x32-10, and numbers made of its words.
//
// A stream of random words is a key (64 bits) and a number of the stream (56 bits); in it each position (64 bits) has four
// words of 32 bits. The counter is (position, stream number), low words first; the top byte is 0 but for words that stand in
// for others (`words` with an attempt). Streams of different keys or numbers have no counter in common.
// All arithmetic is in operations that are rounded one by one, so that every device and the emulator give the same bits.
// Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011).
#pragma once

namespace cudakit {

/// What each round adds to the counter: computed once, and read as operands where it is a kernel's parameter.
struct philox_keys {
    unsigned int first[10], second[10];

    __host__ __device__ explicit philox_keys(uint2 key) {
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            first[round] = key.x + round * 0x9e3779b9u;
            second[round] = key.y + round * 0xbb67ae85u;
        }
    }
};

/// Philox4x32-10: four random words of a counter, by the keys of its rounds; a struct as `philox_keys`.
template <typename Keys>
__host__ __device__ uint4 philox(uint4 counter, const Keys& keys) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long first = static_cast<unsigned long long>(counter.x) * 0xd2511f53u;
        const unsigned long long second = static_cast<unsigned long long>(counter.z) * 0xcd9e8d57u;
        counter = {
            static_cast<unsigned int>(second >> 32) ^ counter.y ^ keys.first[round], static_cast<unsigned int>(second),
            static_cast<unsigned int>(first >> 32) ^ counter.w ^ keys.second[round], static_cast<unsigned int>(first)};
    }
    return counter;
}

/// The same by a key. cuRAND's `curand_Philox4x32_10` and Random123's philox4x32 are this.
__host__ __device__ inline uint4 philox(uint4 counter, uint2 key) {
    return philox(counter, philox_keys(key));
}

/// A stream of random words, by the keys of its rounds.
template <typename Keys>
struct scheduled_stream {
    const Keys& keys;
    unsigned long long number;

    /// The four words at a position. `attempt` 1, 2, … 255: others, for what could not use the first.
    __host__ __device__ uint4 words(unsigned long long position, unsigned int attempt = 0) const {
        const uint4 counter = {
            static_cast<unsigned int>(position), static_cast<unsigned int>(position >> 32),
            static_cast<unsigned int>(number), (static_cast<unsigned int>(number >> 32) & 0xffffffu) | attempt << 24};
        return philox(counter, keys);
    }
};

/// A stream of random words, by its key.
struct philox_stream {
    unsigned long long key, number;

    /// As `scheduled_stream` has them.
    __host__ __device__ uint4 words(unsigned long long position, unsigned int attempt = 0) const {
        const philox_keys keys({static_cast<unsigned int>(key), static_cast<unsigned int>(key >> 32)});
        return scheduled_stream<philox_keys>{keys, number}.words(position, attempt);
    }
};

/// Two words as one, the first below.
__host__ __device__ inline unsigned long long joined(unsigned int low, unsigned int high) {
    return static_cast<unsigned long long>(high) << 32 | low;
}

/// A multiple of 2^-24 in [0, 1), of a word's upper bits.
__device__ inline float unit(unsigned int word) {
    return __fmul_rn(__uint2float_rn(word >> 8), 0x1p-24f);
}

/// A multiple of 2^-16 in [0, 1), of a word's lower or upper 16 bits: they are the last ones of a float from 2^23 on.
template <bool UPPER>
__device__ inline float half_unit(unsigned int word) {
    return __fmaf_rn(__uint_as_float(__byte_perm(word, 0x4b00, UPPER ? 0x5432 : 0x5410)), 0x1p-16f, -0x1p7f);
}

/// A multiple of 2^-53 in [0, 1).
__device__ inline double unit(unsigned long long word) {
    return __dmul_rn(__ull2double_rn(word >> 11), 0x1p-53);
}

namespace detail {
__device__ inline float times_plus(float x, float y, float z) {
    return __fmaf_rn(x, y, z);
}
__device__ inline double times_plus(double x, double y, double z) {
    return __fma_rn(x, y, z);
}
__device__ inline float times(float x, float y) {
    return __fmul_rn(x, y);
}
__device__ inline double times(double x, double y) {
    return __dmul_rn(x, y);
}
// √x rounded to the nearest, of numbers far from the ends of the type's range: by Markstein's steps from an approximation, whose
// errors they take away; `__fsqrt_rn` looks for other numbers, too.
__device__ inline float root(float x) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    const float near = __fmul_rn(x, inverse);
    return __fmaf_rn(__fmaf_rn(-near, near, x), __fmul_rn(inverse, 0.5f), near);
}
__device__ inline double root(double x) {
    double inverse;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(x));
    const double error = __fma_rn(-x, __dmul_rn(inverse, inverse), 1.0);
    inverse = __fma_rn(__fma_rn(error, 0.375, 0.5), __dmul_rn(inverse, error), inverse);
    const double near = __dmul_rn(x, inverse);
    return __fma_rn(__fma_rn(-near, near, x), __dmul_rn(inverse, 0.5), near);
}

// Σ coefficient × x^k, the coefficient of the highest power first.
template <typename R, int N>
__device__ R polynomial(R x, const R (&of)[N]) {
    R sum = of[0];
#pragma unroll
    for (int k = 1; k < N; ++k) sum = times_plus(sum, x, of[k]);
    return sum;
}

// ln(1 + x) / x² − 1 / x for |x| ≤ 1/3, sin(x) / x³ − 1 / x² and cos(x) / x² − 1 / x² as polynomials of x² for |x| ≤ π/4:
// Chebyshev's fits, whose errors are below the type's.
__device__ inline float logarithm_rest(float x) {
    const float of[] = {-0.124222003f, 0.13748309f,   -0.122887217f, 0.140558124f, -0.166733161f,
                        0.200072333f,  -0.249999449f, 0.333332717f,  -0.5f};
    return polynomial(x, of);
}
__device__ inline double logarithm_rest(double x) {
    const double of[] = {0.080820228059717655, -0.084668660468719653, 0.044003692430723371, -0.046549239112411558,
                         0.060005364047953563, -0.063733479058301123, 0.066570721048274675, -0.071328442253151547,
                         0.076927850324793115, -0.083338314580959888, 0.090908947180664293, -0.099999850019116404,
                         0.11111111358713932,  -0.12500000258367291,  0.14285714283554379,  -0.16666666664412896,
                         0.20000000000007292,  -0.25000000000007611,  0.33333333333333331,  -0.5};
    return polynomial(x, of);
}
__device__ inline float sine_rest(float square) {
    const float of[] = {-0.000195878907f, 0.00833274797f, -0.166666642f};
    return polynomial(square, of);
}
__device__ inline double sine_rest(double square) {
    const double of[] = {1.5918129294866608e-10,  -2.5051131845003624e-08, 2.7557316102552439e-06,
                         -0.00019841269836758574, 0.008333333333330948,    -0.16666666666666666};
    return polynomial(square, of);
}
__device__ inline float cosine_rest(float square) {
    const float of[] = {2.44637886e-05f, -0.00138875889f, 0.0416666493f, -0.5f};
    return polynomial(square, of);
}
__device__ inline double cosine_rest(double square) {
    const double of[] = {-1.1367998654022494e-11, 2.0875886738047052e-09, -2.7557315566341895e-07, 2.4801587293693459e-05,
                         -0.0013888888888880775,  0.041666666666666637,   -0.5};
    return polynomial(square, of);
}

__device__ inline float with_sign(float x, unsigned int word) {
    return __uint_as_float(__float_as_uint(x) ^ (word & 0x80000000u));
}
__device__ inline double with_sign(double x, unsigned int word) {
    return __hiloint2double(__double2hiint(x) ^ static_cast<int>(word & 0x80000000u), __double2loint(x));
}

// sin and cos of an angle in [−π/4, π/4] and so many quarter turns, which are the upper two bits of a word.
template <typename R>
__device__ void sine_cosine(R angle, unsigned int quarters, R& sine, R& cosine) {
    const R square = times(angle, angle);
    const R s = times_plus(times(angle, square), sine_rest(square), angle);
    const R c = times_plus(square, cosine_rest(square), R(1));
    const bool is_odd = quarters & 1u << 30;
    sine = with_sign(is_odd ? c : s, quarters);
    cosine = with_sign(is_odd ? s : c, quarters + (1u << 30));
}
}  // namespace detail

/// −ln((word + ½) / 2³²): exponential, with mean 1; up to 22.9.
__device__ inline float exponential(unsigned int word) {
    const float u = __fmaf_rn(__uint2float_rn(word), 0x1p-32f, 0x1p-33f);
    // u = 2^exponent × (1 + x), with 1 + x from 2/3 to 4/3.
    const int bits = __float_as_int(u), exponent = (bits - 0x3f2aaaab) & 0xff800000;
    const float x = __fadd_rn(__int_as_float(bits - exponent), -1.0f);
    const float one = __fmaf_rn(__fmul_rn(x, x), detail::logarithm_rest(x), x);
    return -__fmaf_rn(__int2float_rn(exponent), 0.693147182f * 0x1p-23f, one);
}

/// −ln((word + ½) / 2⁶⁴): up to 45.
__device__ inline double exponential(unsigned long long word) {
    const double u = __fma_rn(__ull2double_rn(word), 0x1p-64, 0x1p-65);
    const long long bits = __double_as_longlong(u), exponent = (bits - 0x3fe5555555555555) >> 52;
    const double x = __dadd_rn(__longlong_as_double(bits - (exponent << 52)), -1.0);
    const double one = __fma_rn(__dmul_rn(x, x), detail::logarithm_rest(x), x);
    return -__fma_rn(__int2double_rn(static_cast<int>(exponent)), 0.69314718055994529, one);
}

/// Two independent numbers of the standard normal distribution, of two words, by Box and Muller's method: up to 6.8.
__device__ inline void normal_pair(unsigned int radius_word, unsigned int angle_word, float& first, float& second) {
    // What is added counts where the exponential number is 0, of words that are 1 in float.
    const float radius = detail::root(__fmaf_rn(2.0f, exponential(radius_word), 0x1p-80f));
    // What is left of the word without quarter turns is its lower 30 bits, with a sign.
    const float angle = __fmul_rn(__int2float_rn(static_cast<int>(angle_word << 2)), 1.46291812e-09f * 0.25f);
    float sine, cosine;
    detail::sine_cosine(angle, angle_word + (1u << 29), sine, cosine);
    first = __fmul_rn(radius, cosine);
    second = __fmul_rn(radius, sine);
}

/// The same of words of 64 bits: up to 9.5.
__device__ inline void normal_pair(
    unsigned long long radius_word, unsigned long long angle_word, double& first, double& second) {
    const double radius = detail::root(__fma_rn(2.0, exponential(radius_word), 0x1p-140));
    const double angle =
        __dmul_rn(__ll2double_rn(static_cast<long long>(angle_word << 2)), 3.4061215800865545e-19 * 0.25);
    double sine, cosine;
    detail::sine_cosine(angle, static_cast<unsigned int>(angle_word + (1ull << 61) >> 32), sine, cosine);
    first = __dmul_rn(radius, cosine);
    second = __dmul_rn(radius, sine);
}

}  // namespace cudakit
