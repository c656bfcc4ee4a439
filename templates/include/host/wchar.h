// <wchar.h> for NVRTC: wchar_t is built in.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cstddef>
}
