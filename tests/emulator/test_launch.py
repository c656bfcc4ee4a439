"""What a launch on the emulator is bound to, checked against and given, piece by piece."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator import launch as emulator_arguments
from cudakit.emulator.launch import EmulatedCode, EmulatedShape, EmulatedVariables, describe_host, pack
from cudakit.emulator.machine.kernel_memory import SharedLayout
from cudakit.emulator.ready import EmulatedThreads, EmulatedTiles, limits_of
from cudakit.jit.launch.bind import Fragment, Mismatch, evaluate
from cudakit.jit.load.config import Cover
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams.witnesses import Witness, Work, witnessing
from cudakit.types.arguments import Argument, Evidence
from cudakit.types.tensors import TensorLayout

F4, I4 = np.dtype("f4"), np.dtype("i4")
POINTER = BoundParameter("x", "float*", "pointer", F4)
COUNT = BoundParameter("n", "int", "scalar", I4)


def aligned(count: int, dtype: Any = "f4", skip: int = 0) -> np.ndarray:
    """Zeros that begin `skip` bytes after a multiple of 64."""
    held = np.zeros(count * np.dtype(dtype).itemsize + 128, np.uint8)
    begin = -held.ctypes.data % 64 + skip
    return held[begin : begin + count * np.dtype(dtype).itemsize].view(dtype)


def ready(*parameters: BoundParameter, sizes: tuple[int, ...] = (), layout: str = "<8s4s") -> Any:
    """What binding and packing look at of a kernel ``f``."""
    specialization = SimpleNamespace(name_expression="f")
    return SimpleNamespace(
        parameters=parameters, sizes=sizes, specialization=specialization, layout=struct.Struct(layout)
    )


def bound(parameter: BoundParameter, given: Any, size: int = 8) -> Fragment:
    """The fragment of one argument."""
    code = EmulatedCode("sm_90")
    shape = code.bind(ready(parameter, sizes=(size,)), (given,), (code.describe(given),), (False,))
    assert shape.arch == "sm_90"
    return shape.fragments[0]


def holds(fragment: Fragment, value: Any) -> bool:
    """Whether a fragment's guard takes another argument."""
    names = {f"k_{key}": constant for key, constant in fragment.constants.items()}
    return bool(eval(fragment.guard.format(a="a", k="k_"), {**names, "a": value}))


class Recorded:
    """A recorder that keeps what it is told to launch."""

    capture = "a capture"

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        self.launches.append((shape, config, values, arguments))


# ── arguments ──


def test_a_pointer_is_the_array_itself_and_guarded() -> None:
    x = np.zeros((2, 3), "f4")
    fragment = bound(POINTER, x)
    assert evaluate(fragment, x) is x
    assert holds(fragment, np.ones(7, "f4"))
    frozen = np.zeros(3, "f4")
    frozen.flags.writeable = False
    for other in (np.zeros(3, "f8"), np.zeros((2, 4), "f4")[:, ::2], frozen, frozen.view(np.recarray)):
        assert not holds(fragment, other)
    only_read = bound(POINTER._replace(const=True), frozen)
    assert holds(only_read, frozen)
    assert not holds(only_read, x)


@pytest.mark.parametrize("alignment", [1, 16])
def test_an_aligned_pointer_is_guarded_by_its_address(alignment: int) -> None:
    fragment = bound(POINTER._replace(alignment=alignment), aligned(4))
    assert holds(fragment, aligned(8, skip=16))
    assert holds(fragment, aligned(8, skip=4)) == (alignment == 1)


def test_a_view_is_given_as_an_array_each_time_and_checked() -> None:
    strided = BoundParameter("x", "cudakit::strided<float, 1>", "strided", F4, count=1)
    x = np.zeros(8, "f4")[::2]
    fragment = bound(strided, x, 24)
    again = np.ones(12, "f4")[::3]
    assert evaluate(fragment, again) is again
    frozen = np.zeros(4, "f4")
    frozen.flags.writeable = False
    for other in (np.zeros(4, "f8"), np.zeros((2, 2), "f4"), frozen, 3):
        with pytest.raises(Mismatch):
            evaluate(fragment, other)


def test_a_tensor_of_another_layout_is_another_specializations() -> None:
    layout = TensorLayout(1, 16, True)
    tensor = BoundParameter("x", "tensor<float, 2>", "tensor", F4, count=2, layout=layout)
    fragment = bound(tensor, aligned(64).reshape(4, 16), 24)
    assert holds(fragment, aligned(32).reshape(2, 16))
    assert not holds(fragment, aligned(36, skip=4).reshape(4, 9))
    assert not holds(fragment, aligned(64).reshape(16, 4).T)
    assert not holds(fragment, [1])


def test_a_shape_passes_on_another_argument_of_the_same_kind() -> None:
    code, x = EmulatedCode("sm_90"), np.zeros(4, "f4")
    emulated = ready(POINTER, COUNT, sizes=(8, 4))
    shape = code.bind(emulated, (x, 3), (code.describe(x), code.describe(3)), (False, False))
    assert shape.name == "f"
    assert shape.families[0] == "memory"
    other = np.ones(9, "f4")
    assert shape.value(0, other) is other
    assert shape.value(1, 77) == 77
    with pytest.raises(ck.ArgumentError, match=r"f: .*x"):
        shape.value(0, np.zeros(3, "f8"))
    with pytest.raises(ck.ArgumentError, match=r"f: .*x"):
        code.bind(emulated, (3, 3), (code.describe(3), code.describe(3)), (False, False))
    assert holds(shape.fragments[1], 5)
    with pytest.raises(ck.ArgumentError, match=r"f: .*n"):
        shape.value(1, 2**40)


def test_a_shape_is_for_streams_of_its_arch() -> None:
    shape = EmulatedShape(ready(), (), (), "sm_80", False)
    old = emulator.stream("sm_80")
    assert shape.target(old) is old
    assert shape.target(emulator.stream("sm_90")) is None
    assert shape.target(emulator.stream("sm_80", strict=True)) is None
    assert shape.target(None) is None


def test_host_arrays_stand_for_those_of_other_libraries() -> None:
    class Other:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

    code, x = EmulatedCode("sm_90"), np.arange(4, dtype="f4")
    given = (Other(x), 5)
    described = tuple(map(code.describe, given))
    shape = code.bind(ready(POINTER, COUNT, sizes=(8, 4)), given, described, (False, False))
    values = tuple(evaluate(each, value) for each, value in zip(shape.fragments, given, strict=True))
    assert values[0] is not given[0]
    assert values[0].ctypes.data == x.ctypes.data
    stream = emulator.stream()
    stream.recorder = recorder = Recorded()  # type: ignore[assignment]
    shape.launch(stream, ck.config(1, 32), values, given)
    ((found, config, _, arguments),) = recorder.launches
    assert found is shape
    assert config == ck.config(1, 32)
    assert arguments == (values[0], 5)


@pytest.mark.parametrize(
    ("family", "evidence", "why"),
    [
        (
            "object",
            Evidence("object", "tensor map", text="CUtensorMap"),
            "the tensor map is of an array in device",
        ),
        ("memory", Evidence("array", "cupy array", F4, 1), "cupy array is in device memory .*; give a NumPy array"),
        ("buffer", Evidence("object", "Buffer"), "Buffer is in device memory .*; give a NumPy array"),
    ],
)
def test_memory_of_a_device_is_refused_by_name(
    family: Any, evidence: Evidence, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator_arguments, "describe", lambda value: Argument(value, family, evidence))
    with pytest.raises(ck.ArgumentError, match=why):
        describe_host(object())


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    fields = np.zeros(4, np.dtype([("a", "u1"), ("b", "f4")]))
    with pytest.raises(ck.ArgumentError, match=r"strides \(5,\) in bytes, not whole elements of float32; copy it"):
        describe_host(fields["b"])
    described = describe_host(np.zeros((4, 6), "f4")[:, ::2])
    assert described.strides == (6, 2)
    assert described.shape == (4, 3)
    assert "numpy array of float32 with shape (4, 3)" in described.evidence.shown


def test_arrays_are_described_by_address_and_strides_in_elements() -> None:
    x = np.zeros((4, 6), "u1")[:, ::3]
    described = describe_host(x)
    assert (described.pointer, described.base) == (x.ctypes.data, x.ctypes.data)
    assert described.strides == (6, 3)
    assert not described.contiguous
    assert describe_host(np.zeros(3, "V0")).strides == (0,)
    with pytest.raises(ck.ArgumentError, match="numpy array has dtype object: it holds references"):
        describe_host(np.array([None]))


def test_tensor_maps_and_textures_are_objects() -> None:
    made = ck.tensor_map(np.zeros((4, 16), "f4"), (2, 16))
    described = describe_host(made)
    assert described.value is made
    assert described.family == "object"
    assert described.evidence == Evidence("object", "tensor map", text="CUtensorMap")
    assert passed(BoundParameter("t", "CUtensorMap", "tensor_map"), made, 128) == made.data
    texture = ck.texture(np.zeros((4, 16), "f4"))
    described = describe_host(texture)
    assert described.value is texture
    assert described.family == "object"
    assert described.evidence == Evidence("scalar", "TextureObject", np.dtype("u8"))


@pytest.mark.parametrize(("name", "maker"), [("TextureObject", "texture"), ("SurfaceObject", "surface")])
def test_a_texture_of_a_device_is_refused_by_name(name: str, maker: str) -> None:
    texture = type(name, (), {"handle": 1, "__module__": "cuda.core"})()
    with pytest.raises(ck.ArgumentError, match=rf"{name} is of device memory .* give ck\.{maker}\(array\) of a NumPy"):
        describe_host(texture)


# ── bytes ──


def passed(parameter: BoundParameter, value: Any, size: int = 8) -> bytes:
    return pack(ready(parameter, layout=f"<{size}s"), (value,))


def test_numbers_are_their_bytes() -> None:
    assert passed(COUNT, -2, 4) == struct.pack("<i", -2)
    assert passed(COUNT, 2**64 - 3) == struct.pack("<q", -3)
    assert passed(COUNT, True) == struct.pack("<q", 1)
    assert passed(BoundParameter("v", "double", "scalar", np.dtype("f8")), -1.5) == struct.pack("<d", -1.5)
    assert passed(BoundParameter("v", "complex", "scalar"), 1.5 - 2j, 16) == struct.pack("<2d", 1.5, -2)
    assert passed(BoundParameter("v", "struct", "struct"), b"abcd", 4) == b"abcd"


def test_arrays_are_their_address_with_what_their_kind_has_beside() -> None:
    x = aligned(24).reshape(4, 6)[:, ::2]
    address = x.ctypes.data
    assert passed(POINTER, x) == struct.pack("<Q", address)
    assert passed(BoundParameter("x", "functor", "functor"), x) == struct.pack("<Q", address)
    strided = BoundParameter("x", "cudakit::strided<float, 2>", "strided", F4, count=2)
    octets = aligned(8, "u1")[::2]
    one_axis = strided._replace(dtype=np.dtype("u1"), count=1)
    assert passed(one_axis, octets, 24) == struct.pack("<Q2q", octets.ctypes.data, 4, 2)
    assert passed(strided, x, 40) == struct.pack("<Q4q", address, 4, 3, 6, 2)
    tensor = BoundParameter("x", "tensor", "tensor", F4, count=2, layout=TensorLayout())
    assert passed(tensor, x, 24) == struct.pack("<Q4i", address, 4, 3, 6, 2)
    wide = BoundParameter("x", "tensor", "tensor", F4, count=2, layout=TensorLayout(wide=True))
    assert passed(wide, x, 32) == struct.pack("<Q2i2q", address, 4, 3, 6, 2)
    one = aligned(6).reshape(1, 6)
    assert passed(tensor, one, 24) == struct.pack("<Q4i", one.ctypes.data, 1, 6, 8, 1)


# ── launches ──


@pytest.fixture(scope="module")
def put() -> ck.Kernel:
    return ck.Kernel("__global__ void put(int* x, int n) { x[threadIdx.x] += n; }")


@pytest.mark.parametrize("config", [ck.cover(0), ck.config(0, 32), ck.config((3, 0), 32)])
def test_an_empty_grid_launches_nothing(put: ck.Kernel, config: Any) -> None:
    stream, x = emulator.stream(), np.zeros(32, "i4")
    stream.recorder = recorder = Recorded()  # type: ignore[assignment]
    put(stream, config, x, 1)
    assert recorder.launches == []
    put(stream, ck.config(1, 32), x, 1)
    assert len(recorder.launches) == 1
    assert not x.any()


def test_a_launch_is_told_with_what_it_was_given(put: ck.Kernel) -> None:
    told: list[Work] = []

    class Told(Witness):
        def begin(self, work: Work) -> None:
            told.append(work)

    stream, x, config = emulator.stream(), np.zeros(32, "i4"), ck.config(1, 32)
    with witnessing(Told()):
        put(stream, config, x, 3)
    (work,) = (each for each in told if each.kind == "kernel")
    assert work.name == "put"
    assert work.stream is stream
    assert [id(each) for each in work.writes] == [id(x)]
    assert work.detail.target.specialization.name_expression == "put"
    assert work.detail.config == config
    assert work.detail.values[0] is x
    assert work.detail.values[1:] == (3,)
    assert work.detail.arguments[0] is x


def test_a_plan_on_a_stream_that_records_is_recorded(put: ck.Kernel) -> None:
    stream, x = emulator.stream(), np.zeros(32, "i4")
    plan = put.plan(stream, ck.config(1, 32), x, 3)
    assert not x.any()
    plan()
    assert (x == 3).all()
    stream.recorder = recorder = Recorded()  # type: ignore[assignment]
    plan()
    assert (x == 3).all()
    ((_, config, values, arguments),) = recorder.launches
    assert config == ck.config(1, 32)
    assert values[0] is x
    assert arguments[0] is x


def test_attributes_before_a_launch_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel("__global__ void f(int* x) { __shared__ int s[12]; s[x[0]] = 1; x[0] = s[1]; }")
    x = np.zeros(1, "i4")
    kernel(emulator.stream(machine="numpy"), ck.config(1, 1), x)
    assert kernel.attributes() == ("numpy", "", 48)
    assert threads(static=48, ran={}).attributes() == ("numpy", "it has not run", 48)
    assert threads(static=48, ran={"k": ("compiled", "")}).attributes() == ("compiled", "", 48)
    assert tiles().attributes() == ("numpy", "tile kernels run on NumPy", 0)


def test_variables_are_copied_on_their_stream() -> None:
    done: list[Any] = []

    class Noted:
        def sync(self) -> None:
            done.append("sync")

        @contextmanager
        def doing(self, work: Any, insert_waits: bool, reported: bool) -> Any:
            done.append((work.kind, work.name, work.stream, work.reads, work.writes, insert_waits, reported))
            yield
            done.append("done")

    held, noted = np.arange(4, dtype=np.uint8), Noted()
    variables = EmulatedVariables(SimpleNamespace(variables={"v": (held, 4096)}))  # type: ignore[arg-type]
    assert variables.names() == ["v"]
    assert variables.address("v") == (4096, 4)
    found = variables.read("v", noted)  # type: ignore[arg-type]
    assert found.tolist() == [0, 1, 2, 3]
    assert found.base is None
    assert done == ["sync", ("copy", "a variable's read", noted, (held,), (), False, False), "done", "sync"]
    done.clear()
    variables.write("v", np.full(4, 9, np.uint8), noted)  # type: ignore[arg-type]
    assert held.tolist() == [9] * 4
    assert found.tolist() == [0, 1, 2, 3]
    assert done == ["sync", ("copy", "a variable's write", noted, (), (held,), False, False), "done", "sync"]
    variables.write("v", np.zeros(4, np.uint8), None)
    assert not variables.read("v", None).any()


# ── limits ──


def threads(directives: dict[str, tuple[int, ...]] | None = None, static: int = 0, **loaded: Any) -> EmulatedThreads:
    """A kernel ``f`` of threads, of which only a part is there."""
    function = SimpleNamespace(directives=directives or {}, parameters=[])
    program = SimpleNamespace(functions={"k": function})
    layouts = {"k": SharedLayout({}, static, static)}
    module: Any = SimpleNamespace(program=program, shared=layouts.__getitem__, **loaded)
    specialization: Any = SimpleNamespace(name_expression="f")
    compiled: Any = SimpleNamespace(lowered={"f": "k"})
    return EmulatedThreads(specialization, compiled, (), module)


def tiles(*parameters: Any) -> EmulatedTiles:
    """A tile kernel ``f``, of which only a part is there."""
    function = SimpleNamespace(name="k", parameters=parameters)
    loaded: Any = SimpleNamespace(module=SimpleNamespace(functions={"k": function}), memory="its memory")
    specialization: Any = SimpleNamespace(name_expression="f")
    compiled: Any = SimpleNamespace(lowered={"f": "k"})
    return EmulatedTiles(specialization, compiled, (), loaded)


@pytest.mark.parametrize(
    ("arch", "own", "runs"),
    [
        ("sm_90", None, True),
        ("sm_90", "sm_90a", True),
        ("sm_90", "sm_80", False),
        ("sm_86", "sm_80", True),
        ("sm_80", "sm_86", False),
        ("sm_80", "sm_90a", False),
        ("sm_121", "sm_120a", True),
    ],
)
def test_code_for_an_own_arch_runs_where_machine_code_would(arch: str, own: str | None, runs: bool) -> None:
    code = EmulatedCode(arch)
    if runs:
        code.check_arch("f", own)
        return
    with pytest.raises(ck.LaunchError, match=f"f is compiled for {own}, and this stream is the emulator's {arch}"):
        code.check_arch("f", own)


@pytest.mark.parametrize(
    ("arch", "capability", "shared", "multiprocessors"),
    [
        ("sm_80", (8, 0), 163, 108),
        ("sm_86", (8, 6), 99, 132),
        ("sm_89", (8, 9), 99, 132),
        ("sm_90a", (9, 0), 227, 132),
        ("sm_100f", (10, 0), 227, 132),
    ],
)
def test_limits_of_arches(arch: str, capability: tuple[int, int], shared: int, multiprocessors: int) -> None:
    limits = limits_of(arch)
    assert limits.name == f"the emulator's {arch}"
    assert limits.arch == arch
    assert limits.compute_capability == capability
    assert limits.shared_bytes == shared * 1024
    assert limits.multiprocessors == multiprocessors
    assert limits.threads_per_block == 1024
    assert limits.block == (1024, 1024, 64)
    assert limits.grid == (2**31 - 1, 65535, 65535)
    assert limits.cooperative


@pytest.mark.parametrize(
    ("block", "static", "dynamic", "most"),
    [
        (1024, 0, 0, 2 * 132),
        (1023, 0, 0, 2 * 132),
        (992, 0, 0, 2 * 132),
        (640, 0, 0, 3 * 132),
        (33, 0, 0, 32 * 132),
        (1, 0, 0, 32 * 132),
        (64, 0, 0, 32 * 132),
        (96, 0, 0, 21 * 132),
        (32, 0, 100 * 1024, 2 * 132),
        (32, 27 * 1024, 200 * 1024, 132),
        (32, 28 * 1024, 0, 8 * 132),
        (32, 1, 0, 32 * 132),
        (1024, 1, 0, 2 * 132),
    ],
)
def test_a_cooperative_grid_runs_at_once(block: int, static: int, dynamic: int, most: int) -> None:
    kernel = threads(static=static)
    geometry = kernel.geometry("sm_90", ck.config(most, block, dynamic, cooperative=True))
    assert geometry.cooperative
    assert geometry.grid == (most, 1, 1)
    with pytest.raises(ck.LaunchError, match=f"f: a cooperative grid is {most + 1} blocks, over the limit {most} "):
        kernel.geometry("sm_90", ck.config(most + 1, block, dynamic, cooperative=True))
    assert not kernel.geometry("sm_90", ck.config(most + 1, block, dynamic)).cooperative


@pytest.mark.parametrize(
    ("directives", "most"),
    [({}, 1024), ({"maxntid": (128, 2, 1)}, 256), ({"reqntid": (64, 1, 1)}, 64), ({"maxntid": (32, 4)}, 128)],
)
def test_a_kernel_s_own_bounds_hold(directives: dict[str, tuple[int, ...]], most: int) -> None:
    kernel = threads(directives)
    geometry = kernel.geometry("sm_90", ck.config((3, 2), most, 16))
    assert (geometry.grid, geometry.block, geometry.shared_bytes) == ((3, 2, 1), (most, 1, 1), 16)
    assert geometry.cluster == (1, 1, 1)
    with pytest.raises(ck.LaunchError, match=f"(limit |kernel's own .){most}"):
        kernel.geometry("sm_90", ck.config(1, most + 32))
    covered = kernel.geometry("sm_90", ck.cover(1000))
    assert covered.block == (min(256, most), 1, 1)
    assert covered.grid == (-(-1000 // min(256, most)), 1, 1)


def test_a_cluster_is_the_configuration_s() -> None:
    assert threads().geometry("sm_90", ck.config(4, 32, cluster=2)).cluster == (2, 1, 1)
    with pytest.raises(ck.LaunchError, match=r"clusters need compute capability 9\.0"):
        threads().geometry("sm_80", ck.config(4, 32, cluster=2))
    own = threads({"explicitcluster": (), "reqnctapercluster": (2, 1, 1)})
    assert own.geometry("sm_90", ck.cover(700)) == emulator.Geometry(
        (4, 1, 1), (256, 1, 1), 0, (2, 1, 1), has_cluster=True
    )
    assert threads({"reqnctapercluster": (1,)}).geometry("sm_90", ck.config(3, 32)).has_cluster
    assert not threads().geometry("sm_90", ck.config(3, 32)).has_cluster


def test_a_tile_kernel_s_grid_counts_tiles() -> None:
    geometry = tiles().geometry("sm_90", ck.config((3, 2)))
    assert (geometry.grid, geometry.block) == ((3, 2, 1), (0, 0, 0))
    assert tiles().geometry("sm_90", Cover((100,), None, (16,))).grid == (7, 1, 1)
    with pytest.raises(ck.LaunchError, match=r"f: grid\.y is 70000, over the limit 65535"):
        tiles().geometry("sm_90", ck.config((1, 70_000)))
    assert tiles().memory == "its memory"


def test_parameters_of_a_tile_kernel_lie_at_multiples_of_their_sizes() -> None:
    kernel = tiles()
    kernel.sizes = (1, 8, 2, 4, 16)
    assert kernel.layout.pack(b"a", b"b" * 8, b"c" * 2, b"d" * 4, b"e" * 16) == (
        b"a" + bytes(7) + b"b" * 8 + b"cc" + bytes(2) + b"dddd" + b"e" * 16
    )


def test_a_tile_kernel_s_launch_is_that_of_its_stream() -> None:
    stream = emulator.stream(step_budget=70, block_order=5, output=str)
    kernel = tiles()
    made: Any = kernel.launch(stream, kernel.geometry("sm_90", ck.config((3, 2))), b"bytes")
    assert made.program is kernel.loaded
    assert made.function.name == "k"
    assert (made.grid, made.parameters, made.output) == ((3, 2, 1), b"bytes", str)
    assert (made.step_budget, made.block_order, made.title) == (70, 5, "f")
    assert made.placed == kernel.placed


def test_pointers_of_a_kernel_are_named() -> None:
    variables = [SimpleNamespace(name=f"p{number}", size=8, align=8) for number in range(8)]
    kernel = threads()
    kernel.loaded.program.functions["k"].parameters = variables  # type: ignore[misc]
    tensor = BoundParameter("t", "tensor", "tensor", F4, count=1, layout=TensorLayout())
    kernel.parameters = (
        POINTER._replace(const=True), COUNT, POINTER._replace(name="y"), tensor,
        BoundParameter("v", "float4", "vector", const=True), BoundParameter("s", "struct", "struct", const=True),
    )  # fmt: skip
    assert kernel.pointers == {"p0": "x", "p2": "", "p3": "", "p4": "", "p5": "", "p7": ""}
    assert kernel.compiled_sizes == (8,) * 8
    assert kernel.layout.size == 64
