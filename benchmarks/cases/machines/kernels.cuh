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
