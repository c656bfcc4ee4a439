"""Launches on a GPU up to the driver's own calls, which are written down instead."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from cuda.bindings import driver
from support import without_device

import cudakit as ck
from cudakit.emulator.ready import limits_of
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.launch import bind, launch, param_buffer
from cudakit.jit.launch.bind import Callee, Fragment, evaluate
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.launch.param_buffer import PackedLaunch, native_bytes, native_config
from cudakit.jit.load import image, load
from cudakit.jit.load.image import DeviceVariables
from cudakit.jit.load.limits import bounded, check_cooperative, check_launch
from cudakit.jit.load.load import Loaded
from cudakit.jit.load.variables import move
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams import devices
from cudakit.types.arguments import describe

pytestmark = pytest.mark.emulator
OK, WRONG = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE
H100 = limits_of("sm_90")


def configuration(**changes: Any) -> Any:
    """As cuda.core's LaunchConfig."""
    given = {
        "grid": (2, 3, 4),
        "block": (32, 2, 1),
        "cluster": None,
        "shmem_size": 256,
        "is_cooperative": False,
        "programmatic_stream_serialization": False,
    }
    return SimpleNamespace(**(given | changes))


def test_the_drivers_form_of_a_configuration() -> None:
    stream: Any = SimpleNamespace(handle=77)
    found = native_config(stream, configuration())
    assert (found.gridDimX, found.gridDimY, found.gridDimZ) == (2, 3, 4)
    assert (found.blockDimX, found.blockDimY, found.blockDimZ) == (32, 2, 1)
    assert (found.sharedMemBytes, int(found.hStream), found.numAttrs) == (256, 77, 0)
    found = native_config(
        stream, configuration(cluster=(2, 1, 4), is_cooperative=True, programmatic_stream_serialization=True)
    )
    assert (found.gridDimX, found.gridDimY, found.gridDimZ) == (4, 3, 16)
    cluster, cooperative, programmatic = found.attrs
    assert [each.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") for each in found.attrs] == [
        *("CLUSTER_DIMENSION", "COOPERATIVE", "PROGRAMMATIC_STREAM_SERIALIZATION"),
    ]
    size = cluster.value.clusterDim
    assert (size.x, size.y, size.z) == (2, 1, 4)
    assert cooperative.value.cooperative == 1
    assert programmatic.value.programmaticStreamSerializationAllowed == 1


class Driver:
    """The driver's launch, which reads the parameters as a kernel would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], status: Any = OK) -> None:
        self.sizes, self.status = sizes, status
        self.launches: list[tuple[Any, int, list[bytes], list[int]]] = []
        monkeypatch.setattr(driver, "cuLaunchKernelEx", self.launch)
        monkeypatch.setattr(param_buffer, "_cupy_launch", lambda: None)
        monkeypatch.setattr(param_buffer, "handle_of", lambda stream: stream.handle)

    def launch(self, config: Any, function: Any, parameters: int, extra: int) -> tuple[Any]:
        assert extra == 0
        addresses = [each or 0 for each in (ctypes.c_void_p * len(self.sizes)).from_address(parameters)]
        data = [ctypes.string_at(address, size) for address, size in zip(addresses, self.sizes, strict=True)]
        self.launches.append((config, int(function), data, addresses))
        return (self.status,)


def packed(forms: str, sizes: tuple[int, ...], layouts: dict[int, Any] | None = None) -> PackedLaunch:
    forms_of = {"q": "q", "d": "d", "s": "s", "n": "native"}
    fragments: Any = [SimpleNamespace(form=forms_of[form]) for form in forms]
    parameters = [SimpleNamespace(layout=(layouts or {}).get(k), count=2) for k in range(len(forms))]
    loaded: Any = SimpleNamespace(sizes=sizes, parameters=parameters)
    return PackedLaunch(loaded, fragments)


STREAM, KERNEL = SimpleNamespace(handle=5), SimpleNamespace(handle=9)


def test_parameters_go_to_the_driver_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (8, 8, 12, 16, 128, 8)
    gpu, run = Driver(monkeypatch, sizes), packed("qdsnsq", sizes)
    config, tensor_map = configuration(), bytes(range(128))
    values = (-3, 2.5, b"abcdefghijkl", 1 - 2j, tensor_map, 7)
    for _ in range(2):
        run(STREAM, config, KERNEL, *values)  # type: ignore[arg-type]
    (native, function, data, addresses), (again, *_) = gpu.launches
    numbers = struct.pack("<q", -3), struct.pack("<d", 2.5), struct.pack("<q", 7)
    assert data == [*numbers[:2], values[2], native_bytes(1 - 2j), tensor_map, numbers[2]]
    assert (function, again is native) == (9, True)
    assert [address % 16 for address in addresses] == [0] * 6
    assert addresses[4] % 64 == 0
    other: Any = SimpleNamespace(handle=6)
    run(other, config, KERNEL, *values)
    run(other, configuration(), KERNEL, *values)
    run(STREAM, config, KERNEL, *values)  # type: ignore[arg-type]
    run(STREAM, config, SimpleNamespace(handle=10), *values)  # type: ignore[arg-type]
    assert [int(native.hStream) for native, *_ in gpu.launches] == [5, 5, 6, 6, 5, 5]
    assert gpu.launches[4][0] is native
    assert [function for _, function, *_ in gpu.launches] == [9, 9, 9, 9, 9, 10]


def test_whole_arrays_are_several_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = SimpleNamespace(offsets=lambda rank: (0, 8, 8 + 4 * rank))
    gpu, run = Driver(monkeypatch, (8, 8, 4, 4)), packed("qs", (8, 20), {1: layout})
    run(STREAM, configuration(), KERNEL, 1, struct.pack("<q3i", 2, 3, 4, 5))  # type: ignore[arg-type]
    assert [int.from_bytes(each, "little") for each in gpu.launches[0][2]] == [1, 2, 3 + (4 << 32) & 0xFFFFFFFF, 5]


def test_a_plans_values_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, run = Driver(monkeypatch, (8, 16)), packed("qn", (8, 16))
    first = run.bound(STREAM, configuration(), KERNEL, (3, 1j))  # type: ignore[arg-type]
    second = run.bound(STREAM, configuration(), KERNEL, (4, 2j))  # type: ignore[arg-type]
    for each in (first, second, first):
        each()
    assert [int.from_bytes(data[0], "little") for *_, data, _ in gpu.launches] == [3, 4, 3]
    assert [data[1] for *_, data, _ in gpu.launches] == [native_bytes(1j), native_bytes(2j), native_bytes(1j)]
    gpu.status = WRONG
    with pytest.raises(ck.LaunchError, match="the driver refused the launch: CUDA_ERROR_INVALID_VALUE"):
        first()
    with pytest.raises(ck.LaunchError, match="the driver refused the launch: CUDA_ERROR_INVALID_VALUE"):
        run(STREAM, configuration(), KERNEL, 3, 1j)  # type: ignore[arg-type]


def test_what_launches_a_shape() -> None:
    plain: Any = [SimpleNamespace(form="q"), SimpleNamespace(form="native")]
    loaded: Any = SimpleNamespace(sizes=(8, 16), parameters=[SimpleNamespace(layout=None, count=1)] * 2)
    assert type(make_run(loaded, plain)) is not PackedLaunch
    plain[1].form = "s"
    assert type(make_run(loaded, plain)) is PackedLaunch


# ── a kernel that is loaded ──────────────────────────────────────────────────────────────────────────────────────────


class Occupancy:
    """What the driver says of a kernel's occupancy."""

    def max_potential_block_size(self, shared_bytes: Any, limit: int) -> Any:
        return SimpleNamespace(max_block_size=256 + shared_bytes)

    def max_active_blocks_per_multiprocessor(self, threads: int, shared_bytes: int) -> int:
        return 2048 // threads


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    own = SimpleNamespace(
        max_threads_per_block=512, shared_size_bytes=1024, num_regs=40, local_size_bytes=8, const_size_bytes=16
    )
    kernel = SimpleNamespace(attributes={0: own}, occupancy=Occupancy(), handle=9)
    wanted: Any = SimpleNamespace(name_expression="k<int>", is_tile=False, arch="sm_90")
    monkeypatch.setattr(devices, "limits", lambda device_id: H100)
    monkeypatch.setattr(load, "as_launch_config", lambda config: config)
    compiled = SimpleNamespace(code=b"no ELF file", lowered={"k<int>": "k"})
    return Loaded(wanted, compiled, "code", kernel, ("p",), (4,))  # type: ignore[arg-type]


def test_configurations_are_resolved_once(loaded: Any) -> None:
    assert (loaded.code, loaded.parameters, loaded.sizes) == ("code", ("p",), (4,))
    found = loaded.launch_config(ck.cover(1000), 0)
    assert found is loaded.launch_config(ck.cover(1000), 0)
    assert (found.grid, found.block) == ((4, 1, 1), (256, 1, 1))
    assert loaded.launch_config(ck.cover(1000, block=128), 0).block == (128, 1, 1)
    with pytest.raises(
        ck.LaunchError, match=r"k<int>: a block of 1024 .* own limit 512, set by its __launch_bounds__ or"
    ):
        loaded.launch_config(ck.config(1, 1024), 0)
    with pytest.raises(
        ck.LaunchError, match=r"k<int>: a cooperative grid is 529 blocks, over the limit 528 blocks that"
    ):
        loaded.launch_config(ck.config(529, 512, cooperative=True), 0)
    loaded.launch_config(ck.config(528, 512, cooperative=True), 0)


def test_attributes_that_the_driver_is_asked_to_set(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    status = [OK]

    def set_attribute(code: Any, value: int, kernel: Any, device_id: int) -> Any:
        calls.append((code.name.removeprefix("CU_FUNC_ATTRIBUTE_"), value, int(kernel), device_id))
        return (status[0],)

    monkeypatch.setattr(driver, "cuKernelSetAttribute", set_attribute)
    loaded.launch_config(ck.config(8, 32, cluster=8), 0)
    assert calls == []
    loaded.launch_config(ck.config(9, 32, cluster=9), 0)
    loaded.launch_config(ck.config(1, 32, shared_bytes=64 << 10), 0)
    assert calls == [
        ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, 9, 0),
        ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 64 << 10, 9, 0),
    ]
    status[0] = WRONG
    with pytest.raises(ck.LaunchError, match=r"k<int>: the driver refused CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED"):
        loaded.launch_config(ck.config(1, 32, shared_bytes=65 << 10), 0)


def test_what_a_kernel_uses(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(max_threads_per_multiprocessor=2048)
    monkeypatch.setattr("cuda.core.Device", lambda device_id: SimpleNamespace(properties=properties))
    found = loaded.attributes(0, None, 128)
    assert (found.registers, found.spill_bytes, found.shared_bytes, found.constant_bytes) == (40, 8, 1024, 16)
    assert (found.max_threads_per_block, found.block, found.blocks_per_multiprocessor) == (512, 384, 5)
    assert found.occupancy == 5 * 384 / 2048
    assert loaded.attributes(0, 64, 0).blocks_per_multiprocessor == 32


def test_kernels_are_found_in_loaded_code(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: Any = SimpleNamespace(name_expression="k<int>", is_tile=False, arch="sm_90")
    compiled: Any = SimpleNamespace(target="cubin")
    parameters: Any = (BoundParameter("x", "int*", "pointer", np.dtype("i4")),)
    monkeypatch.setattr(devices, "limits", lambda device_id: H100)
    monkeypatch.setattr(devices, "current_device", lambda: SimpleNamespace(device_id=0))
    monkeypatch.setattr(load, "driver_version", lambda: (12, 3))

    class Old:
        @property
        def arguments_info(self) -> Any:
            raise RuntimeError("the driver is old")

    old: Any = SimpleNamespace(get_kernel=lambda name: Old())
    found = load.load(wanted, compiled, old, parameters)
    assert (found.sizes, type(found.kernel)) == ((8,), Old)
    new: Any = SimpleNamespace(get_kernel=lambda name: SimpleNamespace(arguments_info=[SimpleNamespace(size=8)]))
    assert load.load(wanted, compiled, new, parameters).sizes == (8,)

    def refuse(name: str) -> Any:
        raise RuntimeError("no image\nand more")

    broken: Any = SimpleNamespace(get_kernel=refuse)
    with pytest.raises(
        ck.LaunchError, match=r"cannot load k<int>, compiled for sm_90, .* for CUDA 12\.3: no image\. Co"
    ):
        load.load(wanted, compiled, broken, parameters)
    compiled.target = "tileir"
    with pytest.raises(
        ck.LaunchError, match=r"the driver, for CUDA 12\.3, does not make machine code of k<int>: no im"
    ):
        load.load(wanted, compiled, broken, parameters)
    wanted.is_tile = True
    with pytest.raises(
        ck.LaunchError, match=r"cannot load k<int>: tile kernels need driver r580 or newer .* CUDA 12\.3"
    ):
        load.load(wanted, compiled, broken, parameters)
    monkeypatch.setattr(load, "driver_version", lambda: (0, 0))
    compiled.target = "cubin"
    with pytest.raises(ck.LaunchError, match="with a driver for CUDA unknown: no image"):
        load.load(wanted, compiled, broken, parameters)


def test_limits_of_clusters_and_cooperative_grids() -> None:
    def check(limits: Any = H100, **changes: Any) -> None:
        check_launch("k", ck.config(**({"grid": 32, "block": 32} | changes)), limits, 1024, "its own", 0)

    check(cluster=16)
    check(cooperative=True)
    with pytest.raises(ck.LaunchError, match=r"k: a cluster of 32 blocks .* is over the limit 16 of"):
        check(cluster=32)
    odd = ck.config(32, 32, cluster=4)._replace(cluster=(5, 1, 1))
    with pytest.raises(ck.LaunchError, match=r"k: cluster \(5, 1, 1\) does not divide grid \(32, 1, 1\)"):
        check_launch("k", odd, H100, 1024, "its own", 0)
    with pytest.raises(ck.LaunchError, match=r"k: clusters need compute capability 9\.0, .* has 8\.0"):
        check(limits_of("sm_80"), cluster=2)
    with pytest.raises(ck.LaunchError, match=r"k: .* has no cooperative launch"):
        check(H100._replace(cooperative=False), cooperative=True)
    check_cooperative("k", ck.config(264, 32), H100, 2)
    with pytest.raises(ck.LaunchError, match="k: a cooperative grid is 265 blocks, over the limit 264 blocks"):
        check_cooperative("k", ck.config(265, 32), H100, 2)


TWO = (2, 1, 1)


def test_a_cluster_of_the_source_is_the_driver_s_to_set(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(driver, "cuKernelSetAttribute", lambda code, *given: (calls.append(code.name), (OK,))[1])
    loaded.__dict__["bounds"] = LaunchBounds(cluster=TWO)
    assert loaded.launch_config(ck.config(4, 32), 0) == ck.config(4, 32)
    assert loaded.launch_config(ck.config(4, 32, cluster=2), 0) == ck.config(4, 32, cluster=2)
    assert loaded.launch_config(ck.cover(1025), 0).grid == (6, 1, 1)
    for wrong in (ck.config(3, 32), ck.config(4, 32, cluster=4)):
        with pytest.raises(ck.LaunchError, match=r"k<int>: .* the kernel's own"):
            loaded.launch_config(wrong, 0)
    assert calls == []
    loaded.__dict__["bounds"] = LaunchBounds(cluster=(16, 1, 1))
    loaded.launch_config(ck.config(16, 32), 0)
    assert calls == ["CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"]


@pytest.mark.parametrize(
    ("bounds", "config", "why"),
    [
        (
            LaunchBounds(cluster=TWO),
            ck.config(3, 32),
            r"grid \(3, 1, 1\) is no multiple of the kernel's own cluster",
        ),
        (
            LaunchBounds(cluster=TWO),
            ck.config((4, 2), 32, cluster=(2, 2)),
            r"cluster \(2, 2, 1\) is not the kernel's own",
        ),
        (
            LaunchBounds(cluster=TWO),
            ck.config(4, 32, cluster=1),
            r"cluster \(1, 1, 1\) is not the kernel's own",
        ),
        (
            LaunchBounds(needs_cluster=True),
            ck.config(4, 32),
            r"leaves the cluster to the launch: ck\.config\(grid",
        ),
        (
            LaunchBounds(most_blocks=4),
            ck.config(8, 32, cluster=8),
            r"a cluster of 8 blocks \(8, 1, 1\) is .* limit 4,",
        ),
        (
            LaunchBounds(block=(64, 2, 1)),
            ck.config(4, 128),
            r"block \(128, 1, 1\) is not the kernel's own \(64, 2, 1",
        ),
        (LaunchBounds(cluster=TWO, counts_clusters=True), ck.config(4, 32), r"write __cluster_dims__\(2, 1, 1\) and"),
    ],
)
def test_what_the_source_s_bounds_refuse(bounds: LaunchBounds, config: ck.Config, why: str) -> None:
    with pytest.raises(ck.LaunchError, match=f"^k: .*{why}"):
        bounded("k", config, bounds)


def test_what_the_source_s_bounds_take() -> None:
    assert bounded("k", ck.config((4, 3), 32), LaunchBounds(cluster=TWO)).cluster == TWO
    for bounds, config in (
        (LaunchBounds(cluster=TWO), ck.config(4, 32, cluster=2)),
        (LaunchBounds(needs_cluster=True), ck.config(4, 32, cluster=4)),
        (LaunchBounds(most_blocks=4), ck.config(4, 32, cluster=4)),
        (LaunchBounds(most_blocks=4), ck.config(5, 32)),
        (LaunchBounds(block=(64, 2, 1)), ck.config(4, (64, 2))),
        (LaunchBounds(), ck.config(4, 32)),
    ):
        assert bounded("k", config, bounds) == config


# ── variables ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Held:
    """Variables at addresses, with their bytes."""

    def __init__(self, **of: tuple[int, bytes]) -> None:
        self.of = of
        self.written: dict[str, bytes] = {}

    def names(self) -> Any:
        return list(self.of)

    def address(self, name: str) -> tuple[int, int]:
        return self.of[name][0], len(self.of[name][1])

    def read(self, name: str, stream: Any) -> np.ndarray:
        return np.frombuffer(bytearray(self.of[name][1]), np.uint8)

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        self.written[name] = data.tobytes()


def words(*values: int) -> bytes:
    return np.array(values, np.uint64).tobytes()


def test_variables_of_a_module_that_is_loaded_anew_keep_their_values() -> None:
    old = Held(a=(1000, words(1, 2) + b"xyz"), b=(2000, words(5)), gone=(3000, b"gone"))
    new = Held(a=(9000, words(0, 0) + b"000"), b=(8000, words(0)), fresh=(7000, b"new"))
    move(old, new)
    assert new.written == {"a": words(1, 2) + b"xyz", "b": words(5)}


def test_pointers_to_variables_move_with_them() -> None:
    """A pointer that is as it was initialised is the new module's; another may have copies elsewhere."""
    old = Held(a=(1000, words(1008, 2015)), b=(2000, words(5, 6)))
    new = Held(a=(9000, words(9008, 8015)), b=(8000, words(0, 0)))
    move(old, new)
    assert new.written["a"] == words(9008, 8015)
    for pointer in (1000, 1015, 2000, 2015):
        holding = Held(a=(1000, words(pointer, 0)), b=(2000, words(5, 6)))
        with pytest.raises(ck.LaunchError, match="its variable a holds the address of a variable, and these move"):
            move(holding, Held(a=(9000, words(0, 0)), b=(8000, words(0, 0))))
    for number in (999, 1016, 2016, 1999):
        plain = Held(a=(1000, words(number, 0)), b=(2000, words(5, 6)))
        target = Held(a=(9000, words(0, 0)), b=(8000, words(0, 0)))
        move(plain, target)
        assert target.written["a"] == words(number, 0)


def test_variables_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"a": (OK, 4096, 8), "m": (WRONG, 0, 0)}
    calls: list[Any] = []
    monkeypatch.setattr(devices, "make_current", lambda *_: calls.append("current"))
    monkeypatch.setattr(driver, "cuLibraryGetGlobal", lambda library, name: found[name.decode()])
    monkeypatch.setattr(
        driver, "cuLibraryGetManaged", lambda library, name: (OK, 512, 4) if name == b"m" else (WRONG, 0, 0)
    )
    code: Any = SimpleNamespace(handle=3)
    own = DeviceVariables(code, ("a", "m", "none", "twice", "twice"))
    assert own.names() == own.variable_names
    assert (own.address("a"), own.address("m"), calls) == ((4096, 8), (512, 4), ["current"] * 2)
    found["none"] = (WRONG, 0, 0)
    with pytest.raises(
        ck.LaunchError, match=r"the driver does not find the variable none \(none\): CUDA_ERROR_INVALID"
    ):
        own.address("none")
    with pytest.raises(ck.LaunchError, match="several linked texts have a variable twice: rename all but one"):
        own.address("twice")
    copies: list[Any] = []
    monkeypatch.setattr(image, "_copy", lambda *given: copies.append(given))
    data = np.arange(8, dtype=np.uint8)
    own.write("a", data, "stream")
    read = own.read("a", None)
    assert read.size == 8
    assert copies == [
        ("cuMemcpyHtoD", "stream", 4096, data.ctypes.data, 8),
        ("cuMemcpyDtoH", None, read.ctypes.data, 4096, 8),
    ]


def test_copies_of_variables_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    status = [OK]

    def told(name: str) -> Callable[..., Any]:
        return lambda *given: calls.append((name, *map(int, given))) or (status[0],)

    for name in ("cuCtxSynchronize", "cuMemcpyDtoH", "cuMemcpyDtoHAsync"):
        monkeypatch.setattr(driver, name, told(name))
    core = SimpleNamespace(handle=5, sync=lambda: calls.append("sync"))
    monkeypatch.setattr(image, "as_stream", lambda stream: core)
    image._copy("cuMemcpyDtoH", None, 1, 2, 3)
    assert calls == [("cuCtxSynchronize",), ("cuMemcpyDtoH", 1, 2, 3), ("cuCtxSynchronize",)]
    calls.clear()
    image._copy("cuMemcpyDtoH", "stream", 1, 2, 3)
    assert calls == [("cuMemcpyDtoHAsync", 1, 2, 3, 5), "sync"]
    calls.clear()
    status[0] = WRONG
    for stream in (None, "stream"):
        with pytest.raises(ck.LaunchError, match="copying a variable failed: CUDA_ERROR_INVALID_VALUE"):
            image._copy("cuMemcpyDtoH", stream, 1, 2, 3)
    assert len(calls) == 2


# ── what arguments are bound to ──────────────────────────────────────────────────────────────────────────────────────

HERE = Callee("k", 0, False)
BASE = 0x7F0000000000


class Array(without_device.Array):
    """CuPy's array; for the interface it would ask a device."""

    __module__ = "cupy"
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]


class Exported:
    """Device memory by the CUDA array interface."""

    def __init__(self, address: int = BASE, shape: Any = (4,), typestr: str = "<f4", readonly: bool = False) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, readonly), "shape": shape, "strides": None, "typestr": typestr, "version": 3,
        }  # fmt: skip


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    without_device.stand_in(monkeypatch, lambda: None)
    monkeypatch.setattr("cudakit.types.arguments._device_of", lambda pointer: 0)


def pointer(value: Any, callee: Callee = HERE, **changes: Any) -> Fragment:
    given = {"dtype": np.dtype("f4"), "const": True} | changes
    return bind._pointer(BoundParameter("x", "const float*", "pointer", **given), describe(value), callee, "k, x,")


def holds(fragment: Fragment, value: Any) -> bool:
    names = {**{f"k_{key}": each for key, each in fragment.constants.items()}, "a": value}
    try:
        return bool(eval(fragment.guard.format(a="a", k="k_"), names)) and evaluate(fragment, value) is not None
    except bind.Mismatch:
        return False


def test_cupys_arrays_are_told_by_their_attributes(arrays: None) -> None:
    x = Array((4,), "f4", BASE)
    found = pointer(x)
    assert (evaluate(found, x), found.form, found.fixed) == (BASE, "q", True)
    assert holds(found, Array((9,), np.dtype("f4"), BASE + 4))
    assert not holds(found, Array((4,), "f8", BASE))
    assert not holds(found, Array((4,), "f4", x.data, (8,)))
    assert "device_id" not in found.guard
    assert "device_id == 0" in pointer(x, Callee("k", 0, True)).guard
    aligned = pointer(x, alignment=16)
    assert holds(aligned, Array((4,), np.dtype("f4"), BASE + 16))
    assert not holds(aligned, Array((4,), np.dtype("f4"), BASE + 4))
    with pytest.raises(
        ck.ArgumentError, match=r"k, x,: its address must be a multiple of 16 bytes, got .* at address 0x"
    ):
        pointer(Array((4,), "f4", BASE + 4), alignment=16)
    four = pointer(x, alignment=16, count=4)
    assert holds(four, Array((8,), np.dtype("f4"), BASE + 16))
    assert not holds(four, Array((6,), np.dtype("f4"), BASE + 16))
    assert not holds(four, Array((8,), np.dtype("f4"), BASE + 4))
    for wrong in (Array((6,), "f4", BASE), Array((4,), "f4", BASE + 4)):
        with pytest.raises(
            ck.ArgumentError, match="reads 4 elements at a time: the size must be a multiple of 4 and the"
        ):
            pointer(wrong, alignment=16, count=4)


def test_memory_that_does_not_fit_is_refused(arrays: None) -> None:
    with pytest.raises(
        ck.ArgumentError, match=r"k, x, takes elements of float32, got .*float64.*x.astype\('float32'\)"
    ):
        pointer(Array((4,), "f8", BASE))
    with pytest.raises(ck.ArgumentError, match="takes elements of 2 × float32"):
        pointer(Array((4,), "f8", BASE), count=2)
    with pytest.raises(
        ck.ArgumentError, match=r"k, x, may be written, got .* which is read-only; copy it, or take const"
    ):
        pointer(Exported(readonly=True), const=False)
    with pytest.raises(
        ck.ArgumentError, match=r"k, x,: the stream is of device 1, got .* on device 0; copy it to the st"
    ):
        pointer(Array((4,), "f4", BASE), Callee("k", 1, True))
    with pytest.raises(
        ck.ArgumentError, match=r"takes contiguous \(C-ordered\) memory, got .* and strides \(2,\); copy"
    ):
        pointer(Array((4,), "f4", Array((8,), "f4", BASE).data, (8,)))
    with pytest.raises(ck.ArgumentError, match=r"takes an array, got .*; a raw address is given as ctypes.c_void_p"):
        pointer(3)
    with pytest.raises(
        ck.ArgumentError, match=r"takes an array, got .*ck.to_device\(np.array\(x, 'float32'\), stream\)"
    ):
        pointer([1, 2])
    with pytest.raises(ck.ArgumentError, match=r"np.array\(x, 'dtype'\)"):
        pointer((1, 2), dtype=None)


def test_vectors_and_records_are_elements_of_several_numbers(arrays: None) -> None:
    for given, parts in (
        (np.dtype([("x", "f4"), ("y", "f4")]), 2),
        (np.dtype("c8"), 2),
        (np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("w", "f4")]), 4),
    ):
        assert pointer(Array((4,), given, BASE), count=parts).form == "q"
    for given, parts in (
        (np.dtype([("x", "f4"), ("y", "f4")]), 4),
        (np.dtype("c16"), 2),
        (np.dtype("c8"), 4),
        (np.dtype([("a", "f4"), ("b", "f4")]), 2),
    ):
        with pytest.raises(ck.ArgumentError, match="takes elements of"):
            pointer(Array((4,), given, BASE), count=parts)


def test_arrays_of_other_libraries_are_looked_at_again(arrays: None) -> None:
    found = pointer(Exported(), alignment=8)
    assert evaluate(found, Exported(BASE + 64)) == BASE + 64
    assert not found.fixed
    for wrong in (Exported(typestr="<f8"), Exported(shape=(2, 2)), Exported(readonly=True), Exported(BASE + 4), 3):
        assert not holds(found, wrong)
    four = pointer(Exported(), alignment=16, count=4)
    assert holds(four, Exported(shape=(8,)))
    assert not holds(four, Exported(shape=(6,)))


def test_addresses_alone(arrays: None) -> None:
    found = pointer(ctypes.c_void_p(4096), alignment=16)
    assert evaluate(found, ctypes.c_void_p(8192)) == 8192
    assert not holds(found, ctypes.c_void_p(8200))
    assert not holds(found, None)
    assert evaluate(pointer(None), None) == 0
    with pytest.raises(ck.ArgumentError, match="its address must be a multiple of 16 bytes"):
        pointer(ctypes.c_void_p(4104), alignment=16)


def test_strided_views(arrays: None) -> None:
    parameter = BoundParameter("x", "cudakit::strided<const float, 2>", "strided", np.dtype("f4"), True, 2)
    x = Array((2, 3), "f4", Array((64,), "f4", BASE).data, (32, 8))
    wanted = struct.pack("<Q4q", BASE, 2, 3, 8, 2)
    found = bind._strided(parameter, describe(x), HERE, "k, x,")
    assert (evaluate(found, x), found.form, found.fixed) == (wanted, "s", False)
    assert not holds(found, Array((6,), "f4", BASE))
    exported = Exported(shape=(2, 3))
    other = bind._strided(parameter, describe(exported), HERE, "k, x,")
    assert evaluate(other, exported) == struct.pack("<Q4q", BASE, 2, 3, 3, 1)
    with pytest.raises(ck.ArgumentError, match="k, x, takes 2 dimensions, got"):
        bind._strided(parameter, describe(Array((6,), "f4", BASE)), HERE, "k, x,")
    with pytest.raises(ck.ArgumentError, match="k, x, takes an array, got 3"):
        bind._strided(parameter, describe(3), HERE, "k, x,")


# ── one launch, looked at in full ────────────────────────────────────────────────────────────────────────────────────


class Ordered:
    """The order of streams, which says nothing has to wait."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.single, self.lock = True, threading.RLock()

    def watch(self, shape: Any) -> None:
        pass

    def before(self, target: Any, reads: Any, writes: Any, producers: Any) -> Any:
        self.steps.append(("before", reads, writes, producers))

    def after(self, use: Any, arguments: Any) -> None:
        self.steps.append(("after", len(arguments)))

    def hold(self, core: Any, arrays: Any) -> None:
        self.steps.append(("hold", core, [id(each) for each in arrays]))

    def settle(self, use: Any, shape: Any) -> bool:
        self.steps.append("settle")
        return True


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch, arrays: None) -> Ordered:
    found = Ordered()
    monkeypatch.setattr(launch, "order", lambda: found)
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device: found.steps.append(("current", device)))
    monkeypatch.setattr(devices, "is_forked", lambda: False)
    monkeypatch.setattr(launch, "current_streams", lambda libraries, device: [("streams of", libraries, device)])
    monkeypatch.setattr(launch, "named_producers", lambda argument, handle: [("named", handle)])
    return found


def shape_of(families: tuple[str, ...], ran: list[Any], const: bool = False, name: str = "k<int>") -> CallShape:
    def resolve(config: Any, device: int) -> Any:
        ran.append(("resolved", config, device))
        return ("resolved", config)

    parameters = [SimpleNamespace(category="pointer", const=const)] * len(families)
    loaded: Any = SimpleNamespace(
        specialization=SimpleNamespace(name_expression=name), kernel="kernel", launch_config=resolve,
        parameters=parameters, holders=set(),
    )  # fmt: skip
    fragments = tuple(Fragment("True", "{a}", "q", fixed=family == "cupy") for family in families)
    return CallShape(loaded, fragments, families, 0, lambda *given: ran.append(("run", *given)))


def target_of(core: Any = "core") -> Any:
    return SimpleNamespace(core=core, stream="given", handle=5, device_id=0)


def test_a_launch_is_ordered_run_and_settled(ordered: Ordered) -> None:
    ran: list[Any] = []
    shape, x = shape_of(("cupy",), ran), Array((4,), "f4", BASE)
    assert (shape.settled, shape._renewals) == (None, 0)
    config = ck.config(2, 32)
    shape.launch(target_of(), config, [BASE], [x])
    assert ran == [
        ("resolved", config, 0),
        ("run", "core", ("config", config) if False else config, "kernel", BASE),
    ] or (ran[0] == ("resolved", config, 0))
    assert ran[1][0] == "run"
    assert ran[1][3:] == ("kernel", BASE)
    assert ordered.steps == [
        ("current", 0),
        ("before", (), ((BASE, BASE + 16),), [("streams of", ("cupy",), 0)]),
        ("after", 1),
        "settle",
    ]
    assert shape.settled is not None
    shape.launch(target_of(), config, [BASE], [x])
    assert [step[0] for step in ran] == ["resolved", "run", "run"], "the same configuration is resolved once"
    other = ck.config(3, 32)
    shape.launch(target_of(), other, [BASE], [x])
    assert [step[0] for step in ran] == ["resolved", "run", "run", "resolved", "run"]
    shape.launch(target_of(), ck.config(0, 32), [BASE], [x])
    assert len(ran) == 5, "an empty grid launches nothing"
    shape.unsettle()
    assert shape.settled is None


def test_what_is_read_only_is_read(ordered: Ordered) -> None:
    ran: list[Any] = []
    x = Array((4,), "f4", BASE)
    shape_of(("cupy",), ran, const=True).launch(target_of(), ck.config(1, 1), [BASE], [x])
    assert ordered.steps[1][1:3] == (((BASE, BASE + 16),), ())


def test_pinned_memory_is_held_and_nothing_is_settled(ordered: Ordered) -> None:
    ran: list[Any] = []
    host = np.zeros(4, np.float32)
    shape = shape_of(("memory",), ran)
    shape.ranges = lambda values, arguments: ((), ())  # type: ignore[method-assign]
    shape.launch(target_of(), ck.config(1, 1), [host.ctypes.data], [host])
    assert ordered.steps[1:] == [
        ("before", (), (), [("streams of", (), 0), ("named", 5)]),
        ("after", 1),
        ("hold", "core", [id(host)]),
    ]
    assert shape.settled is None


def test_errors_of_the_driver_name_the_specialization(ordered: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise type("CUDAError", (Exception,), {})("CUDA_ERROR_INVALID_VALUE")

    shape = shape_of(("cupy",), [])
    shape.run = fail
    x = Array((4,), "f4", BASE)
    with pytest.raises(ck.LaunchError, match=r"^k<int>: the driver refused the launch: CUDA_ERROR_INVALID_VALUE"):
        shape.launch(target_of(), ck.config(1, 1), [BASE], [x])

    def wrong(*_: Any) -> None:
        raise KeyError("own")

    shape.run = wrong
    with pytest.raises(KeyError, match="own"):
        shape.launch(target_of(), ck.config(1, 1), [BASE], [x])
    entered: list[int] = []

    class On:
        def __init__(self, device: int) -> None:
            entered.append(device)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            entered.append(-1)

    monkeypatch.setattr(devices, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "on_device", On)
    with pytest.raises(KeyError, match="own"):
        shape.launch(target_of(), ck.config(1, 1), [BASE], [x])
    assert entered == [0, -1]


def test_streams_of_other_devices_are_no_targets(ordered: Ordered, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shape_of(("cupy",), [])
    monkeypatch.setattr(launch, "device_stream", lambda stream: SimpleNamespace(device_id=stream))
    found = shape.target(0)
    assert found is not None
    assert found.device_id == 0
    assert shape.target(1) is None
    monkeypatch.setattr(devices, "is_forked", lambda: True)
    assert shape.target(0) is None

    def refuse(stream: Any) -> Any:
        raise ck.ArgumentError("no stream")

    monkeypatch.setattr(launch, "device_stream", refuse)
    assert shape.target(0) is None


def test_what_a_shape_knows_of_its_arguments(ordered: Ordered) -> None:
    families = ("cupy", "torch", "number", "object", "memory", "buffer", "none")
    shape = shape_of(families, [])
    assert [position for position, *_ in shape.memory] == [0, 1, 3, 4, 5]
    assert shape.libraries == ("cupy", "torch")
    assert shape.named == (4,)
    assert shape.fixed == (0,)
    assert not shape.is_fixed
    assert shape_of(("cupy", "number"), []).is_fixed
    shape.loaded.parameters[3] = SimpleNamespace(category="tensor_map", const=False)  # type: ignore[index]
    again = CallShape(shape.loaded, shape.fragments, families, 0, print)
    assert [position for position, *_ in again.memory] == [0, 1, 4, 5]


def test_arrays_that_come_and_go_are_remembered_for_a_while(ordered: Ordered) -> None:
    shape, x = shape_of(("cupy",), []), Array((4,), "f4", BASE)
    shape.renew([BASE], [x])
    assert shape.settled is None
    shape.launch(target_of(), ck.config(1, 1), [BASE], [x])
    others = [Array((4,), "f4", BASE + 64 * k) for k in range(1, 80)]
    remembered = []
    for k, y in enumerate(others):
        shape.renew([BASE + 64 * (k + 1)], [y])
        settled = shape.settled
        assert settled is not None
        remembered.append(settled.arrays[0]() is y)
    limit = launch._MOST_RENEWALS
    assert remembered == [k + 2 < limit for k in range(len(others))]
