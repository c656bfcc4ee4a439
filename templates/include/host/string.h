// <string.h> for NVRTC: memcpy and memset are built in; the rest by hand, since libcu++ has it only from CUDA 13 on.
#pragma once
extern "C++" {  // a program may include it in extern "C"
inline __host__ __device__ void* memmove(void* to, const void* from, size_t count) {
    unsigned char* t = static_cast<unsigned char*>(to);
    const unsigned char* f = static_cast<const unsigned char*>(from);
    if (t < f) {
        for (size_t i = 0; i < count; ++i) t[i] = f[i];
    } else {
        for (size_t i = count; i > 0; --i) t[i - 1] = f[i - 1];
    }
    return to;
}
inline __host__ __device__ int memcmp(const void* a, const void* b, size_t count) {
    const unsigned char* x = static_cast<const unsigned char*>(a);
    const unsigned char* y = static_cast<const unsigned char*>(b);
    for (size_t i = 0; i < count; ++i) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}
inline __host__ __device__ const void* memchr(const void* text, int value, size_t count) {
    const unsigned char* p = static_cast<const unsigned char*>(text);
    for (size_t i = 0; i < count; ++i) {
        if (p[i] == static_cast<unsigned char>(value)) return p + i;
    }
    return nullptr;
}
inline __host__ __device__ size_t strlen(const char* text) {
    size_t length = 0;
    while (text[length]) ++length;
    return length;
}
inline __host__ __device__ int strncmp(const char* a, const char* b, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const unsigned char x = static_cast<unsigned char>(a[i]), y = static_cast<unsigned char>(b[i]);
        if (x != y) return x < y ? -1 : 1;
        if (!x) break;
    }
    return 0;
}
inline __host__ __device__ int strcmp(const char* a, const char* b) { return strncmp(a, b, ~size_t(0)); }
inline __host__ __device__ char* strncpy(char* to, const char* from, size_t count) {
    size_t i = 0;
    for (; i < count && from[i]; ++i) to[i] = from[i];
    for (; i < count; ++i) to[i] = 0;
    return to;
}
inline __host__ __device__ char* strcpy(char* to, const char* from) {
    size_t i = 0;
    do to[i] = from[i];
    while (from[i++]);
    return to;
}
inline __host__ __device__ const char* strchr(const char* text, int value) {
    for (;; ++text) {
        if (*text == static_cast<char>(value)) return text;
        if (!*text) return nullptr;
    }
}
inline __host__ __device__ const char* strrchr(const char* text, int value) {
    const char* found = nullptr;
    for (;; ++text) {
        if (*text == static_cast<char>(value)) found = text;
        if (!*text) return found;
    }
}
}
