// <stdint.h> for NVRTC: the same as <cstdint>, which declares the global names too.
#pragma once
#include <cstdint>
