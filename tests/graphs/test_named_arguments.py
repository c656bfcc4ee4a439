"""What a graph knows of the arguments that are named: where arrays lie, against NumPy's own account of it."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import pytest
from support.without_device import Array

import cudakit as ck
from cudakit.graphs import emulated_capture
from cudakit.graphs.recording import Memory, NamedArguments, is_readonly, memory_of
from cudakit.types import arguments

pytestmark = pytest.mark.emulator

BASE = 0x7F1234000000
VIEWS = {
    "whole": lambda x: x,
    "part": lambda x: x[1:3, ::2],
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, 1:],
    "row": lambda x: x[2],
    "empty": lambda x: x[:0],
    "element": lambda x: x[2:3, 4:5].reshape(()),
}


class Exported:
    """An array of another library, which has the CUDA array interface alone."""

    def __init__(self, like: np.ndarray, address: int, readonly: bool = False) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, readonly),
            "shape": like.shape,
            "strides": like.strides,
            "typestr": like.dtype.str,
            "version": 3,
        }


def on_device(like: np.ndarray, address: int) -> Any:
    """CuPy's array at an address, with the shape, dtype and strides of NumPy's."""
    return Array(like.shape, like.dtype, address, like.strides)


def host() -> np.ndarray:
    return np.arange(30, dtype=np.float32).reshape(5, 6)


@pytest.fixture
def third_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_device_of", lambda pointer: 3)


@pytest.mark.parametrize("view", VIEWS)
def test_the_memory_of_a_host_array_is_where_numpy_has_it(view: str) -> None:
    x = VIEWS[view](host())
    memory = memory_of(x)
    assert memory is not None
    assert memory.address == x.ctypes.data
    assert (memory.dtype, memory.shape, memory.strides, memory.device) == (x.dtype, x.shape, x.strides, None)
    if x.size:
        assert (memory.low, memory.high) == np.lib.array_utils.byte_bounds(x)
    else:
        assert memory.low == memory.high


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["cupy", "exported"])
def test_the_memory_of_a_device_array_is_as_numpys_of_that_layout(kind: str, view: str, third_device: None) -> None:
    x = VIEWS[view](host())
    make, device = (on_device, 0) if kind == "cupy" else (Exported, 3)
    memory = memory_of(make(x, BASE))
    assert memory is not None
    assert (memory.address, memory.dtype, memory.shape) == (BASE, x.dtype, x.shape)
    assert memory.device == device
    if x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        assert memory.strides == x.strides
        assert (memory.low - BASE, memory.high - BASE) == (low - x.ctypes.data, high - x.ctypes.data)
    else:
        assert memory.low == memory.high


def test_a_buffer_without_a_dtype_is_its_bytes() -> None:
    buffer = SimpleNamespace(
        is_cpu=False, address=BASE, size=40, is_mutable=True, device=SimpleNamespace(device_id=2)
    )  # as Arrow's
    assert memory_of(buffer) == Memory(BASE, BASE, BASE + 40, np.dtype("u1"), (40,), (1,), 2)


@pytest.mark.parametrize("value", [3, 2.5, True, 1j, np.float32(2), "[](int x) { return x; }", None])
def test_what_is_no_array_has_no_memory(value: Any) -> None:
    assert memory_of(value) is None


def test_which_arrays_may_not_be_written(third_device: None) -> None:
    x = host()
    assert not is_readonly(x)
    x.flags.writeable = False
    assert is_readonly(x)
    assert not is_readonly(on_device(x, BASE))
    assert is_readonly(Exported(x, BASE, readonly=True))
    assert not is_readonly(Exported(x, BASE))
    assert not is_readonly(2.5)


def test_a_byte_lies_in_the_array_whose_range_it_is_in() -> None:
    x, y = host(), host()[::-1]
    named = NamedArguments({"x": x, "y": y, "n": 5})
    first = x.ctypes.data
    assert named.holding(first) == ("x", 0)
    assert named.holding(first + x.nbytes - 1) == ("x", x.nbytes - 1)
    for beside in (first - 1, first + x.nbytes):
        held = named.holding(beside)
        assert held is None or held[0] == "y"
    # Reversed rows lie before the first element.
    assert named.holding(y.ctypes.data - 8) == ("y", -8)
    assert named.viewed(memory_of(x[3:])) == ("x", 3 * x.strides[0])
    assert named.viewed(memory_of(y[1:])) == ("y", y.strides[0]), "from first element to first element"
    assert named.viewed(memory_of(np.zeros(3))) is named.viewed(None) is None
    parameter = struct.pack("<4Q", 7, first + 12, y.ctypes.data, first + 4)
    assert list(named.addresses_in(parameter)) == [(8, "x", 12), (16, "y", 0), (24, "x", 4)]
    assert list(named.addresses_in(parameter[:20])) == [(8, "x", 12)], "the last four bytes are no address"


def test_arrays_that_share_memory_are_refused_and_neighbours_are_not() -> None:
    x = host()
    with pytest.raises(ck.ArgumentError, match="share memory"):
        NamedArguments({"one": x[:3], "other": x[2:]})
    assert set(NamedArguments({"one": x[:3], "other": x[3:]}).arrays) == {"one", "other"}


def test_another_array_must_lie_as_the_captured_one() -> None:
    named = NamedArguments({"x": on_device(host(), BASE), "a": 2.0})
    other = on_device(host(), BASE + 4096)
    assert named.check("x", other) == BASE + 4096
    assert named.check("a", 3) is None
    square = on_device(np.zeros((6, 5), np.float32), BASE + 4096)
    turned = on_device(np.zeros((6, 5), np.float32).T, BASE + 4096)
    for value, words in (
        (square, r"captured as float32 with shape \(5, 6\) in memory of device 0, got float32 with shape \(6, 5\) in"),
        (turned, r"got float32 with shape \(5, 6\) and strides \(4, 20\) in memory of device 0"),
        (host(), r"got float32 with shape \(5, 6\) in host memory"),
        (on_device(host(), BASE + 4104), r"a multiple of 16 bytes, .* got one at 0x7f1234001008"),
    ):
        with pytest.raises(ck.ArgumentError, match=words):
            named.check("x", value)


def test_an_address_needs_no_more_alignment_than_it_had() -> None:
    named = NamedArguments({"x": on_device(host(), BASE + 8)})
    assert named.check("x", on_device(host(), BASE + 24)) is not None
    with pytest.raises(ck.ArgumentError, match="a multiple of 8 bytes"):
        named.check("x", on_device(host(), BASE + 20))


def test_what_stands_for_a_name_now_is_kept_apart_from_what_was_captured() -> None:
    x, other = host(), host()
    named = NamedArguments({"x": x, "a": 2.0})
    named.values.update(x=other, a=3.0)
    assert named.memory("x") == memory_of(other)
    assert named.arrays["x"].address == x.ctypes.data
    assert named.memory("a") is None


@pytest.mark.parametrize("base", [BASE, BASE + 8])
def test_an_array_that_moved_alone_is_known_without_the_full_check(base: int) -> None:
    apart = on_device(np.zeros(4, np.float32)[::2], BASE + 8192)
    named = NamedArguments({"x": on_device(host(), base), "a": 2.0, "host": host(), "apart": apart})
    moved = on_device(host(), base + 4096)
    assert named.address_of("x", moved) == named.check("x", moved) == base + 4096
    elsewhere = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(base, 4096, None, device_id=1), 0)
    for name, value in (
        ("x", on_device(np.zeros((6, 5), np.float32), base)),
        ("x", on_device(np.zeros(30, np.float32), base)),
        ("x", on_device(host()[:0], base)),
        ("x", on_device(host().view(np.int32), base)),
        ("x", on_device(np.zeros((6, 5), np.float32).T, base)),
        ("x", on_device(np.zeros((5, 12), np.float32)[:, ::2], base)),
        ("x", Array((5, 6), np.float32, elsewhere)),
        ("x", on_device(host(), base + 4)),
        ("x", cupy.ndarray((5, 6), np.float32, moved.data)),
        ("x", Exported(host(), base)),
        ("x", host()),
        ("x", 3),
        ("x", None),
        ("a", moved),
        ("host", moved),
        ("apart", on_device(np.zeros(2, np.float32), BASE)),
        ("no such name", moved),
    ):
        assert named.address_of(name, value) is None, (name, value.__class__)


def test_a_number_is_known_by_identity_and_an_array_is_none() -> None:
    x = host()
    named = NamedArguments({"x": x, "a": 2.0, "n": 2, "t": np.float32(2)})
    assert [named.number_named(named.values[name]) for name in ("a", "n", "t")] == ["a", "n", "t"]
    assert named.number_named(2) is None
    assert named.number_named(x) is None
    with pytest.raises(ck.ArgumentError, match="d is str; what is named is an array or a number"):
        NamedArguments({"d": "2"})


def test_names_that_nothing_uses() -> None:
    named = NamedArguments({"x": host(), "a": 2.0, "nothing": host()[:0], "b": 1})
    assert named.unused(["b"]) == ["a", "x"]
    assert named.unused(["x", "a", "b"]) == []


def test_an_empty_array_behind_another_shares_no_memory_with_it() -> None:
    rows = host()
    assert NamedArguments({"x": rows[:2], "nothing": rows[2:][:0]}).unused(["x"]) == []


def test_an_address_that_is_held_for_good_is_refused() -> None:
    x = host()
    named = NamedArguments({"x": x})
    with pytest.raises(ck.ArgumentError, match="kernel f is given a tensor map of x"):
        named.refuse_inside(x.ctypes.data + 8, "kernel f", "tensor map")
    named.refuse_inside(x.ctypes.data + x.nbytes, "kernel f", "tensor map")


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[:2],
        lambda x: x[1:, ::2],
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x.view("i4"),
        lambda x: x[2:3, 4:5].reshape(()),
    ],
)
def test_a_view_of_a_named_array_is_taken_of_the_new_one(view: Any) -> None:
    x, other = host(), host() + 100
    like, captured = view(x), memory_of(view(x))
    assert captured is not None
    distance = int(like.__array_interface__["data"][0]) - int(x.__array_interface__["data"][0])
    found = emulated_capture._view(other, distance, captured)
    np.testing.assert_array_equal(found, view(other))
    assert (found.dtype, found.strides) == (like.dtype, like.strides)
    found[...] = 7
    assert (view(other) == 7).all()
    assert (found is other) == (like is x)
