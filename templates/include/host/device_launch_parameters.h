// <device_launch_parameters.h> where no CUDA header is installed: threadIdx and its kin are built into NVRTC.
#pragma once
