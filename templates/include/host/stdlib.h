// <stdlib.h> for NVRTC: the same as <cstdlib>.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <cstdlib>
}
