// <float.h> for NVRTC: the same as <cfloat>.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cfloat>
}
