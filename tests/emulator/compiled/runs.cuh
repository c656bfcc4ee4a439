// Kernels whose rows of threads run at once, and kernels that look alike and whose rows do not.
__device__ inline int at() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ── rows that run at once ──

__global__ void inner(float* out, const float* in, int h, int w) {
    int c = at(), r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < 1 || c < 2 || r >= h - 1 || c >= w - 3) return;
    out[r * w + c] = in[(r - 1) * w + c - 2] + in[(r + 1) * w + c + 3] * c;
}

__global__ void behind(int* y, const int* x, unsigned n) {  // the first three wrap around
    unsigned i = at();
    if (i - 3u < n) y[i] = x[i - 3];
}

__global__ void wrapped(int* y, const int* x, unsigned from, unsigned n) {
    unsigned i = at();
    if (i + from < n) y[i] = x[i] + i;
}

__global__ void large(long long* y, const int* x, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (long long)i;
}

__global__ void between(int* y, int first, int last, bool on) {
    int i = at();
    if (on && !(first > i || i > last)) y[i] = 7 * i + y[0];
}

__global__ void exact(float* y, const float* x) { y[at()] += x[at()] > 0 ? 2 * x[at()] : -1; }

__global__ void fours(float4* y, const float4* x, int n) {
    int i = at();
    if (i < n) y[i] = make_float4(x[i].w, x[i].z, x[i].y + i, x[i].x);
}

__global__ void octets(unsigned char* y, const unsigned char* x, int n) {
    int i = at();
    if (i < n) y[i] += 3 * x[i];
}

// ── rows that do not ──

__global__ void otherwise(int* y, int* z, int n) {
    int i = at();
    if (i < n) y[i] = i;
    else z[i - n] = -i;
}

__global__ void own(int* y, const int* x, int n) {
    int i = at();
    if (i < n) y[i] = x[i] + 1000 * blockIdx.x + threadIdx.x;
}

__global__ void without(int* y, const int* x, int n) {
    int i = at();
    if (i != n) y[i] = x[i];
}

__global__ void some(int* y, const int* x, int n) {
    int i = at();
    if (i < n && x[i] > 0) y[i] = i;
}

__global__ void blocks(int* y, const int* x, int n) {
    int i = at();
    if (i < n && threadIdx.x > 3) y[i] = x[i];
}
