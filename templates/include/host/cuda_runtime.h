// <cuda_runtime.h> where no CUDA header is installed: what a kernel needs of it is built into NVRTC.
#pragma once
