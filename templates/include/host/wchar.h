// <wchar.h> for NVRTC: wchar_t is built in.
#pragma once
#include <cstddef>
