// <limits.h> for NVRTC, by libcu++.
#pragma once
#include <cuda/std/climits>
