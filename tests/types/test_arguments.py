"""What a Python object is as an argument: dtype, shape, strides and address as its own library tells them."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from support.without_device import Array

from cudakit.errors import ArgumentError
from cudakit.types import arguments
from cudakit.types.arguments import components, describe, passable, texture_handle, torch_dtype

pytestmark = pytest.mark.emulator

BASE = 0x7F1234000000


class CuPyArray(Array):
    """CuPy's array; for the interface it would ask a device."""

    __module__ = "cupy"
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]


class Tensor:
    """A tensor as torch has it."""

    __module__ = "torch"

    def __init__(self, like: np.ndarray, dtype: str = "torch.float32", device: int | None = 2) -> None:
        self.like, self.dtype, self.shape, self.device = like, dtype, like.shape, "cpu" if device is None else "cuda"
        self.is_cuda, self.number = device is not None, device

    def dim(self) -> int:
        return self.like.ndim

    def get_device(self) -> int | None:
        return self.number

    def data_ptr(self) -> int:
        return BASE + 8

    def is_contiguous(self) -> bool:
        return bool(self.like.flags.c_contiguous)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.like.itemsize for step in self.like.strides)

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=lambda: BASE)


class Exported:
    """An array that has the CUDA array interface alone."""

    def __init__(self, **changes: Any) -> None:
        given = {"data": (BASE, False), "shape": (2, 3), "strides": None, "typestr": "<f4", "version": 3}
        self.__cuda_array_interface__ = {**given, **changes}


@pytest.fixture(autouse=True)
def third_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each address that is asked for at the driver."""
    monkeypatch.setattr(arguments, "_device_of", lambda pointer: 3)


def host() -> np.ndarray:
    return np.zeros((4, 6), np.float32)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:, ::2], lambda x: x.T, lambda x: x[::-1]])
def test_arrays_are_as_their_libraries_have_them(view: Any) -> None:
    x = view(host())
    strides = tuple(step // 4 for step in x.strides)
    contiguous = bool(x.flags.c_contiguous)
    cupy = describe(CuPyArray(x.shape, x.dtype, BASE, x.strides))
    assert (cupy.family, cupy.device_id, cupy.pointer, cupy.base) == ("cupy", 0, BASE, BASE)
    torch = describe(Tensor(x))
    assert (torch.family, torch.device_id, torch.pointer, torch.base) == ("torch", 2, BASE + 8, BASE)
    exported = describe(Exported(shape=x.shape, strides=x.strides))
    assert (exported.family, exported.device_id, exported.pointer, exported.base) == ("memory", 3, BASE, BASE)
    for found in (cupy, torch, exported):
        assert (found.shape, found.strides, found.contiguous) == (x.shape, strides, contiguous)
        assert (found.evidence.category, found.evidence.dtype, found.evidence.rank) == ("array", np.float32, 2)
        assert not found.evidence.readonly
        assert f"array of float32 with shape {x.shape}" in found.evidence.shown


def test_a_view_s_address_is_its_own_and_its_allocation_the_whole_s() -> None:
    whole = Array((4, 6), np.float32, BASE)
    part = CuPyArray((2,), np.float32, whole.data + 40)
    found = describe(part)
    assert (found.pointer, found.base) == (BASE + 40, BASE)


def test_an_interface_without_strides_is_row_major() -> None:
    found = describe(Exported(shape=(2, 3, 5)))
    assert found.strides == (15, 5, 1)
    assert found.contiguous
    assert describe(Exported(shape=(1, 3), strides=(999, 4))).contiguous, "a single row's stride means nothing"
    assert describe(Exported(shape=(0, 3), strides=(999, 8))).contiguous
    assert not describe(Exported(shape=(2, 3), strides=(16, 4))).contiguous
    with pytest.raises(ArgumentError, match=r"Exported array has strides \(14, 4\) in bytes, not whole elements"):
        describe(Exported(shape=(2, 3), strides=(14, 4)))
    assert describe(Exported(data=(BASE, True))).evidence.readonly
    record = [("x", "<f4"), ("n", "<i4")]
    assert describe(Exported(typestr="|V8", descr=record)).evidence.dtype == np.dtype(record)
    with pytest.raises(ArgumentError, match="Exported is masked; fill it first"):
        describe(Exported(mask=Exported()))


def test_pinned_memory_is_taken_and_other_host_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = host()[1:, ::2]
    with pytest.raises(ArgumentError, match=r"numpy array of float32 with shape \(3, 3\) is in host memory"):
        describe(x)
    monkeypatch.setattr(arguments, "is_page_locked", lambda array: True)
    found = describe(x)
    assert (found.family, found.device_id, found.pointer) == ("memory", None, x.ctypes.data)
    assert (found.evidence.category, found.evidence.dtype, found.evidence.rank) == ("array", np.float32, 2)
    assert found.evidence.shown == "pinned numpy array of float32 with shape (3, 3)"
    assert (found.shape, found.strides, found.contiguous) == ((3, 3), (6, 2), False)
    x.flags.writeable = False
    assert describe(x).evidence.readonly
    with pytest.raises(ArgumentError, match="in host memory"):
        describe(x[:0])
    odd = np.zeros(4, np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [1], "itemsize": 6}))["a"]
    with pytest.raises(ArgumentError, match=r"strides \(6,\) in bytes, not whole elements of int32"):
        describe(odd)


@pytest.mark.parametrize(
    ("value", "kind"), [(True, bool), (3, int), (-(2**31), int), (2**31 - 1, int), (2.5, float), (1j, complex)]
)
def test_a_python_number_is_weak(value: Any, kind: type) -> None:
    found = describe(value)
    assert (found.family, found.evidence.category, found.evidence.python_type) == ("number", "weak", kind)
    assert found.evidence.dtype is None
    assert found.evidence.shown == f"{value!r}, a Python {kind.__name__}"


def test_a_large_int_is_of_the_next_type_that_can_hold_it() -> None:
    """As C++ has it of a literal."""
    for value, code in ((2**31, "i8"), (-(2**31) - 1, "i8"), (2**63 - 1, "i8"), (2**63, "u8")):
        assert describe(value).evidence.dtype == np.dtype(code)

    class Own(int):
        pass

    assert describe(Own(5)).evidence.python_type is int


@pytest.mark.parametrize("value", [np.float32(2), np.int8(-3), np.bool_(True), np.complex64(1j), ml_dtypes.bfloat16(2)])
def test_a_typed_scalar_has_its_dtype(value: Any) -> None:
    found = describe(value)
    assert (found.family, found.evidence.category) == ("number", "scalar")
    assert found.evidence.dtype == np.asarray(value).dtype


def test_numbers_of_ctypes() -> None:
    for kind, code in ((ctypes.c_float, "f4"), (ctypes.c_int16, "i2"), (ctypes.c_bool, "?"), (ctypes.c_uint64, "u8")):
        found = describe(kind(1))
        assert found.evidence.dtype == np.dtype(code)
        assert found.value == 1
    address = describe(ctypes.c_void_p(BASE))
    assert (address.evidence.category, address.pointer, address.base) == ("address", BASE, BASE)
    assert describe(ctypes.c_void_p(None)).pointer == 0
    with pytest.raises(ArgumentError, match="c_char_p cannot be a kernel argument"):
        describe(ctypes.c_char_p(b"x"))


def test_structs_texts_tuples_and_none() -> None:
    @dataclasses.dataclass
    class Point:
        x: np.float32

    dtype = np.dtype([("x", "f4")])
    Point.__annotations__ = {"x": np.float32}
    for value in (np.zeros((), dtype), np.zeros(1, dtype)[0], Point(np.float32(1))):
        found = describe(value)
        assert (found.family, found.evidence.category) == ("struct", "scalar")
        assert found.evidence.dtype is not None
        assert found.evidence.dtype.names == ("x",)
        assert "with fields x" in found.evidence.shown
    assert describe(None).evidence.category == "address"
    for argument in (describe((1, 2)), describe([1.0]), components(np.zeros(3))):
        assert argument.evidence.category == "object"
    text = describe("[](int x) { return x; }")
    assert (text.family, text.evidence.category, text.evidence.text) == ("text", "functor", "[](int x) { return x; }")
    assert [describe(value).family for value in ((1, 2), [1.0])] == ["tuple", "tuple"]
    assert components(np.zeros(3)).family == "tuple"


def test_buffers_without_a_dtype() -> None:
    def arrow(**changes: Any) -> Any:
        given = {"is_cpu": False, "address": BASE, "size": 40, "is_mutable": True}
        return SimpleNamespace(**{**given, "device": SimpleNamespace(device_id=1), **changes})

    found = describe(arrow())
    assert (found.family, found.device_id, found.pointer, found.base) == ("buffer", 1, BASE, BASE)
    assert (found.evidence.category, found.evidence.readonly) == ("address", False)
    assert describe(arrow(is_mutable=False)).evidence.readonly
    with pytest.raises(ArgumentError, match="in host memory has no dtype"):
        describe(arrow(is_cpu=True))


def test_buffers_of_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buffer(SimpleNamespace):
        pass

    core = SimpleNamespace(Buffer=Buffer, TensorMapDescriptor=type("TensorMapDescriptor", (), {}))
    monkeypatch.setitem(sys.modules, "cuda.core", core)

    def made(**changes: Any) -> Any:
        given = {"is_closed": False, "is_device_accessible": True, "is_host_accessible": False, "handle": BASE}
        return Buffer(**{**given, "size": 40, "device_id": 1, **changes})

    found = describe(made())
    assert (found.family, found.device_id, found.pointer, found.base) == ("buffer", 1, BASE, BASE)
    assert describe(made(is_host_accessible=True)).device_id is None, "all devices reach it"
    with pytest.raises(ArgumentError, match="Buffer is closed"):
        describe(made(is_closed=True))
    with pytest.raises(ArgumentError, match="host memory that the device cannot reach"):
        describe(made(is_device_accessible=False))
    tensor_map = describe(core.TensorMapDescriptor()).evidence
    assert (tensor_map.category, tensor_map.shown, tensor_map.text) == ("object", "tensor map", "CUtensorMap")


def test_texture_and_surface_objects() -> None:
    for name in ("TextureObject", "SurfaceObject"):
        for field in ("ptr", "handle"):
            value = type(name, (), {field: 77})()
            assert texture_handle(value) == 77
            assert describe(value).evidence.dtype == np.dtype("u8")
    assert texture_handle(SimpleNamespace(handle=3)) is None
    emulated = type("TextureObject", (), {"handle": 7, "__module__": "cudakit.emulator.resources"})()
    with pytest.raises(ArgumentError, match="is the emulator's and this stream is a GPU's"):
        describe(emulated)


def test_dlpack_s_memory_must_be_a_device_s() -> None:
    value = type("Given", (), {"__dlpack_device__": lambda self: (1, 0)})()
    with pytest.raises(ArgumentError, match=r"Given is not in device memory \(its DLPack device type is 1\)"):
        describe(value)


@pytest.mark.parametrize("kind", [2, 3, 13])
def test_arrays_with_dlpack_are_as_cuda_core_sees_them(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("cuda.core.utils")
    value = type("Given", (), {"__dlpack_device__": lambda self: (kind, 0)})()
    view = SimpleNamespace(dtype="f4", shape=(2, 3), strides=(4, 1), readonly=True, device_id=5, ptr=BASE)
    asked: list[Any] = []

    def from_dlpack(given: Any, stream_ptr: int) -> Any:
        asked.append((given, stream_ptr))
        return view

    monkeypatch.setattr(utils, "StridedMemoryView", SimpleNamespace(from_dlpack=from_dlpack))
    found = describe(value)
    assert asked == [(value, -1)], "nothing is waited for"
    assert (found.family, found.device_id, found.pointer, found.base) == ("memory", 5, BASE, BASE)
    assert (found.shape, found.strides, found.contiguous) == ((2, 3), (4, 1), False)
    evidence = found.evidence
    assert (evidence.category, evidence.dtype, evidence.rank, evidence.readonly) == ("array", np.float32, 2, True)
    view.strides, view.readonly = None, False
    found = describe(value)
    assert (found.strides, found.contiguous, found.evidence.readonly) == ((3, 1), True, False)


def test_the_driver_knows_the_device_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    monkeypatch.undo()
    answer = [driver.CUresult.CUDA_SUCCESS, 4]
    asked: list[Any] = []

    def ask(kind: Any, address: Any) -> tuple[Any, ...]:
        asked.append((kind, int(address)))
        return tuple(answer)

    monkeypatch.setattr(driver, "cuPointerGetAttribute", ask)
    assert describe(Exported()).device_id == 4
    assert asked == [(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, BASE)]
    answer[0] = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert describe(Exported()).device_id is None
    assert describe(Exported(data=(0, False))).device_id is None
    assert len(asked) == 2, "of null nothing is asked"


def test_bytes_have_strides_of_bytes() -> None:
    for array in (CuPyArray((4, 6), np.uint8, BASE, (12, 2)), Exported(shape=(4, 6), typestr="|u1", strides=(12, 2))):
        assert describe(array).strides == (12, 2)


def test_what_no_kernel_reads() -> None:
    with pytest.raises(ArgumentError, match=r"x has dtype object: it holds references"):
        passable(np.dtype(object), "x")
    with pytest.raises(ArgumentError, match=r"x has dtype >f4, .* convert it with x.astype\('float32'\)"):
        passable(np.dtype(">f4"), "x")
    with pytest.raises(ArgumentError, match="not in the device's byte order"):
        passable(np.dtype([("a", ">i4")]), "x")
    assert passable(np.dtype("f4"), "x") == np.dtype("f4")
    with pytest.raises(ArgumentError, match="set cannot be a kernel argument"):
        describe({1})
    with pytest.raises(ArgumentError, match=r"torch tensor of torch.float32 with shape \(4, 6\) is on cpu"):
        describe(Tensor(host(), device=None))
    with pytest.raises(ArgumentError, match=r"torch.qint8, which has no C\+\+ equivalent"):
        describe(Tensor(host(), "torch.qint8"))


def test_dtypes_of_torch() -> None:
    known = {"float32": "f4", "int8": "i1", "bool": "?", "float16": "f2", "complex64": "c8", "uint8": "u1"}
    assert {name: torch_dtype(f"torch.{name}") for name in known} == {n: np.dtype(c) for n, c in known.items()}
    assert torch_dtype("torch.bfloat16") == np.dtype(ml_dtypes.bfloat16)
    assert torch_dtype("torch.float8_e4m3fn") == np.dtype(ml_dtypes.float8_e4m3fn)
    assert torch_dtype("torch.float8_e5m2") == np.dtype(ml_dtypes.float8_e5m2)
    assert torch_dtype("torch.qint8") is None


# ── what the driver has page-locked ──────────────────────────────────────────────────────────────────────────────────


class Lent:
    """Memory that devices reach."""

    is_page_locked = True

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


def test_which_memory_is_page_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    asked: list[int] = []
    kinds = driver.CUmemorytype
    answer: list[Any] = [driver.CUresult.CUDA_SUCCESS, kinds.CU_MEMORYTYPE_HOST]

    def ask(kind: Any, address: int) -> tuple[Any, ...]:
        assert kind == driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        asked.append(address)
        return tuple(answer)

    monkeypatch.setattr(driver, "cuPointerGetAttribute", ask)
    monkeypatch.setattr(arguments, "_registered", [0])
    own = np.zeros(10)
    assert not arguments.is_page_locked(own)
    assert not arguments.is_page_locked(own[2:].reshape(2, 4))
    assert arguments.is_page_locked(own[:0]), "nothing is read"
    lent = np.asarray(Lent(own))
    assert arguments.is_page_locked(lent)
    assert arguments.is_page_locked(lent[3:])
    assert not arguments.is_page_locked(np.ma.array(lent))
    assert not asked, "the driver is asked where nothing else tells it"
    arguments.count_registered(1)
    assert arguments.is_page_locked(own[2:])
    assert asked == [own.ctypes.data + 16]
    answer[1] = kinds.CU_MEMORYTYPE_DEVICE
    assert not arguments.is_page_locked(own)
    answer[:] = [driver.CUresult.CUDA_ERROR_INVALID_VALUE, kinds.CU_MEMORYTYPE_HOST]
    assert not arguments.is_page_locked(own)
    arguments.count_registered(-1)
    assert not arguments.is_page_locked(own)
    assert len(asked) == 3
    foreign = np.frombuffer(bytearray(80), np.float64)  # of someone else's memory
    answer[:] = [driver.CUresult.CUDA_SUCCESS, kinds.CU_MEMORYTYPE_HOST]
    assert arguments.is_page_locked(foreign)
