// <inttypes.h> for NVRTC: the same as <cinttypes>.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cinttypes>
}
