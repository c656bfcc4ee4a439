// <stdint.h> for NVRTC: the same as <cstdint>, which declares the global names too.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cstdint>
}
