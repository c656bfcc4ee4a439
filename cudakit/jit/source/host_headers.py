"""Names of headers for device code, and of headers for the host.

Only programs for nvcc and errors ask; what reads a cached kernel does not load these patterns.
"""

from __future__ import annotations

import os
import re
from functools import cache

from cudakit.jit.source import headers

#: CUDA's headers that device code may include.
_FOR_DEVICE = re.compile(
    r"(?:cub|cuda|thrust|nv|cooperative_groups|crt)/.*|cuda(?:_runtime(?:_api)?)?\.h|cuComplex\.h|mma\.h"
    r"|cuda_(?:awbarrier|bf16|device_runtime_api|fp\d+|pipeline|stdint|surface_types|texture_types|tf32|tile)\w*\.(?:h|hpp)"
    r"|(?:builtin_types|common_functions|cooperative_groups|cudart_platform|library_types)\.h"
    r"|(?:curand|device|driver|host|math|sm|surface|texture|vector)_\w+\.(?:h|hpp)"
)
#: CUDA's headers that match, but are for host code.
_HOST_ONLY = re.compile(
    r"thrust/(?!(?:addressof|advance|complex|distance|functional|pair|tuple|version|zip_function)\.h|iterator/.*).*"
    r"|thrust/iterator/(?:retag|detail/.*)|cub/(?:device/.*|util_allocator\.cuh)|driver_functions\.h|curand_mtgp32_host\.h"
    r"|cuda/(?:buffer|memory_pool|memory_resource|stream|stream_ref|devices)"
)
#: Headers of host libraries, of CUDA and others: they are never read.
_HOST_LIBRARY = re.compile(
    r"(?:cublas|cufft|cusolver|cusparse|cudnn|curand|nccl|nvblas|nvjpeg|nvml|cutensor|cudss|cufile|cupti|nvrtc|nvvm|nvFatbin"
    r"|nvJitLink|nppdefs|nppcore|channel_descriptor|cuda_occupancy|cuda_profiler_api|cudaProfiler|cudalibxt|Python)\.h"
    r"|cublas(?:_v2|_api|Lt|Xt)\.h|cufft(?:w|Xt|MP)\.h|cusolver(?:Dn|Sp|Rf|Mg|_common|Sp_LOWLEVEL_PREVIEW)\.h"
    r"|cusparse(?:_v2|Lt)\.h|cudnn_(?:adv|backend|cnn|graph|ops|version)\w*\.h|npp[cis]?\w*\.h|nvToolsExt\w*\.h"
    r"|cuda_(?:egl|gl|vdpau|d3d\d*)_interop\.h|cuda(?:EGL|GL|VDPAU|D3D\d*|Profiler)?Typedefs\.h"
    r"|cuda(?:EGL|GL|VDPAU|D3D\d*)\.h|(?:cupti|nvperf)_\w+\.h"
    r"|(?:nvtx3?|torch|ATen|c10|pybind11|opencv2?|mpi|omp|GL|GLFW|SDL2?)(?:/.*|\.h)"
)
#: Headers of the standard libraries and other host libraries, which may be missing.
_HOST_STANDARD = re.compile(
    r"[a-z_]+|(?:[cw]?ctype|errno|fenv|iso646|locale|setjmp|signal|stdalign|stdarg|stdatomic|stdnoreturn|threads|uchar|wchar)\.h"
    r"|(?:(?:sys|arpa|netinet|net|linux|ext|bits)/.*|(?:aio|dirent|dlfcn|execinfo|fcntl|getopt|glob|libgen|malloc|memory|netdb|numa)\.h)"
    r"|(?:poll|pthread|pwd|regex|sched|semaphore|strings|syslog|termios|unistd|values)\.h|tr[12]/.*"
    r"|(?:alloca|basetsd|conio|direct|io|process|tchar|winsock2?|windows|ws2tcpip)\.h"
    r"|(?:\w+intrin|cpuid|cblas|lapacke|mkl\w*|fftw3\w*|png|jpeglib|turbojpeg|tiff(?:io)?|zlib|hdf5|netcdf|FreeImage\w*)\.h"
    r"|(?:.*/)?helper_(?:cuda|cuda_drvapi|cuda_gl|cusolver|functions|gl|image|multiprocess|nvJPEG|string|timer)\.h"
    r"|(?:.*/)?(?:cutil|cutil_inline\w*|cutil_gl\w*|sdkHelper|shrQATest|shrUtils|rendercheck_\w+|stb_image\w*)\.h"
    r"|(?:boost|gtest|gmock|benchmark|fmt|spdlog|nlohmann|rapidjson|yaml-cpp|tbb|X11|GLES\d?|EGL|vulkan|AL|google|gflags|glog)/.*"
    r"|(?:CLI|glad|assimp|imgui|Magick\+\+|OpenEXR|OpenImageIO|mkldnn|dnnl|oneapi|hip|CL)/.*"
)


@cache
def is_for_device(name: str) -> bool:
    """Return whether `name` is a header of CUDA or cudakit that exists here and that NVRTC can compile."""
    if any(os.path.isfile(folder / name) for folder in (*headers.own_folders(), headers.fallback_folder())):
        return True
    return name_is_for_device(name) and any(os.path.isfile(folder / name) for folder in headers.toolkit_folders())


def name_is_for_device(name: str) -> bool:
    """Return whether CUDA has a header of this name that device code may include."""
    return _FOR_DEVICE.fullmatch(name) is not None and _HOST_ONLY.fullmatch(name) is None


def is_host_library(name: str) -> bool:
    """Return whether a name is a header of a host library: cuBLAS, cuRAND's host API, NCCL, torch, OpenCV."""
    return (_HOST_LIBRARY.fullmatch(name) or _HOST_ONLY.fullmatch(name)) is not None


def is_host_header(name: str) -> bool:
    """Return whether `name` is a header for host code: of a host library, or of the host's standard libraries."""
    return is_host_library(name) or _HOST_STANDARD.fullmatch(name) is not None
