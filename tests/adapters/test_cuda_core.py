"""cuda.core without a driver: programs as its documentation writes them, and what the stand-ins refuse."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudakit.adapters import program
from cudakit.errors import ArgumentError, LaunchError
from cudakit.streams.devices import has_gpu

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.errors.EmulatorWarning")
PROGRAMS = sorted((Path(__file__).parent / "programs_core").glob("*.py"))


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 12


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs_unchanged(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.run(path)
    assert capsys.readouterr().out == "done!\n"


@pytest.mark.emulator
def test_a_program_is_checked() -> None:
    ran = program.examine(program.Program(PROGRAMS[-1]), checked=True)
    assert (ran.status, ran.faults) == (0, ())


#: The begin of the programs below.
HEAD = '''
import ctypes
import cupy as cp
import numpy as np
from cuda.core import *

code = """
extern "C" __global__ void scale(float* x, float by, int n) { if (threadIdx.x < n) x[threadIdx.x] *= by; }
extern "C" __global__ void wide(double* x, double by, bool truth) { *x = truth ? by : 0; }
template <typename T> __global__ void put(T* x, T value) { *x = value; }
"""
device = Device()
device.set_current()
stream = device.create_stream()
module = Program(code, "c++", options=ProgramOptions()).compile("cubin", name_expressions=["put<float>"])
scale, wide, put = (module.get_kernel(name) for name in ("scale", "wide", "put<float>"))
x = cp.ones(32, dtype=cp.float32)
one = LaunchConfig(grid=1, block=32)
'''

FAULTS = [
    ("launch(stream, one, scale, x.data.ptr, np.float32(2))", "scale takes 3 arguments, got 2"),
    (
        "launch(stream, one, scale, x.data.ptr, 2.0, np.int32(32))",
        r"argument 1 of scale \(float\) takes np.float32, got",
    ),
    ("launch(stream, one, scale, x.data.ptr, 2, np.int32(32))", r"takes np.float32\(2\), got int"),
    ("launch(stream, one, scale, x.data.ptr, np.float64(2), np.int32(32))", "takes np.float32, got float64 of 8 bytes"),
    ("launch(stream, one, scale, x.data.ptr, np.float32(2), np.int64(32))", "takes np.int32, got int64 of 8 bytes"),
    ("launch(stream, one, scale, x.data.ptr, np.float32(2), 2**40)", "1099511627776 does not fit in 4 bytes"),
    ("launch(stream, one, scale, x.data.ptr, np.int32(2), np.int32(32))", "takes np.float32, got int32"),
    ("launch(stream, one, wide, x.data.ptr, 2.0, np.int32(1))", "takes np.bool, got int32 of 4 bytes"),
    ("launch(stream, one, scale, 4096, np.float32(2), np.int32(32))", "the address 0x1000 is in no live memory"),
    ("launch(stream, one, scale, np.float32(2), np.float32(2), np.int32(32))", "of 4 bytes"),
    ("p = x.data.ptr; del x; launch(stream, one, scale, p, np.float32(2), np.int32(32))", "is in no live memory"),
    ("b = device.allocate(8, stream=stream); launch(stream, one, put, x.data.ptr, b)", "takes a number, got Buffer"),
    (
        "h = np.ones(32, 'f'); launch(stream, one, scale, h.ctypes.data, np.float32(2), np.int32(32))",
        "in no live memory",
    ),
]


def run_text(text: str) -> dict[str, Any]:
    with program.stand_ins(False):
        return program.Program(text=HEAD + text).execute()


@pytest.mark.emulator
@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_wrong_argument_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run_text(text)


@pytest.mark.emulator
def test_an_access_outside_is_refused() -> None:
    from cudakit.errors import EmulationError

    with pytest.raises(EmulationError, match=r"default_program:2"):
        run_text("launch(stream, LaunchConfig(grid=1, block=33), scale, x.data.ptr, np.float32(2), np.int32(33))")


@pytest.mark.emulator
@pytest.mark.parametrize("argument", ["None", "x", "[1]", "(1, 2)", "'text'", "np.zeros(1, 'i4, f4')[0]"])
def test_an_argument_that_cuda_core_refuses_is_refused(argument: str) -> None:
    with pytest.raises(TypeError, match=r"cuda\.core's launch takes"):
        run_text(f"launch(stream, one, scale, {argument}, np.float32(2), np.int32(32))")


@pytest.mark.emulator
@pytest.mark.parametrize(
    "text",
    [
        "device.create_context()",
        "ObjectCode.from_cubin(b'foreign')",
        "VirtualMemoryResource(device)",
        "GraphicsResource.from_gl_buffer(1)",
        "import cuda.core.graph; cuda.core.graph.GraphDefinition()",
        "system.get_nvml_version()",
        "DeviceMemoryResource(device, {'ipc_enabled': True})",
        "device.create_mipmapped_array(None)",
        "device.resources.workqueue",
    ],
)
def test_what_needs_a_driver_says_so(text: str) -> None:
    import cuda.core

    error = getattr(cuda.core, "CUDAError", None)
    if error is None:
        from cuda.core._utils.cuda_utils import CUDAError as error
    with pytest.raises(error, match=r"needs a GPU|emulator|no driver|there is none"):
        run_text("from cuda.core import *\nfrom cuda.core import system\n" + text)


@pytest.mark.emulator
def test_no_time_is_pretended() -> None:
    names = run_text(
        "timed = EventOptions(timing_enabled=True)\n"
        "begin, end = stream.record(options=timed), stream.record(options=timed)\n"
        "elapsed = end - begin"
    )
    assert math.isnan(names["elapsed"])


@pytest.mark.emulator
def test_cudakit_keeps_the_real_modules() -> None:
    import cuda.core

    real = cuda.core.Device
    with program.stand_ins(False):
        import cuda.core as seen

        assert vars(sys.modules["cuda.core"])["Device"] is not real
        assert program.Program(text="from cuda.core import Device as D").execute()["D"] is not real
        from cudakit.streams import devices

        assert not devices.has_gpu()
    assert seen.Device is real


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_names_are_found() -> None:
    text = (
        "from cuda.core.experimental import Buffer, Device, GraphBuilder, LaunchConfig, Program, Stream, launch\n"
        "from cuda.core.experimental.utils import StridedMemoryView\n"
        "from cuda.core import Device as new\n"
    )
    with program.stand_ins(has_gpu()):
        names = program.Program(text=text).execute()
    assert names["Device"] is names["new"]


@pytest.mark.emulator
def test_the_old_object_system_is_there() -> None:
    with program.stand_ins(False), pytest.warns(FutureWarning):
        names = program.Program(text="from cuda.core.experimental import system").execute()
    assert names["system"].num_devices == 1


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("command", ["run", "check", "inspect"])
def test_the_commands_run_a_program(command: str) -> None:
    path = Path(__file__).parent / "programs_core" / "vector_add.py"
    ran = subprocess.run([sys.executable, "-m", "cudakit", command, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "done!" in ran.stdout


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from_linear(buffer, format=F.FLOAT32, num_channels=3)", "num_channels must be 1, 2 or 4"),
        ("from_linear(buffer, format='wide', num_channels=1)", "format must be an ArrayFormatType"),
        ("from_linear(buffer, format=F.FLOAT32, num_channels=1, size_bytes=68)", r"size_bytes=68 exceeds buffer\.size"),
        ("from_linear(buffer, format=F.FLOAT32, num_channels=1, size_bytes=6)", "multiple of element size"),
        ("from_linear(x, format=F.FLOAT32, num_channels=1)", "buffer must be a Buffer"),
        ("from_pitch2d(buffer, **one, width=4, height=2, pitch_bytes=8)", "pitch_bytes=8 is less than a row of 16"),
        ("from_pitch2d(buffer, **one, width=4, height=5, pitch_bytes=16)", r"exceeds buffer\.size=64"),
        ("from_pitch2d(buffer, **one, width=0, height=5, pitch_bytes=16)", "width and height are >= 1"),
    ],
)
def test_memory_of_a_texture_is_checked(text: str, message: str) -> None:
    begin = (
        "from cuda.core.texture import ResourceDescriptor\nfrom cuda.core.typing import ArrayFormatType as F\n"
        "buffer, one = device.allocate(64, stream=stream), {'format': F.FLOAT32, 'num_channels': 1}\n"
    )
    with pytest.raises((TypeError, ValueError), match=message):
        run_text(f"{begin}ResourceDescriptor.{text}")


DESCRIBED = """
from cuda.core.utils import StridedMemoryView
class Described:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "shape": (2, 3), "strides": (4, 8), "typestr": "<f4", "data": (address, False), "version": 3,
        }
x[...] = cp.arange(32)
view = StridedMemoryView.from_any_interface(Described(x.data.ptr), -1)
facts = view.ptr == x.data.ptr, view.shape, view.strides, view.device_id, view.elements().tolist()
"""


@pytest.mark.emulator
def test_a_view_of_memory_that_an_object_describes() -> None:
    assert run_text(DESCRIBED)["facts"] == (True, (2, 3), (1, 2), 0, [[0, 2, 4], [1, 3, 5]])
    with pytest.raises(LaunchError, match="the address 0x1000 of Described is in no live memory"):
        run_text(f"{DESCRIBED}StridedMemoryView.from_any_interface(Described(4096), -1)")


REFUSED = [
    ("cuMemcpyDtoH(np.zeros(33, 'f'), x.data.ptr, 132)", "INVALID_VALUE", "has no 132 bytes of memory"),
    ("cuMemcpyHtoD(np.zeros(8, 'f').ctypes.data, np.zeros(8, 'f'), 32)", "INVALID_VALUE", "has no 32 bytes of memory"),
    ("cuMemFree(4096)", "INVALID_VALUE", "no memory that was allocated begins at 0x1000: free it once"),
    ("cuEventRecord(77, 0)", "INVALID_HANDLE", "0x4d is no handle of a living Event"),
    ("cuModuleLoadData(b'.version no')", "INVALID_IMAGE", "INVALID_PTX"),
    ("cuDeviceGet(1)", "INVALID_DEVICE", "the emulator is one device"),
]


@pytest.mark.emulator
@pytest.mark.parametrize(("call", "name", "message"), REFUSED)
def test_the_driver_says_why_it_refuses(call: str, name: str, message: str) -> None:
    text = "from cuda.bindings import driver\nanswer = driver.{}\nwhy = driver.cuGetErrorString(answer[0])[1].decode()"
    names = run_text(text.format(call))
    assert names["answer"][0].name == f"CUDA_ERROR_{name}"
    assert message in names["why"]


@pytest.mark.emulator
def test_a_call_of_the_driver_that_the_emulator_lacks() -> None:
    with pytest.raises(LaunchError, match="the program calls cuMemMap of the CUDA driver, which the emulator lacks"):
        run_text("from cuda.bindings import driver\ndriver.cuMemMap(0, 0, 0, 0, 0)")
