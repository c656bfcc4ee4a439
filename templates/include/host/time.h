// <time.h> for NVRTC: the same as <ctime>.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#include <ctime>
}
