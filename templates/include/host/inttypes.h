// <inttypes.h> for NVRTC: the same as <cinttypes>.
#pragma once
#include <cinttypes>
