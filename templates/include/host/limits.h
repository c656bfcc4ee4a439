// <limits.h> for NVRTC, by libcu++.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cuda/std/climits>
}
