"""PyCUDA's compiler module, its modules of compiled code, and its texture references, in either place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.adapters.compiler_options import compile_options
from cudakit.adapters.pycuda import compiler, gpuarray
from cudakit.adapters.pycuda import driver as drv
from cudakit.adapters.pycuda.compiler import DynamicModule, DynamicSourceModule, SourceModule
from cudakit.adapters.pycuda.linking import compiled_here

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

FILL = "__global__ void fill(float* x) { x[threadIdx.x] = SIZE; }"


def run(module: Any, name: str, count: int = 4, *arguments: Any) -> np.ndarray:
    """Launch one block, and return the array of its first argument."""
    result = np.zeros(count, np.float32)
    module.get_function(name)(drv.InOut(result), *arguments, block=(count, 1, 1))
    return result


# ── sources ──


def test_options_and_folders_of_nvcc_are_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "size.h").write_text("#define SIZE 6\n")
    module = SourceModule(
        f'#include "size.h"\n{FILL}', nvcc="/usr/bin/nvcc", options=["-O3", "-w", "-Xptxas", "-v", "--compiler-options",
        "-Wall"], include_dirs=[str(tmp_path)], cache_dir=False, code="sm_20", keep=True,
    )  # fmt: skip
    assert run(module, "fill").tolist() == [6, 6, 6, 6]
    folder = Path(capsys.readouterr().out.partition("output in ")[2].strip())
    assert "fill" in (folder / "kernel.cu").read_text()
    assert run(SourceModule(FILL, options=["-DSIZE=7"]), "fill").tolist() == [7, 7, 7, 7]


def test_each_option_has_its_meaning() -> None:
    options, arch = compile_options(
        ["-use_fast_math -lineinfo", "-D", "N=4", "-DFLAG", "-I/a", "-I", "/b", "-maxrregcount=32", "-arch=sm_90",
         "--ftz=true", "-fmad", "false", "-std=c++11", "-rdc=true", "-lcudadevrt"], ["/c"],
    )  # fmt: skip
    assert options == ck.CompileOptions(
        fast_math=True, lineinfo=True, defines=[("N", "4"), "FLAG"], include_paths=["/c", "/a", "/b"], rdc=True,
        max_registers=32, extra={"ftz": True, "fma": False},
    )  # fmt: skip
    assert arch == "sm_90"
    with pytest.raises(drv.CompileError, match="'fatbin' has no counterpart"):
        SourceModule(FILL, options=["--fatbin"])


def test_an_arch_is_the_devices_or_an_older_one(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.warns(UserWarning, match="older than the device"):
        assert run(SourceModule(FILL, options=["-DSIZE=1"], arch="sm_50"), "fill").tolist() == [1, 1, 1, 1]
    with pytest.raises(ck.ArgumentError, match="newer than the device"):
        SourceModule(FILL, arch="sm_990")
    with pytest.raises(ck.ArgumentError, match="a name such as 'sm_90'"):
        SourceModule(FILL, arch="sm_new")


def test_an_error_of_the_compiler_has_its_text() -> None:
    with pytest.raises(drv.CompileError, match='identifier "y" is undefined') as caught:
        SourceModule("__global__ void f(int* x) { y = 1; }")
    error = caught.value
    assert isinstance(error, ck.CompileError)
    assert "undefined" in error.stderr
    assert error.command_line
    assert error.msg


def test_a_program_for_nvcc_compiles() -> None:
    module = SourceModule("""
        #include <stdio.h>
        #include <math.h>
        #include <stdint.h>
        #include <vector>
        static std::vector<int> of_the_host;
        int main() { return of_the_host.size(); }
        extern "C" { __device__ float helper(float x) { return sqrtf(x) + M_PI; } }
        __global__ void f(float* x, uint n) { if (threadIdx.x < n) x[threadIdx.x] = helper(4); }
        """, no_extern_c=True)  # fmt: skip
    assert run(module, "f", 4, np.uint32(3)).tolist() == pytest.approx([2 + np.pi] * 3 + [0])


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("cuComplex.h", "cuFloatComplex z = make_cuFloatComplex(1, 2); z = cuCmulf(z, z); x[0] = cuCimagf(z);"),
        ("pycuda-complex.hpp", "pycuda::complex<float> z(1, 2); z = z * z; x[0] = z.imag();"),
        ("cuda_fp16.h", "__half h = __float2half(4.0f); x[0] = __half2float(h);"),
        pytest.param(
            "curand_kernel.h", "curandState s; curand_init(1, 0, 0, &s); x[0] = curand_uniform(&s) < 2 ? 4 : 0;",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "cooperative_groups.h", "x[0] = cooperative_groups::this_thread_block().size() + 3;",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_headers_of_programs_are_here(header: str, code: str) -> None:
    module = SourceModule(f"#include <{header}>\n__global__ void f(float* x) {{ {code} }}", no_extern_c=True)
    assert run(module, "f", 1)[0] == 4


# ── compiled code ──


@pytest.mark.parametrize("target", ["cubin", "ptx"])
def test_compiled_code_is_loaded(target: str, tmp_path: Path) -> None:
    data = compiler.compile(FILL, options=["-DSIZE=5"], target=target)
    assert isinstance(data, bytes)
    path = tmp_path / f"fill.{target}"
    path.write_bytes(data)
    assert run(drv.module_from_buffer(data), "fill").tolist() == [5] * 4
    assert run(drv.module_from_file(str(path)), "fill").tolist() == [5] * 4
    with pytest.raises(drv.CompileError, match="NVRTC makes no fatbin"):
        compiler.compile(FILL, target="fatbin")


@pytest.mark.parametrize("target", ["cubin", "ptx"])
def test_code_of_another_process_is_loaded(target: str) -> None:
    """Also what a program keeps as a cubin: the emulator's is PTX."""
    source = "__global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }"
    data = compiler.compile(source, target=target)
    del compiled_here[data]
    options = [(drv.jit_option.MAX_REGISTERS, 32)]
    module = drv.module_from_buffer(data.decode() if target == "ptx" else data, options)
    memory = gpuarray.to_gpu(np.arange(4, dtype=np.float32))
    module.get_function("scale")(memory, np.float32(2), block=(4, 1, 1))
    assert memory.get().tolist() == [0, 2, 4, 6]
    with pytest.raises(drv.LogicError, match="invalid image"):
        drv.module_from_buffer(b"nothing")
    with pytest.raises(drv.LogicError, match="file not found"):
        drv.module_from_file("/nowhere/kernel.cubin")


def test_sources_are_linked() -> None:
    module = DynamicModule()
    module.add_source("__device__ float twice(float x) { return 2 * x; }")
    assert (
        module.add_source(
            "__device__ float twice(float);\n__global__ void f(float* x) { x[threadIdx.x] = twice(threadIdx.x); }"
        )
        is module
    )
    with pytest.raises(drv.CompileError, match="call link"):
        module.get_function("f")
    module.add_stdlib("cudadevrt").link()
    assert run(module, "f").tolist() == [0, 2, 4, 6]
    with pytest.raises(drv.CompileError, match="linked already"):
        module.link()


def test_code_is_linked() -> None:
    helper = compiler.compile(
        '__device__ float twice(float x) { return 2 * x; }\n__global__ void unused(float* x) { *x = 1; }',
        options=["-rdc=true"], target="ptx",
    )  # fmt: skip
    main = compiler.compile("__global__ void f(float* x) { x[threadIdx.x] = threadIdx.x; }", target="ptx")
    linker = drv.Linker()
    linker.add_data(main, drv.jit_input_type.PTX, "main")
    linker.add_data(helper, drv.jit_input_type.PTX, "helper")
    module = linker.link_module()
    assert run(module, "f").tolist() == [0, 1, 2, 3]
    assert run(module, "unused", 1).tolist() == [1]
    with pytest.raises(drv.LogicError, match="add code before"):
        drv.Linker().link_module()
    with pytest.raises(drv.LogicError, match="file not found"):
        drv.Linker().add_file("/nowhere/library.a", drv.jit_input_type.LIBRARY)


def test_kernels_launch_kernels() -> None:
    module = DynamicSourceModule("""
        __global__ void child(float* x) { x[threadIdx.x] = 7; }
        __global__ void parent(float* x) { if (!threadIdx.x) child<<<1, 2>>>(x); }
        """)
    result = gpuarray.zeros(3, np.float32)
    module.get_function("parent")(result, block=(32, 1, 1))
    assert result.get().tolist() == [7, 7, 0]


# ── references ──


def test_a_texture_reference_reads_arrays_and_memory() -> None:
    module = SourceModule("""
        texture<float, 2> image;
        texture<float, 1, cudaReadModeElementType> line;
        __global__ void sample(float* x, float at) {
            x[0] = tex2D(image, at, 1.5f);
            x[1] = tex1Dfetch(line, 2);
        }""")
    image, line = module.get_texref("image"), module.get_texref("line")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    drv.matrix_to_texref(values, image, order="C")
    memory = drv.to_device(np.arange(256, dtype=np.float32))
    assert line.set_address(memory, values.nbytes) == 0
    assert run(module, "sample", 2, np.float32(2)).tolist() == [6, 2]
    image.set_filter_mode(drv.filter_mode.LINEAR)
    line.set_address(int(memory) + 512, 32)
    assert run(module, "sample", 2, np.float32(2)).tolist() == [5.5, 130]
    with pytest.raises(drv.LogicError, match="begins 16 bytes after"):
        line.set_address(int(memory) + 16, 32)
    assert line.set_address(int(memory) + 16, 32, allow_offset=True) == 16
    image.set_flags(drv.TRSF_NORMALIZED_COORDINATES)
    image.set_address_mode(0, drv.address_mode.WRAP)
    image.set_filter_mode(drv.filter_mode.POINT)
    image.set_address_mode(1, drv.address_mode.CLAMP)
    assert run(module, "sample", 2, np.float32(1.375))[0] == 9
    assert image.get_array().shape == (3, 4)
    assert image.get_flags() == drv.TRSF_NORMALIZED_COORDINATES
    assert image.get_format() == (drv.array_format.FLOAT, 1)
    assert image.get_address_mode(0) == drv.address_mode.WRAP
    assert image.get_filter_mode() == drv.filter_mode.POINT
    assert line.get_address() == int(memory)
    with pytest.raises(drv.LogicError, match="the source has image, line"):
        module.get_texref("nothing")
    with pytest.raises(drv.LogicError, match="not of linear memory"):
        image.get_address()


def test_a_texture_reference_reads_rows_and_fractions() -> None:
    module = SourceModule("""
        texture<unsigned char, 2, cudaReadModeNormalizedFloat> image;
        __global__ void sample(float* x) { x[threadIdx.x] = tex2D(image, threadIdx.x, 1); }""")
    memory, pitch = drv.mem_alloc_pitch(8, 2, 4)
    drv.memset_d8(memory, 0, 2 * pitch)
    drv.memcpy_htod(int(memory) + pitch, np.array([0, 255, 51, 102, 7], np.uint8))
    layout = drv.ArrayDescriptor()
    layout.width, layout.height, layout.num_channels = 4, 2, 1
    layout.format = drv.array_format.UNSIGNED_INT8
    module.get_texref("image").set_address_2d(memory, layout, pitch)
    assert run(module, "sample", 6).tolist() == pytest.approx([0, 1, 0.2, 0.4, 0.4, 0.4], abs=1e-6)


def test_texture_references_stand_in_headers_too(tmp_path: Path) -> None:
    (tmp_path / "cube.h").write_text("""
        #pragma once
        texture<int, 3, cudaReadModeElementType> cube;
        """)  # fmt: skip
    (tmp_path / "read.cu").write_text("""
        #include "cube.h"
        static texture<int> line;
        __global__ void read(float* x) { x[threadIdx.x] = tex3D(cube, 1, threadIdx.x, 1) + tex1Dfetch(line, 1); }
        """)  # fmt: skip
    module = SourceModule('#include "read.cu"', include_dirs=[str(tmp_path)])
    copy = drv.Memcpy3D()
    values = np.arange(24, dtype=np.int32).reshape(2, 4, 3)
    layout = drv.ArrayDescriptor3D()
    layout.width, layout.height, layout.depth = values.shape[::-1]
    layout.format, layout.num_channels = drv.dtype_to_array_format(values.dtype), 1
    array = drv.Array(layout)
    copy.set_src_host(values)
    copy.set_dst_array(array)
    copy.width_in_bytes = copy.src_pitch = values.strides[1]
    copy.src_height = copy.height = values.shape[1]
    copy.depth = values.shape[0]
    copy()
    module.get_texref("cube").set_array(array)
    gpuarray.to_gpu(np.array([7, 100], np.int32)).bind_to_texref_ext(module.get_texref("line"))
    assert run(module, "read").tolist() == (values[1, :, 1] + 100).tolist()


def test_a_surface_reference_writes_an_array() -> None:
    module = SourceModule("""
        surface<void, 2> image;
        __global__ void write(float by) { surf2Dwrite(by * threadIdx.x, image, threadIdx.x * 4, 1); }""")
    array = drv.matrix_to_array(np.zeros((2, 4), np.float32), "C")
    module.get_surfref("image").set_array(array)
    assert module.get_surfref("image").get_array() is array
    module.get_function("write")(np.float32(3), block=(4, 1, 1))
    back = np.zeros((2, 4), np.float32)
    copy = drv.Memcpy2D()
    copy.set_src_array(array)
    copy.set_dst_host(back)
    copy.width_in_bytes, copy.height = 16, 2
    copy()
    assert back.tolist() == [[0, 0, 0, 0], [0, 3, 6, 9]]


def test_a_texture_object_is_an_argument() -> None:
    module = SourceModule("""
        __global__ void sample(float* x, cudaTextureObject_t t) {
            x[threadIdx.x] = tex2D<float>(t, threadIdx.x + 0.5f, 1.5f);
        }""")
    array = drv.matrix_to_array(np.arange(8, dtype=np.float32).reshape(2, 4), "C")
    assert run(module, "sample", 4, ck.texture(array.surface)).tolist() == [4, 5, 6, 7]


def test_helpers_read_doubles_and_complex_numbers() -> None:
    module = SourceModule("""
        #include <pycuda-helpers.hpp>
        texture<fp_tex_double, 2, cudaReadModeElementType> image;
        __global__ void copy(double* x) { x[threadIdx.x] = fp_tex2D(image, threadIdx.x, 1); }""")
    values = np.random.default_rng(0).random((2, 4))
    module.get_texref("image").set_array(drv.np_to_array(values, "C"))
    result = np.zeros(4)
    module.get_function("copy")(drv.Out(result), block=(4, 1, 1))
    assert (result == values[1]).all()
