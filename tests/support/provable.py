"""Kernels of which a proof is asked, what is stated of them, and changes that make each wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A kernel, what is stated of it, and changes of its text with the kind of fault that each makes."""

    name: str
    text: str
    statements: tuple[str, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict)
    changes: tuple[tuple[str, str, str], ...] = ()

    def __repr__(self) -> str:
        return self.name


COVER = {"block": 256, "grid": "(n + 255) // 256"}

PROVED = [
    Case(
        "saxpy",
        """__global__ void saxpy(int n, float a, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] += a * x[i];
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (
            ("if (i < n) ", "", "bounds"),
            ("i < n", "i <= n", "bounds"),
            ("y[i] +=", "y[i / 2] +=", "race"),
            ("x[i]", "x[i + 1]", "bounds"),
            ("x[i]", "x[i - 1]", "bounds"),
        ),
    ),
    Case(
        "whole_blocks",
        """__global__ void whole_blocks(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x; }""",
        ("len(y) == gridDim.x * blockDim.x", "gridDim.x <= 1 << 20"),
        {"block": 128, "grid": "len(y) // 128"},
        (("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x", "race"),),
    ),
    Case(
        "any_block",
        """__global__ void any_block(int n, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = i;
        }""",
        ("n <= len(y)", "blockDim.y == 1", "blockDim.z == 1", "gridDim.x <= 1 << 20"),
        {"grid": "(n + blockDim.x - 1) // blockDim.x"},
        (("i < n", "i <= n", "bounds"),),
    ),
    Case(
        "unsigned_index",
        """__global__ void unsigned_index(unsigned n, float* y) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = i;
        }""",
        ("n <= len(y)",),
        COVER,
        (("i < n", "i - 1 < n", "bounds"),),
    ),
    Case(
        "long_index",
        """__global__ void long_index(unsigned long long n, float* y) {
            size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
            if (i < n) y[i] = 1;
        }""",
        ("n <= len(y)",),
        COVER,
        (("i < n", "i <= n", "bounds"),),
    ),
    Case(
        "early_return",
        """__global__ void early_return(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            float v = x[i];
            if (v > 0) { y[i] = v; } else { y[i] = -v; }
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (("i >= n", "i > n", "bounds"),),
    ),
    Case(
        "grid_stride",
        """__global__ void grid_stride(int n, const float* x, float* y) {
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = x[i];
        }""",
        ("n <= len(x)", "n <= len(y)", "n <= 1 << 30"),
        COVER,
        (("i < n", "i <= n", "bounds"), ("* gridDim.x) y[i] =", ") y[i] +=", "race")),
    ),
    Case(
        "grid_stride_long",
        """__global__ void grid_stride_long(size_t n, const double* x, double* y) {
            for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x)
                y[i] += x[i];
        }""",
        ("n <= len(x)", "n <= len(y)", "gridDim.x <= 1 << 16"),
        {"block": 128, "grid": "len(x) // 1000 + 1"},
        (("i < n", "i <= n", "bounds"),),
    ),
    Case(
        "rows",
        """__global__ void rows(int h, int w, const float* x, float* y) {
            int r = blockIdx.x * blockDim.x + threadIdx.x;
            if (r >= h) return;
            float s = 0;
            for (int c = 0; c < w; ++c) s += x[r * w + c];
            y[r] = s;
        }""",
        ("h * w <= len(x)", "h <= len(y)", "h <= 1 << 14", "w <= 1 << 14"),
        {"block": 64, "grid": "(h + 63) // 64"},
        (("c < w", "c <= w", "bounds"), ("r * w + c", "r * w + c + 1", "bounds")),
    ),
    Case(
        "reverse",
        """__global__ void reverse(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[n - 1 - i] = x[i];
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (("n - 1 - i", "n - i", "bounds"),),
    ),
    Case(
        "strided",
        """__global__ void strided(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) { y[2 * i] = x[i]; y[2 * i + 1] = 0; }
        }""",
        ("n <= len(x)", "2 * n <= len(y)", "n <= 1 << 29"),
        COVER,
        (("2 * i + 1", "2 * i + 2", "race"),),
    ),
    Case(
        "transpose",
        """__global__ void transpose(int h, int w, const float* x, float* y) {
            int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
            if (r < h && c < w) y[c * h + r] = x[r * w + c];
        }""",
        ("h * w <= len(x)", "h * w <= len(y)", "h <= 1 << 14", "w <= 1 << 14"),
        {"block": (16, 16), "grid": ("(w + 15) // 16", "(h + 15) // 16")},
        (("r < h && c < w", "r < h", "bounds"), ("c * h + r", "r * h + c", "bounds")),
    ),
    Case(
        "tiled_transpose",
        """__global__ void tiled_transpose(int h, int w, const float* x, float* y) {
            __shared__ float tile[16][17];
            int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
            if (r < h && c < w) tile[threadIdx.y][threadIdx.x] = x[r * w + c];
            __syncthreads();
            int tc = blockIdx.y * 16 + threadIdx.x, tr = blockIdx.x * 16 + threadIdx.y;
            if (tr < w && tc < h) y[tr * h + tc] = tile[threadIdx.x][threadIdx.y];
        }""",
        ("h * w <= len(x)", "h * w <= len(y)", "h <= 1 << 14", "w <= 1 << 14"),
        {"block": (16, 16), "grid": ("(w + 15) // 16", "(h + 15) // 16")},
        (("__syncthreads();", "", "race"), ("tr < w && tc < h", "tr < w", "bounds")),
    ),
    Case(
        "matmul",
        """__global__ void matmul(const float* a, const float* b, float* c, int n) {
            __shared__ float ta[16][16], tb[16][16];
            int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
            float s = 0;
            for (int k = 0; k < n; k += 16) {
                ta[threadIdx.y][threadIdx.x] = a[r * n + k + threadIdx.x];
                tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + q];
                __syncthreads();
                for (int j = 0; j < 16; ++j) s += ta[threadIdx.y][j] * tb[j][threadIdx.x];
                __syncthreads();  // second
            }
            c[r * n + q] = s;
        }""",
        ("n * n <= len(a)", "n * n <= len(b)", "n * n <= len(c)", "n % 16 == 0", "n <= 1 << 14"),
        {"block": (16, 16), "grid": ("n // 16", "n // 16")},
        (
            ("__syncthreads();  // second", "", "race"),
            ("__syncthreads();\n", "\n", "race"),
            ("c[r * n + q]", "c[r * 16 + q]", "race"),
        ),
    ),
    Case(
        "guarded_matmul",
        """__global__ void guarded_matmul(const float* a, const float* b, float* c, int m, int n, int kk) {
            __shared__ float ta[16][16], tb[16][16];
            int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
            float s = 0;
            for (int k = 0; k < kk; k += 16) {
                int ka = k + threadIdx.x, kb = k + threadIdx.y;
                ta[threadIdx.y][threadIdx.x] = r < m && ka < kk ? a[r * kk + ka] : 0;
                tb[threadIdx.y][threadIdx.x] = kb < kk && q < n ? b[kb * n + q] : 0;
                __syncthreads();
                for (int j = 0; j < 16; ++j) s += ta[threadIdx.y][j] * tb[j][threadIdx.x];
                __syncthreads();
            }
            if (r < m && q < n) c[r * n + q] = s;
        }""",
        ("m * kk <= len(a)", "kk * n <= len(b)", "m * n <= len(c)", "n <= 1 << 14", "m <= 1 << 14", "kk <= 1 << 14"),
        {"block": (16, 16), "grid": ("(n + 15) // 16", "(m + 15) // 16")},
        (("r < m && q < n", "r < m", "bounds"), ("kb < kk && ", "", "bounds")),
    ),
    Case(
        "stencil",
        """__global__ void stencil(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i] + x[i + 1];
        }""",
        ("n <= len(x)", "n <= len(y)", "n >= 1"),
        COVER,
        (("i > 0 && ", "", "bounds"), ("n - 1", "n", "bounds")),
    ),
    Case(
        "halo",
        """__global__ void halo(int n, const float* x, float* y) {
            __shared__ float s[258];
            int t = threadIdx.x, i = blockIdx.x * 256 + t;
            s[t + 1] = i < n ? x[i] : 0;
            if (t == 0) s[0] = i > 0 && i <= n ? x[i - 1] : 0;
            if (t == 255) s[257] = i + 1 < n ? x[i + 1] : 0;
            __syncthreads();
            if (i < n) y[i] = s[t] + s[t + 1] + s[t + 2];
        }""",
        ("n <= len(x)", "n <= len(y)", "n <= 1 << 30"),
        COVER,
        (("__syncthreads();", "", "race"), ("s[257]", "s[258]", "bounds"), ("i + 1 < n", "i < n", "bounds")),
    ),
    Case(
        "shared_reverse",
        """__global__ void shared_reverse(const float* x, float* y) {
            __shared__ float s[256];
            s[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            y[threadIdx.x] = s[255 - threadIdx.x];
        }""",
        ("len(x) >= 256", "len(y) >= 256"),
        {"block": 256, "grid": 1},
        (("__syncthreads();", "", "race"),),
    ),
    Case(
        "in_place_stencil",
        """__global__ void in_place_stencil(float* y) {
            __shared__ float s[128];
            int t = threadIdx.x;
            s[t] = y[t];
            __syncthreads();
            float v = t > 0 ? s[t - 1] : 0;
            __syncthreads();  // second
            s[t] = v;
            __syncthreads();
            y[t] = s[127 - t];
        }""",
        ("len(y) >= 128",),
        {"block": 128, "grid": 1},
        (("__syncthreads();  // second", "", "race"),),
    ),
    Case(
        "reduction",
        """__global__ void reduction(const float* x, float* out, int n) {
            __shared__ float t[256];
            int i = blockIdx.x * 256 + threadIdx.x;
            t[threadIdx.x] = i < n ? x[i] : 0;
            __syncthreads();
            for (int s = 128; s > 0; s >>= 1) {
                if (threadIdx.x < s) t[threadIdx.x] += t[threadIdx.x + s];
                __syncthreads();  // in the loop
            }
            if (threadIdx.x == 0) atomicAdd(out, t[0]);
        }""",
        ("n <= len(x)", "len(out) >= 1"),
        COVER,
        (
            ("__syncthreads();  // in the loop", "", "race"),
            ("threadIdx.x < s", "threadIdx.x <= s", "bounds"),  # a race, too, at which no run arrives
            ("atomicAdd(out, t[0])", "*out += t[0]", "race"),
        ),
    ),
    Case(
        "reduction_not_unrolled",
        """__global__ void reduction_not_unrolled(const float* x, float* out) {
            __shared__ float t[256];
            t[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
            __syncthreads();
            #pragma unroll 1
            for (int s = 128; s > 0; s >>= 1) {
                if (threadIdx.x < s) t[threadIdx.x] += t[threadIdx.x + s];
                __syncthreads();
            }
            if (threadIdx.x == 0) out[blockIdx.x] = t[0];
        }""",
        ("len(x) % 256 == 0", "len(out) >= len(x) // 256"),
        {"block": 256, "grid": "len(x) // 256"},
        (("s = 128", "s = 256", "bounds"), ("out[blockIdx.x]", "out[0]", "race")),
    ),
    Case(
        "scan",
        """__global__ void scan(const float* x, float* y) {
            __shared__ float t[128];
            int i = threadIdx.x;
            t[i] = x[blockIdx.x * 128 + i];
            __syncthreads();
            for (int s = 1; s < 128; s *= 2) {
                float v = i >= s ? t[i - s] : 0;
                __syncthreads();
                t[i] += v;
                __syncthreads();  // last
            }
            y[blockIdx.x * 128 + i] = t[i];
        }""",
        ("len(x) % 128 == 0", "len(y) == len(x)", "len(x) <= 1 << 31"),
        {"block": 128, "grid": "len(x) // 128"},
        (("__syncthreads();  // last", "", "race"), ("i >= s ? t[i - s] : 0", "t[i - s]", "bounds")),
    ),
    Case(
        "histogram",
        """__global__ void histogram(int n, const unsigned char* x, int* counts) {
            __shared__ int own[256];
            own[threadIdx.x] = 0;
            __syncthreads();
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
                atomicAdd(&own[x[i]], 1);
            __syncthreads();  // after
            atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
        }""",
        ("n <= len(x)", "len(counts) >= 256", "n <= 1 << 30"),
        COVER,
        (("atomicAdd(&counts[threadIdx.x], own[threadIdx.x])", "counts[threadIdx.x] += own[threadIdx.x]", "race"),),
    ),
    Case(
        "vectors",
        """__global__ void vectors(int n, const float4* x, float4* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) { float4 v = x[i]; v.x = 0; y[i] = v; }
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (("i < n", "i <= n", "bounds"),),
    ),
    Case(
        "vectors_of_floats",
        """__global__ void vectors_of_floats(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (4 * i < n) ((float4*)y)[i] = ((const float4*)x)[i];
        }""",
        ("n <= len(x)", "n <= len(y)", "n % 4 == 0", "n <= 1 << 28"),
        COVER,
        (("[i] = ", "[i + 1] = ", "bounds"), ("(float4*)y", "(float4*)(y + 1)", "alignment")),
    ),
    Case(
        "divided",
        """__global__ void divided(int h, int w, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < h * w) { int r = i / w, c = i % w; y[r * w + c] = 1; }
        }""",
        ("h * w <= len(y)", "1 <= h <= 1 << 14", "1 <= w <= 1 << 14"),
        {"block": 256, "grid": "(h * w + 255) // 256"},
        (("i < h * w", "i <= h * w", "bounds"),),
    ),
    Case(
        "divided_by_3",
        """__global__ void divided_by_3(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < 3 * n) y[i] = x[i / 3] * (i % 3);
        }""",
        ("n <= len(x)", "3 * n <= len(y)", "1 <= n <= 1 << 28"),
        {"block": 256, "grid": "(3 * n + 255) // 256"},
        (("x[i / 3]", "x[i / 2]", "bounds"),),
    ),
    Case(
        "dynamic",
        """__global__ void dynamic(const float* x, float* y) {
            extern __shared__ float s[];
            s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
            __syncthreads();
            y[blockIdx.x * blockDim.x + threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
        }""",
        ("len(x) == 64 * gridDim.x", "len(y) == len(x)", "gridDim.x <= 1 << 20"),
        {"block": 64, "grid": "len(x) // 64", "shared_bytes": 256},
        (("__syncthreads();", "", "race"), ("blockDim.x - 1 - threadIdx.x", "blockDim.x - threadIdx.x", "bounds")),
    ),
    Case(
        "loop_with_break",
        """__global__ void loop_with_break(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            float s = 0;
            for (int k = i; k < n; ++k) { if (x[k] < 0) break; s += x[k]; }
            y[i] = s;
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (("k < n", "k <= n", "bounds"),),
    ),
    Case(
        "three_dimensions",
        """__global__ void three_dimensions(int d, int h, int w, float* y) {
            int i = blockIdx.x * 8 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y, k = blockIdx.z * 4 + threadIdx.z;
            if (i < w && j < h && k < d) y[(k * h + j) * w + i] = j;
        }""",
        ("d * h * w <= len(y)", "1 <= d <= 512", "1 <= h <= 1024", "1 <= w <= 1024"),
        {"block": (8, 8, 4), "grid": ("(w + 7) // 8", "(h + 7) // 8", "(d + 3) // 4")},
        (("j < h && ", "", "race"),),
    ),
    Case(
        "signed_bytes",
        """__global__ void signed_bytes(int n, const short* x, signed char* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = (signed char)x[i];
        }""",
        ("n <= len(x)", "n <= len(y)"),
        COVER,
        (("i < n", "i <= n", "bounds"),),
    ),
    Case(
        "local_array",
        """__global__ void local_array(int n, const float* x, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            float held[8];
            if (8 * i + 7 < n) {
                for (int k = 0; k < 8; ++k) held[k] = x[8 * i + k];
                for (int k = 0; k < 8; ++k) y[8 * i + k] = held[7 - k];
            }
        }""",
        ("n <= len(x)", "n <= len(y)", "n <= 1 << 28"),
        COVER,
        (("8 * i + 7 < n", "8 * i < n", "bounds"),),
    ),
    Case(
        "double_buffer",
        """__global__ void double_buffer(int n, const float* x, float* y) {
            __shared__ float s[2][64];
            float sum = 0;
            for (int k = 0; k < n; ++k) {
                s[k & 1][threadIdx.x] = x[64 * k + threadIdx.x];
                __syncthreads();
                sum += s[k & 1][63 - threadIdx.x];
            }
            y[threadIdx.x] = sum;
        }""",
        ("64 * n <= len(x)", "len(y) >= 64", "n <= 1 << 20"),
        {"block": 64, "grid": 1},
        (
            ("s[k & 1][threadIdx.x]", "s[0][threadIdx.x]", "race"),
            ("64 * k + threadIdx.x", "64 * k + 64 + threadIdx.x", "bounds"),
        ),
    ),
    Case(
        "triangle",
        """__global__ void triangle(int n, const float* a, float* y) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            float s = 0;
            #pragma unroll 1
            for (int k = 0; k <= i; ++k) s += a[i * n + k];
            y[i] = s;
        }""",
        ("n * n <= len(a)", "n <= len(y)", "n <= 40000"),
        COVER,
        (("k <= i", "k <= n", "bounds"),),
    ),
    Case(
        "window",
        """__global__ void window(int h, int w, const float* x, float* y) {
            int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
            if (r >= h || c >= w) return;
            float s = 0;
            for (int dr = -1; dr <= 1; ++dr)
                for (int dc = -1; dc <= 1; ++dc) {
                    int a = min(max(r + dr, 0), h - 1), b = min(max(c + dc, 0), w - 1);
                    s += x[a * w + b];
                }
            y[r * w + c] = s;
        }""",
        ("h * w <= len(x)", "h * w <= len(y)", "h <= 10000", "w <= 10000"),
        {"block": (16, 16), "grid": ("(w + 15) // 16", "(h + 15) // 16")},
        (("h - 1", "h", "bounds"), ("max(c + dc, 0)", "c + dc", "bounds")),
    ),
]

#: Kernels that have a fault, each of which a proof that looks less closely would miss.
FAULTY = [
    Case(
        "negative_n",
        """__global__ void negative_n(int n, float* y) {
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < (unsigned)n) y[i] = 1;
            }""",
        ("n <= len(y)",),
        {"block": 32, "grid": 4},
    ),
    Case(
        "wrapped_size",
        """__global__ void wrapped_size(size_t n, float* y) {
                size_t i = threadIdx.x;
                if (i < n - 1) y[i] = 1;
            }""",
        ("n <= len(y)",),
        {"block": 32, "grid": 1},
    ),
    Case(
        "second_axis",
        """__global__ void second_axis(int n, float* y) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] += 1;
            }""",
        ("n <= len(y)", "n<=1<<20"),
        {"block": 32, "grid": ("(n + 31) // 32", 2)},
    ),
    Case(
        "other_block",
        """__global__ void other_block(int n, float* y) {
                int i = blockIdx.x * 32 + threadIdx.x;
                if (i < n) y[i] += i;
            }""",
        ("n <= len(y)", "n<=1<<20"),
        {"block": 64, "grid": "(n + 31) // 32"},
    ),
    Case(
        "odd_vectors",
        """__global__ void odd_vectors(int n, const float* x, float* y) {
                int i = threadIdx.x;
                if (4 * i < n) ((float4*)y)[i] = ((const float4*)x)[i];
            }""",
        ("n <= len(x)", "n<=len(y)", "n<=1<<20"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "little_shared",
        """__global__ void little_shared(float* y) {
                extern __shared__ float s[];
                s[threadIdx.x] = y[threadIdx.x];
                y[threadIdx.x] = s[threadIdx.x] + 1;
            }""",
        ("len(y) >= 64",),
        {"block": 64, "grid": 1, "shared_bytes": 252},
    ),
    Case(
        "no_shared",
        """__global__ void no_shared(float* y) {
                extern __shared__ float s[];
                s[threadIdx.x] = y[threadIdx.x];
                y[threadIdx.x] = s[threadIdx.x] + 1;
            }""",
        ("len(y) >= 64",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "warps",
        """__global__ void warps(float* y) {
                __shared__ float s[64];
                s[threadIdx.x] = y[threadIdx.x];
                __syncwarp();
                y[threadIdx.x] = s[threadIdx.x ^ 32];
            }""",
        ("len(y) >= 64",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "shuffled",
        """__global__ void shuffled(float* y, int* at) {
                int i = __shfl_xor_sync(~0u, (int)threadIdx.x, 1);
                y[i] = 1;
            }""",
        ("len(y) >= 16",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "bytes_as_index",
        """__global__ void bytes_as_index(float* y) {
                y[(unsigned char)threadIdx.x] += threadIdx.x;
            }""",
        ("len(y) >= 256",),
        {"block": 512, "grid": 1},
    ),
    Case(
        "signed_bytes_as_index",
        """__global__ void signed_bytes_as_index(float* y) {
                y[(signed char)threadIdx.x] = 1;
            }""",
        ("len(y) >= 256",),
        {"block": 256, "grid": 1},
    ),
    Case(
        "short_index",
        """__global__ void short_index(float* y) {
                short i = blockIdx.x * blockDim.x + threadIdx.x;
                y[i] = 1;
            }""",
        ("len(y) >= 1 << 16",),
        {"block": 256, "grid": 256},
    ),
    Case(
        "truncated_size",
        """__global__ void truncated_size(long long n, float* y) {
                int m = (int)n;
                for (int i = threadIdx.x; i < m; i += blockDim.x) y[i] = 1;
                if (n > 0) y[n - 1] = 2;
            }""",
        ("n <= len(y)",),
        {"block": 32, "grid": 1},
    ),
    Case(
        "int_index_of_long_size",
        """__global__ void int_index_of_long_size(size_t n, float* y) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] += 1;
            }""",
        ("n <= len(y)",),
        {"block": 256, "grid": "(n + 255) // 256"},
    ),
    Case(
        "down_unsigned",
        """__global__ void down_unsigned(unsigned n, float* y) {
                for (unsigned k = n - 1; k != 7u - 8u; k -= 2) y[k] += 1;
            }""",
        ("n <= len(y)",),
        {"block": 1, "grid": 1},
    ),
    Case(
        "two_at_a_time",
        """__global__ void two_at_a_time(int n, float* y) {
                for (int k = n; k != 0; k -= 2) y[k - 1] += 1;
            }""",
        ("n <= len(y)", "n >= 0"),
        {"block": 1, "grid": 1},
    ),
    Case(
        "half_barrier",
        """__global__ void half_barrier(float* y) {
                __shared__ float s[256];
                s[threadIdx.x] = y[threadIdx.x];
                if (threadIdx.x < 128) __syncthreads();
                y[threadIdx.x] = s[threadIdx.x] + 1;
            }""",
        ("len(y) >= 256",),
        {"block": 256, "grid": 1},
    ),
    Case(
        "left_before_barrier",
        """__global__ void left_before_barrier(int n, float* y) {
                __shared__ float s[256];
                int i = threadIdx.x;
                if (i >= n) return;
                s[i] = y[i];
                __syncthreads();
                y[i] = s[n - 1 - i];
            }""",
        ("len(y) >= n", "n<=256"),
        {"block": 256, "grid": 1},
    ),
    Case(
        "own_rounds",
        """__global__ void own_rounds(float* y) {
                __shared__ float s[256];
                for (int k = 0; k < (int)threadIdx.x; ++k) {
                    s[threadIdx.x] = k;
                    __syncthreads();
                }
                y[threadIdx.x] = s[threadIdx.x];
            }""",
        ("len(y) >= 256",),
        {"block": 256, "grid": 1},
    ),
    Case(
        "barrier_in_some_rounds",
        """__global__ void barrier_in_some_rounds(int n, float* y) {
                __shared__ float s[256];
                for (int k = 0; k < n; ++k) {
                    if (k % 2 == 0) __syncthreads();
                    s[(threadIdx.x + k) % 256] = k + threadIdx.x;
                }
                y[threadIdx.x] = 1;
            }""",
        ("len(y) >= 256",),
        {"block": 256, "grid": 1},
    ),
    Case(
        "one_place",
        """__global__ void one_place(float* y) {
                __shared__ float s[1];
                s[0] = threadIdx.x;
                __syncthreads();
                y[threadIdx.x] = s[0];
            }""",
        ("len(y) >= 256",),
        {"block": 256, "grid": 1},
    ),
    Case(
        "atomics_of_blocks",
        """__global__ void atomics_of_blocks(int* y) {
                atomicAdd_block(y, 1);
            }""",
        ("len(y) >= 1",),
        {"block": 32, "grid": 4},
    ),
    Case(
        "atomics_of_two_sizes",
        """__global__ void atomics_of_two_sizes(unsigned long long* y) {
                if (threadIdx.x % 2) atomicAdd((unsigned*)y + 1, 1u);
                else atomicAdd(y, 1ull);
            }""",
        ("len(y) >= 1",),
        {"block": 32, "grid": 1},
    ),
    Case(
        "atomic_and_plain",
        """__global__ void atomic_and_plain(int* y) {
                atomicAdd(y, 1);
                if (threadIdx.x == 3) y[1] = y[0];
            }""",
        ("len(y) >= 2",),
        {"block": 32, "grid": 1},
    ),
    Case(
        "constants",
        """__global__ void constants(int n, float* y) {
                int i = threadIdx.x;
                if (i < n) y[i] = table[i + 1];
            }""",
        ("len(y) >= n", "n<=16"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "variables",
        """__global__ void variables(int n) {
                variable[threadIdx.x] += blockIdx.x;
            }""",
        (),
        {"block": 16, "grid": 2},
    ),
    Case(
        "local_index",
        """__global__ void local_index(int n, float* y) {
                float s[8];
                for (int k = 0; k < 8; ++k) s[k] = y[k];
                float t = 0;
                for (int k = 0; k < n; ++k) t += s[k];
                y[8 + threadIdx.x] = t;
            }""",
        ("len(y) >= 64", "n <= 9"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "division",
        """__global__ void division(float* x, float* y) {
                int i = threadIdx.x;
                y[i] = x[(i - 5) / 2];
            }""",
        ("len(y) >= 64", "len(x)>=64"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "left_over",
        """__global__ void left_over(float* x, float* y) {
                int i = threadIdx.x;
                y[i] = x[(i - 5) % 4];
            }""",
        ("len(y) >= 64", "len(x)>=64"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "clamped_empty",
        """__global__ void clamped_empty(int n, float* x, float* y) {
                int i = threadIdx.x;
                y[i] = x[min(i, n - 1)];
            }""",
        ("len(y) >= 64", "len(x)>=n", "n >= 0"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "clamped_write",
        """__global__ void clamped_write(int n, float* y) {
                int i = threadIdx.x;
                y[min(i, n - 1)] = i;
            }""",
        ("len(y) >= n", "n>=1"),
        {"block": 32, "grid": 1},
    ),
    Case(
        "absolute",
        """__global__ void absolute(int n, float* y) {
                y[abs(n) % 7] = 1;
            }""",
        ("len(y) >= 7",),
        {"block": 1, "grid": 1},
    ),
    Case(
        "power_as_index",
        """__global__ void power_as_index(int n, float* y) {
                y[1 << threadIdx.x] = 1;
            }""",
        ("len(y) >= 64",),
        {"block": 8, "grid": 1},
    ),
    Case(
        "masked",
        """__global__ void masked(int n, float* y) {
                y[(threadIdx.x * 3) & 15] += threadIdx.x;
            }""",
        ("len(y) >= 16",),
        {"block": 32, "grid": 1},
    ),
    Case(
        "next_block",
        """__global__ void next_block(float* y) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                float v = y[i + 1];
                __syncthreads();
                y[i] = v;
            }""",
        ("len(y) == gridDim.x * 64 + 1", "gridDim.x<=1000"),
        {"block": 64, "grid": None},
    ),
    Case(
        "last_round",
        """__global__ void last_round(int n, float* y) {
                __shared__ float s[64];
                for (int k = 0; k < n; ++k) {
                    __syncthreads();
                    s[threadIdx.x] = k;
                }
                y[threadIdx.x] = s[63 - threadIdx.x];
            }""",
        ("len(y) >= 64",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "before_a_loop",
        """__global__ void before_a_loop(int n, float* y) {
                __shared__ float s[64];
                s[threadIdx.x] = y[threadIdx.x];
                for (int k = 0; k < n; ++k) {
                    y[64 * k + threadIdx.x] = s[63 - threadIdx.x];
                    __syncthreads();
                }
            }""",
        ("len(y) >= 64 * n", "n >= 1", "n <= 100", "len(y)>=64"),
        {"block": 64, "grid": 1},
    ),
    Case(
        "around_a_loop",
        """__global__ void around_a_loop(int n, float* y) {
                __shared__ float s[64];
                s[threadIdx.x] = y[threadIdx.x];
                for (int k = 0; k < n; ++k) __syncthreads();
                y[threadIdx.x] = s[63 - threadIdx.x];
            }""",
        ("len(y) >= 64",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "in_pairs",
        """__global__ void in_pairs(int n, float* y) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) {
                    y[i] = 1;
                    if (i % 2) y[i - 1] = 2;
                }
            }""",
        ("len(y) >= n", "n<=1000"),
        {"block": 64, "grid": "(n + 63) // 64"},
    ),
    Case(
        "rows_too_wide",
        """__global__ void rows_too_wide(int h, int w, float* y) {
                int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
                if (r < h && c <= w) y[r * w + c] += 1;
            }""",
        ("len(y) >= h * w + 1", "h<=1000", "w<=1000"),
        {"block": (16, 16), "grid": ("w // 16 + 1", "(h + 15) // 16")},
    ),
    Case(
        "strides_that_meet",
        """__global__ void strides_that_meet(int n, int s, float* y) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i * s] += i;
            }""",
        ("len(y) >= n * s", "n<=1000", "s<=1000"),
        {"block": 64, "grid": "(n + 63) // 64"},
    ),
    Case(
        "polled",
        """__global__ void polled(volatile int* y) {
                if (threadIdx.x == 0) y[0] = 1;
                else while (y[0] == 0) {
                }
            }""",
        ("len(y) >= 1",),
        {"block": 64, "grid": 1},
    ),
    Case(
        "endless",
        """__global__ void endless(int n, float* y) {
                int i = 0;
                while (true) {
                    if (i > n) return;
                    y[i] += 1;
                    i += 1;
                }
            }""",
        ("len(y) >= n", "n>=1"),
        {"block": 1, "grid": 1},
    ),
    Case(
        "nested_too_far",
        """__global__ void nested_too_far(int n, float* y) {
                for (int i = 0; i < n; ++i) for (int k = i; k <= n; ++k) y[k] += 1;
            }""",
        ("len(y) >= n",),
        {"block": 1, "grid": 1},
    ),
]
