// <time.h> for NVRTC: the same as <ctime>.
#pragma once
#include <ctime>
