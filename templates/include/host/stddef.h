// <stddef.h> for NVRTC: the same as <cstddef>; size_t and ptrdiff_t are built in.
#pragma once
#include <cstddef>
