// <cufftXt.h> for NVRTC: the same types as <cufft.h>.
#pragma once
#include <cufft.h>
