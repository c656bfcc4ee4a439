// <stddef.h> for NVRTC: the same as <cstddef>; size_t and ptrdiff_t are built in.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cstddef>
}
