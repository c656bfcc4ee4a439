// <stdio.h> for NVRTC: printf is built in.
#pragma once
#include <cstddef>
