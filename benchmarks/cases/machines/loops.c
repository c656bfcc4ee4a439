/* The kernels of kernels.cuh as loops of C, for one core. */
#include <math.h>
#include <string.h>

void saxpy(float* y, const float* x, int n) { for (int i = 0; i < n; ++i) y[i] = 2.5f * x[i] + y[i]; }

void blur(float* out, const float* in, int h, int w) {
    for (int r = 2; r < h - 2; ++r)
        for (int c = 2; c < w - 2; ++c) {
            float sum = 0;
            for (int a = -2; a <= 2; ++a) for (int b = -2; b <= 2; ++b) sum += in[(r + a) * w + c + b];
            out[r * w + c] = sum * 0.04f;
        }
}

void product(float* c, const float* a, const float* b, int n) { /* tiles of 16, as the kernel has them */
    for (int R = 0; R < n; R += 16) for (int C = 0; C < n; C += 16) {
        float sum[16][16];
        memset(sum, 0, sizeof sum);
        for (int K = 0; K < n; K += 16)
            for (int r = 0; r < 16; ++r) for (int k = 0; k < 16; ++k) for (int x = 0; x < 16; ++x)
                sum[r][x] += a[(R + r) * n + K + k] * b[(K + k) * n + C + x];
        for (int r = 0; r < 16; ++r) memcpy(c + (R + r) * n + C, sum[r], sizeof sum[r]);
    }
}

void bodies(float* out, const float* p, int n) { /* x, y, z, mass of each */
    for (int i = 0; i < n; ++i) {
        float fx = 0, fy = 0, fz = 0;
        for (int j = 0; j < n; ++j) {
            float x = p[j] - p[i], y = p[n + j] - p[n + i], z = p[2 * n + j] - p[2 * n + i];
            float q = x * x + y * y + z * z + 1e-3f, s = p[3 * n + j] / (q * sqrtf(q));
            fx += x * s, fy += y * s, fz += z * s;
        }
        out[i] = fx, out[n + i] = fy, out[2 * n + i] = fz;
    }
}

void mandelbrot(int* out, int n) {
    for (int r = 0; r < n; ++r) for (int c = 0; c < n; ++c) {
        float a = -2 + 3.0f * c / n, b = -1.5f + 3.0f * r / n, x = 0, y = 0;
        int k = 0;
        for (; k < 200 && x * x + y * y < 4; ++k) { float t = x * x - y * y + a; y = 2 * x * y + b, x = t; }
        out[r * n + c] = k;
    }
}

void options(float* out, const float* s, int n) {
    for (int i = 0; i < n; ++i) {
        float k = 100, t = 0.5f, v = 0.3f, r = 0.02f, q = v * sqrtf(t);
        float d = (logf(s[i] / k) + (r + 0.5f * v * v) * t) / q;
        out[i] = s[i] * 0.5f * erfcf(-d * 0.70710678f) - k * expf(-r * t) * 0.5f * erfcf(-(d - q) * 0.70710678f);
    }
}

void total(float* out, const float* x, int n) {
    float part[64] = {0};
    for (int i = 0; i < n; i += 64) for (int k = 0; k < 64; ++k) part[k] += x[i + k];
    float sum = 0;
    for (int k = 0; k < 64; ++k) sum += part[k];
    *out = sum;
}

void histogram(int* out, const unsigned char* x, int n) { memset(out, 0, 1024); for (int i = 0; i < n; ++i) ++out[x[i]]; }

void collatz(int* out, int n) {
    for (int i = 0; i < n; ++i) {
        unsigned v = i + 1;
        int k = 0;
        while (v != 1) v = v & 1 ? 3 * v + 1 : v >> 1, ++k;
        out[i] = k;
    }
}

void stencil(float* out, const float* in, int n) {
    for (int z = 1; z < n - 1; ++z) for (int y = 1; y < n - 1; ++y) for (int x = 1; x < n - 1; ++x) {
        int i = (z * n + y) * n + x;
        out[i] = 0.4f * in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n]);
    }
}

void sums(float* out, const float* x) {
    for (int b = 0; b < 1024; ++b, x += 1024) {
        float part[256];
        for (int t = 0; t < 256; ++t) part[t] = x[t] + x[t + 256] + x[t + 512] + x[t + 768];
        for (int d = 128; d; d >>= 1) for (int t = 0; t < d; ++t) part[t] += part[t + d];
        out[b] = part[0];
    }
}

void scan(int* out, const int* x, const void* state) {
    (void)state;
    int sum = 0;
    for (int i = 0; i < 1 << 20; ++i) out[i] = sum += x[i];
}

void level(int* next, const int* depth, const int* starts, const int* ends, int at, int n) {
    for (int v = 0; v < n; ++v) {
        if (depth[v] != at) continue;
        for (int e = starts[v]; e < starts[v + 1]; ++e) if (depth[ends[e]] > at) next[ends[e]] = at + 1;
    }
}

void march(float* out, int n) {
    for (int r = 0; r < n; ++r) for (int c = 0; c < n; ++c) {
        float dx = (2.0f * c - n) / n, dy = (n - 2.0f * r) / n - 0.3f, far = 0;
        float s = 1 / sqrtf(dx * dx + dy * dy + 1);
        dx *= s, dy *= s;
        int k = 0;
        for (; k < 96 && far < 30; ++k) {
            float x = far * dx, y = 1 + far * dy, z = far * s;
            float u = x - 2 * floorf(x * 0.5f) - 1, w = z - 2 * floorf(z * 0.5f) - 1;
            float near = sqrtf(u * u + y * y + w * w) - 0.6f;
            if (y + 0.5f < near) near = y + 0.5f;
            if (near < 0.001f) break;
            far += near;
        }
        out[r * n + c] = far + k;
    }
}

void sort(unsigned* out, const unsigned* keys) { /* as CUB does: by four bits, from the lowest, each key next to its like */
    for (int b = 0; b < 1024; ++b, keys += 1024, out += 1024) {
        unsigned other[1024], *from = memcpy(out, keys, 4096), *to = other;
        for (int shift = 0; shift < 32; shift += 4) {
            int place[17] = {0};
            for (int i = 0; i < 1024; ++i) ++place[(from[i] >> shift & 15) + 1];
            for (int k = 1; k < 16; ++k) place[k] += place[k - 1];
            for (int i = 0; i < 1024; ++i) to[place[from[i] >> shift & 15]++] = from[i];
            unsigned* swap = from; from = to, to = swap;
        }
    }
}
