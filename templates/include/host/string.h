// <string.h> for NVRTC: memcpy and memset are built in, the rest is libcu++'s.
#pragma once
#include <cuda/std/cstring>
using ::cuda::std::memcmp; using ::cuda::std::memmove; using ::cuda::std::memchr; using ::cuda::std::strlen;
using ::cuda::std::strcmp;
using ::cuda::std::strncmp; using ::cuda::std::strcpy; using ::cuda::std::strncpy; using ::cuda::std::strchr;
using ::cuda::std::strrchr;
