// Kernels as they are written for a GPU.
__global__ void saxpy(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.5f * x[i] + y[i];
}

__global__ void blur(float* out, const float* in, int h, int w) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < 2 || c < 2 || r >= h - 2 || c >= w - 2) return;
    float sum = 0;
    for (int a = -2; a <= 2; ++a)
        for (int b = -2; b <= 2; ++b) sum += in[(r + a) * w + c + b];
    out[r * w + c] = sum * 0.04f;
}

__global__ void product(float* c, const float* a, const float* b, int n) {
    __shared__ float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[y][x] = a[row * n + k + x], right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void bodies(float* out, const float* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float fx = 0, fy = 0, fz = 0;
    for (int j = 0; j < n; ++j) {
        float x = p[j] - p[i], y = p[n + j] - p[n + i], z = p[2 * n + j] - p[2 * n + i];
        float q = x * x + y * y + z * z + 1e-3f, s = p[3 * n + j] / (q * sqrtf(q));
        fx += x * s, fy += y * s, fz += z * s;
    }
    out[i] = fx, out[n + i] = fy, out[2 * n + i] = fz;
}

__global__ void mandelbrot(int* out, int n) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= n || r >= n) return;
    float a = -2 + 3.0f * c / n, b = -1.5f + 3.0f * r / n, x = 0, y = 0;
    int k = 0;
    for (; k < 200 && x * x + y * y < 4; ++k) { float t = x * x - y * y + a; y = 2 * x * y + b, x = t; }
    out[r * n + c] = k;
}

__global__ void options(float* out, const float* s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float k = 100, t = 0.5f, v = 0.3f, r = 0.02f, q = v * sqrtf(t);
    float d = (logf(s[i] / k) + (r + 0.5f * v * v) * t) / q;
    out[i] = s[i] * 0.5f * erfcf(-d * 0.70710678f) - k * expf(-r * t) * 0.5f * erfcf(-(d - q) * 0.70710678f);
}

__global__ void total(float* out, const float* x, int n) {
    __shared__ float part[8];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) sum += part[k];
        atomicAdd(out, sum);
    }
}

__global__ void histogram(int* out, const unsigned char* x, int n) {
    __shared__ int bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

__global__ void collatz(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = i + 1;
    int k = 0;
    while (v != 1) v = v & 1 ? 3 * v + 1 : v >> 1, ++k;
    out[i] = k;
}

__global__ void stencil(float* out, const float* in, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    int i = (z * n + y) * n + x;
    out[i] = 0.4f * in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n]);
}

// The sum of each 1,024, as a tree in shared memory.
__global__ void sums(float* out, const float* x) {
    __shared__ float part[256];
    int t = threadIdx.x;
    const float* own = x + blockIdx.x * 1024 + t;
    part[t] = own[0] + own[256] + own[512] + own[768];
    for (int d = 128; d; d >>= 1) {
        __syncthreads();
        if (t < d) part[t] += part[t + d];
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

// Running sums in one pass: each block of 1,024 looks back at what those before it have found (1: their own sum, 2: with all before).
__global__ void scan(int* out, const int* x, volatile unsigned long long* state) {
    __shared__ int part[8], before;
    int t = threadIdx.x, lane = t % 32, warp = t / 32, b = blockIdx.x;
    int4 v = reinterpret_cast<const int4*>(x)[b * 256 + t];
    v.y += v.x, v.z += v.y, v.w += v.z;
    int sum = v.w;
    for (int d = 1; d < 32; d *= 2) { int other = __shfl_up_sync(~0u, sum, d); if (lane >= d) sum += other; }
    if (lane == 31) part[warp] = sum;
    __syncthreads();
    int base = 0, all = 0;
    for (int k = 0; k < 8; ++k) { if (k < warp) base += part[k]; all += part[k]; }
    if (t == 0) {
        state[b] = (b ? 1ull : 2ull) << 32 | (unsigned)all;
        int found = 0;
        for (int k = b - 1; k >= 0;) {
            unsigned long long seen = state[k];
            if (seen >> 32 == 0) continue;
            found += (int)seen, --k;
            if (seen >> 32 == 2) break;
        }
        before = found;
        if (b) state[b] = 2ull << 32 | (unsigned)(found + all);
    }
    __syncthreads();
    base += before + sum - v.w;
    reinterpret_cast<int4*>(out)[b * 256 + t] = make_int4(v.x + base, v.y + base, v.z + base, v.w + base);
}

// One level of a breadth-first search: the neighbours of a level's vertices come next.
__global__ void level(int* next, const int* depth, const int* starts, const int* ends, int at, int n) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n || depth[v] != at) return;
    for (int e = starts[v]; e < starts[v + 1]; ++e) {
        int w = ends[e];
        if (depth[w] > at) next[w] = at + 1;
    }
}

// Rays through a grid of balls over a floor, each by steps as long as nothing is nearer.
__global__ void march(float* out, int n) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= n || r >= n) return;
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
