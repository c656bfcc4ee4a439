// <float.h> for NVRTC: the same as <cfloat>.
#pragma once
#include <cfloat>
