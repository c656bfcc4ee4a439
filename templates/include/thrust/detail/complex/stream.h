// <thrust/detail/complex/stream.h> for NVRTC, which refuses the host functions in it: nothing.
#pragma once
