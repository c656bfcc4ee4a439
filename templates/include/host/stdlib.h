// <stdlib.h> for NVRTC: the same as <cstdlib>.
#pragma once
#include <cstdlib>
