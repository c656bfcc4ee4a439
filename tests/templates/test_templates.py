"""Every packaged template and header, compiled for named archs, which takes no GPU."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import nvrtc
from cuda.core import Program, ProgramOptions
from support.tiers import in_tiers

import cudakit as ck
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.source.closure import all_included, content_of
from cudakit.jit.source.headers import (
    fallback_folder,
    own_folders,
    templates_folder,
    toolkit_folders,
    toolkit_version,
)

ARCHES = ("sm_80", "sm_90")
TEMPLATES = sorted(templates_folder().glob("*.cuh"))
HOST_HEADERS = sorted(path.name for path in fallback_folder().iterdir())
#: Headers of NVIDIA's that kernels mix with the host's.
HEAVY_HEADERS = (
    "cuda/std/mdspan",
    "cuda_fp16.h",
    "cub/block/block_reduce.cuh",
    "curand_kernel.h",
    "cooperative_groups.h",
)


def compiled(source: str, names: Sequence[str] = (), arch: str = "sm_90") -> list[str]:
    """Compile `source` by NVRTC alone, and return those of `names` that have a kernel; raises with NVRTC's log.

    What compiled in an earlier run is kept, by all that NVRTC read.
    """
    folders = [str(folder) for folder in (*own_folders(), *toolkit_folders(), fallback_folder())]

    def named() -> bytes:
        # libcu++ unrolls its type lists to this depth; nvcc's own value compiles 2 to 6 times faster than NVRTC's 16.
        macros = [("_CCCL_META_UNROLL_LIMIT", "10")]
        options = ProgramOptions(arch=arch, std="c++17", include_path=folders, define_macro=macros)
        code = Program(source, "c++", options).compile("cubin", name_expressions=list(names))
        assert len(code.code) > 0
        return json.dumps(list(code.symbol_mapping)).encode()

    read = [(path, content_of(path)) for path in all_included(source.encode(), folders)]
    parts = [
        source,
        list(names),
        arch,
        folders,
        read,
        toolkit_version(),
        nvrtc.nvrtcVersion()[1:],
        named.__code__.co_consts,
    ]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()
    present: list[str] = json.loads(cache_at(None).blob("named", digest, named))
    return present


def check_together(headers: Sequence[str]) -> None:
    """Headers compile, one after the other; what compiled in an earlier run is kept."""
    text = "".join(f"#include <{header}>\n" for header in headers) + "__global__ void nothing() {}\n"
    assert compiled_of(ck.Kernel(text, "nothing").specialization(arch="sm_90", target="cubin")).code


# --- image and histogram ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_image_compiles(arch: str) -> None:
    types = ("unsigned char", "float", "double")
    names = [f"{kernel}<{cpp}>" for kernel in ("gray", "blur") for cpp in types]
    names += ["blur<unsigned char, 64, 8>", "blur<short>", "blur<float, 32, 1>"]
    source = (templates_folder() / "image.cuh").read_text()
    assert len(compiled(source, names, arch)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_histogram_compiles(arch: str) -> None:
    names = [f"even<{cpp}>" for cpp in ("unsigned char", "short", "int", "float", "double")]
    names += ["even<float, 1>", "even<float, 1025>", "even<unsigned char, 12287>"]
    source = (templates_folder() / "histogram.cuh").read_text()
    assert len(compiled(source, names, arch)) == len(names)


def test_half_compiles() -> None:
    source = "#include <cuda_fp16.h>\n"
    source += "".join((templates_folder() / f"{concept}.cuh").read_text() for concept in ("image", "histogram"))
    compiled(source, ["blur<__half>", "even<__half>"])


@pytest.mark.parametrize(
    ("concept", "name", "reason"),
    [
        ("image", "blur<int>", "may not fit its accumulator"),
        ("image", "blur<float, 16>", "share banks"),
        ("image", "blur<float, 32, 0>", "a tile has rows"),
        ("histogram", "even<float, 0>", "a histogram has bins"),
        ("histogram", "even<float, 12288>", "must fit static shared memory"),
    ],
)
def test_template_refuses(concept: str, name: str, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        compiled((templates_folder() / f"{concept}.cuh").read_text(), [name])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_header_comment_has_the_fixed_order(path: Path) -> None:
    text = path.read_text()
    order = ["Shapes", "Threads", "Memory", "Preconditions", "Launch", "Source"]
    heads = re.findall(r"((?:^//.*\n)+)template <[^;{]*?>\n__global__", text, re.MULTILINE)
    assert len(heads) == text.count("__global__")
    comments = re.findall(r"(?:^//.*\n)+", text, re.MULTILINE)
    assert any(sections_of(comment) == order for comment in comments)
    for head in heads:
        found = sections_of(head)
        # A kernel that is another one's variant says what differs.
        variant = re.search(r"As `\w+`|The same", head) and found == [name for name in order if name in found]
        assert variant or found == order


def sections_of(comment: str) -> list[str]:
    return re.findall(r"^// (\w+):", comment, re.MULTILINE)


# --- strided, mdspan, accumulator -------------------------------------------------------------------------------------

COPY = """
#include <cudakit/strided.cuh>
template <typename T, int RANK>
__global__ void copy(cudakit::strided<const T, RANK> in, cudakit::strided<T, RANK> out) {
    for (long long i = threadIdx.x; i < in.size(); i += blockDim.x) out.element(i) = in.element(i);
}
template <typename T>
__global__ void transpose(cudakit::strided<const T, 2> in, cudakit::strided<T, 2> out) {
    for (long long i = threadIdx.x; i < in.extent(0); i += blockDim.x)
        for (long long j = 0; j < in.extent(1); ++j) out(j, i) = in(i, j);
}
"""


@in_tiers("arch", ARCHES, quick=lambda arch: arch == "sm_90", strength=None)
def test_strided_compiles(arch: str) -> None:
    names = [f"copy<{cpp}, {rank}>" for cpp in ("unsigned char", "float", "double") for rank in range(5)]
    assert len(compiled(COPY, [*names, "transpose<float>"], arch)) == len(names) + 1


def test_strided_layout_and_const() -> None:
    compiled("""
        #include <cudakit/strided.cuh>
        using cudakit::strided;
        static_assert(sizeof(strided<float, 0>) == 8 && sizeof(strided<float, 1>) == 24, "");
        static_assert(sizeof(strided<char, 4>) == 72 && alignof(strided<char, 4>) == 8, "");
        static_assert(__INTADDR__(&((strided<char, 4>*)0)->shape) == 8, "");
        static_assert(__INTADDR__(&((strided<char, 4>*)0)->strides) == 40, "");

        template <typename To>
        struct takes {
            __device__ static char from(To);
            __device__ static long from(...);
        };
        template <typename From, typename To>
        constexpr bool converts = sizeof(takes<To>::from(From{})) == 1;
        static_assert(converts<strided<float, 2>, strided<const float, 2>>, "");
        static_assert(converts<strided<float, 0>, strided<const float, 0>>, "");
        static_assert(!converts<strided<const float, 2>, strided<float, 2>>, "");
        static_assert(!converts<strided<float, 2>, strided<const double, 2>>, "");
        static_assert(!converts<strided<float, 2>, strided<const float, 3>>, "");
        static_assert(!converts<strided<float, 2>, const float*>, "");

        __device__ constexpr int grid[] = {0, 1, 2, 3, 4, 5};
        constexpr strided<const int, 2> reversed{grid + 5, {2, 3}, {-3, -1}};
        static_assert(reversed(0, 0) == 5 && reversed(1, 0) == 2 && reversed.element(4) == 1, "");
        constexpr strided<const int, 3> repeated{grid, {2, 4, 3}, {3, 0, 1}};
        static_assert(repeated.size() == 24 && repeated(1, 3, 2) == 5 && repeated.element(23) == 5, "");
        constexpr strided<const int, 0> one{grid + 2};
        static_assert(one() == 2 && one.element(0) == 2 && one.size() == 1, "");
    """)


def test_strided_counts_its_indices() -> None:
    with pytest.raises(Exception, match="one index for each of the RANK dimensions"):
        compiled("#include <cudakit/strided.cuh>\n__global__ void f(cudakit::strided<float, 2> a) { a(0) = 1; }")


@pytest.mark.slow
def test_mdspan_conversion() -> None:
    compiled("""
        #include <cudakit/mdspan.cuh>
        template <typename T, int RANK>
        using span = cuda::std::mdspan<T, cuda::std::dextents<long long, RANK>, cuda::std::layout_stride>;
        using cuda::std::is_convertible_v, cuda::std::is_same_v, cudakit::strided;
        static_assert(is_convertible_v<strided<float, 2>, span<float, 2>>, "");
        static_assert(is_convertible_v<strided<float, 2>, span<const float, 2>>, "");
        static_assert(is_convertible_v<strided<const float, 0>, span<const float, 0>>, "");
        static_assert(!is_convertible_v<strided<float, 2>, span<float, 3>>, "");
        static_assert(is_same_v<decltype(strided<float, 3>().mdspan()), span<float, 3>>, "");
        __device__ float corner(span<const float, 2> view) { return view(view.extent(0) - 1, view.extent(1) - 1); }
        __global__ void use(strided<float, 2> a, strided<const float, 0> zero, strided<float, 4> deep) {
            span<float, 2> copied = a;
            span<float, 2> direct(a);
            copied(0, 1) = corner(a) + direct(1, 0) + a.mdspan<const float>()(1, 1) + zero.mdspan()();
            copied(1, 0) = deep.mdspan()(1, 2, 3, 4) + deep.mdspan().stride(2);
        }
    """)


def test_mdspan_needs_its_header() -> None:
    with pytest.raises(Exception, match="mdspan_of"):
        compiled("#include <cudakit/strided.cuh>\n__global__ void f(cudakit::strided<float, 2> a) { a.mdspan(); }")


def test_accumulators() -> None:
    compiled("""
        #include <cudakit/accumulator.cuh>
        #include <cuda_fp16.h>
        #include <cuda_bf16.h>
        #include <cuda/std/complex>
        template <typename T, typename Sum, typename Window>
        constexpr bool sums_in = cuda::std::is_same_v<cudakit::accumulator_t<T>, Sum>
                              && cuda::std::is_same_v<cudakit::window_accumulator_t<T>, Window>;
        static_assert(sums_in<unsigned char, unsigned long long, int> && sums_in<short, long long, int>, "");
        static_assert(sums_in<int, long long, long long> && sums_in<bool, long long, int>, "");
        static_assert(sums_in<__half, float, float> && sums_in<__nv_bfloat16, float, float>, "");
        static_assert(sums_in<float, float, float> && sums_in<double, double, double>, "");
        using complex = cuda::std::complex<float>;
        static_assert(sums_in<complex, complex, complex>, "");
    """)


def test_strided_takes_any_view(stream: Any) -> None:
    copy, transpose = (ck.Kernel(COPY, name) for name in ("copy", "transpose"))
    with ck.using(stream) as xp:
        base = xp.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
        row = xp.arange(5, dtype=np.float32)
        views = (
            base,
            base[::-1, :, ::2],
            base.transpose(2, 0, 1),
            base[1],
            base[1, ::-2, 3],
            xp.broadcast_to(row, (4, 5)),
            base[1, 2, 3, ...],
        )
        for view in views:
            out = xp.zeros(view.shape, np.float32)
            copy(stream, ck.config(1, 64), view, out)
            assert (out == view).all()
        flipped = xp.zeros((5, 3), np.float32)
        transpose(stream, ck.config(1, 64), base[:, 0, ::-1], flipped)
        assert (flipped == base[:, 0, ::-1].T).all()


# --- stand-ins for host headers ---------------------------------------------------------------------------------------


def test_every_header_of_libcuxx_has_its_stand_in() -> None:
    folder = next(folder / "cuda/std" for folder in toolkit_folders() if (folder / "cuda/std/version").is_file())
    names = {path.name for path in folder.iterdir() if path.is_file() and not re.search(r"^_|\.", path.name)}
    assert names <= set(HOST_HEADERS)


@in_tiers(
    "header",
    [
        *(*HOST_HEADERS, "cuda.h", "cufft.h", "cufftXt.h", "cudakit/gnu.cuh", "cuda/pipeline", "cuda/barrier", "mma.h"),
        # CUDA's own, which ask for the host's.
        *("cub/block/block_reduce.cuh", "thrust/functional.h", "thrust/iterator/zip_iterator.h"),
    ],
    quick=lambda header: header in ("algorithm", "cudakit/gnu.cuh", "stdio.h", "vector"),
    strength=None,
)
def test_host_header_alone(header: str) -> None:
    check_together([header, header])


def test_headers_of_c_may_be_included_in_extern_c() -> None:
    headers = [header for header in HOST_HEADERS if header.endswith(".h") and not header.startswith(("cuda", "device"))]
    assert "math.h" in headers
    includes = "".join(f"#include <{header}>\n" for header in headers)
    compiled(f'extern "C" {{\n{includes}}}\n__global__ void root(float* x) {{ x[0] = sqrt(2) + fabs(-1); }}\n')


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1], ids=["sorted", "reversed"])
@pytest.mark.parametrize("host_first", [True, False], ids=["host first", "CUDA first"])
def test_host_headers_live_with_nvidias(order: int, host_first: bool) -> None:
    host, heavy = HOST_HEADERS[::order], HEAVY_HEADERS[::order]
    check_together([*host, *heavy] if host_first else [*heavy, *host])


USE = r"""
#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
using namespace std;

static_assert(std::is_same<std::int64_t, int64_t>::value && std::is_same_v<std::size_t, size_t>, "");
static_assert(std::numeric_limits<int>::max() == INT_MAX && std::max(1, 2) == 2 && std::clamp(5, 0, 3) == 3, "");
static_assert(std::min({3, 1, 2}) == 1 && offsetof(float4, y) == 4, "");
static_assert(std::is_same_v<decltype(std::sqrt(3)), double> && std::is_same_v<decltype(sqrt(3.f)), float>, "");
static_assert(std::is_same_v<decltype(std::fmod(3.f, 2.)), double>, "");
constexpr float lowest = -INFINITY;

template <typename T, typename = typename std::enable_if<std::is_floating_point<T>::value>::type>
__global__ void use(T* out, const T* in, int n) {
    assert(n > 0);
    T x = in[0];
    x += sqrt(x) + std::sqrt(x) + std::sqrt(n) + std::pow(x, 2) + pow(2, n) + std::fmod(x, 2.0) + std::abs(x) + abs(n);
    x += max(x, in[1]) + std::min<T>(x, 3) + floor(x) + std::isnan(x) + isinf(x) + std::exp(x) + std::fma(x, x, x);
    x = std::fmax(x, std::numeric_limits<T>::lowest()) + lowest + T(M_PI) + FLT_MAX + std::hypot(x, x);
    std::complex<T> z(x, 1), w = std::exp(z) * std::conj(z) + std::sqrt(z) + std::pow(z, T(2)) + std::pow(z, z);
    std::swap(z, w);
    swap(z, w);
    swap(x, out[1]);
    x += z.real() + std::imag(w) + std::abs(z) + abs(w) + sqrt(w).real() + std::norm(z);
    std::pair<int, T> pair = std::make_pair(1, x);
    auto [count, value] = std::make_tuple(pair.first, pair.second);
    std::array<T, 3> triple{{x, x, x}};
    out[0] = count + value + triple[1] + std::get<0>(pair) + std::plus<T>()(x, x) + std::gcd(n, 6);
    out[2] = std::accumulate(triple.begin(), triple.end(), T(0)) + std::memcmp(in, out, 4) + strlen("abc");
    std::memcpy(out + 3, in, sizeof(T));
    std::printf("%d", n);
}
"""


@pytest.mark.slow
def test_host_headers_in_use() -> None:
    compiled(USE, ["use<float>", "use<double>"])


def test_short_names_of_linux() -> None:
    compiled("""
        #include <cstdlib>
        typedef unsigned int uint;
        __global__ void f(uint* a, ushort* b, ulong* c) { *a = *b + *c; }
    """)


@pytest.mark.slow
def test_cub_whole() -> None:
    compiled("""
        #include <cub/cub.cuh>
        __global__ void f(float* x) {
            using Reduce = cub::BlockReduce<float, 128>;
            using Sort = cub::BlockRadixSort<float, 128, 1>;
            __shared__ union { typename Reduce::TempStorage reduce; typename Sort::TempStorage sort; } storage;
            float one[] = {x[threadIdx.x]};
            Sort(storage.sort).Sort(one);
            __syncthreads();
            float sum = Reduce(storage.reduce).Sum(one[0]);
            if (threadIdx.x == 0) x[0] = sum;
        }
    """)


def test_iterator() -> None:
    compiled("""
        #include <iterator>
        template <typename I>
        __device__ typename std::iterator_traits<I>::value_type second(I i) { return *std::next(i); }
        __global__ void f(float* x) { x[0] = second(x) + std::distance(x, x + 3); }
    """)


@pytest.mark.slow
@pytest.mark.skipif(
    not any((folder / "cuda/std/__host_stdlib/ostream").is_file() for folder in toolkit_folders()),
    reason="before CCCL 3 the header is for nvcc alone",
)
def test_thrust_complex() -> None:
    compiled("""
        #include <thrust/complex.h>
        __global__ void f(thrust::complex<float>* z) { *z = z[1] * thrust::exp(z[2]) + thrust::abs(*z); }
    """)


def test_assert_follows_ndebug() -> None:
    kernel = "__global__ void f() { assert(no_such_name); }"
    compiled(f"#define NDEBUG\n#include <cassert>\n{kernel}")
    with pytest.raises(Exception, match="no_such_name"):
        compiled(f"#define NDEBUG\n#include <cassert>\n#undef NDEBUG\n#include <assert.h>\n{kernel}")


def test_driver_header() -> None:
    compiled("""
        #include <cuda.h>
        static_assert(CUDA_VERSION >= 12000 && sizeof(CUtensorMap) == 128, "");
        __global__ void f(const __grid_constant__ CUtensorMap map, CUdeviceptr pointer) {}
    """)
