"""Tensor maps: which arrays and boxes have one, and what cuda.core is asked for on a GPU."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import cuda.core.utils
import numpy as np
import pytest

import cudakit as ck
from cudakit.memory import textures

pytestmark = pytest.mark.emulator


def at(shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None, offset: int = 0) -> np.ndarray:
    """An array that begins `offset` bytes after a multiple of 256."""
    size = np.dtype(dtype).itemsize
    span = sum(abs(step) * extent for step, extent in zip(strides, shape, strict=True)) if strides else 0
    memory = np.zeros(max(span, size * max(1, int(np.prod(shape)))) + 1024, np.uint8)
    start = -memory.ctypes.data % 256 + offset
    return np.ndarray(shape, dtype, memory[start:], strides=strides)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the emulator's map is made of."""
    from cudakit.emulator import face

    found: list[tuple[Any, ...]] = []

    class Map(face.EmulatedTensorMap):
        def __new__(cls, *given: Any) -> Any:
            found.append(given)
            return "map"

    monkeypatch.setattr(face, "EmulatedTensorMap", Map)
    return found


def test_the_emulators_map_is_of_the_array_and_its_box(made: list[tuple[Any, ...]]) -> None:
    x = at((8, 32), "f4")
    assert ck.tensor_map(x, [4, 16]) == "map"
    assert ck.tensor_map(x, (np.int64(4), 16), element_strides=[2, 1], swizzle="64B", fill="nan") == "map"
    assert ck.tensor_map(x, (4, 16), precision="tf32") == "map"
    assert [given[1:] for given in made] == [
        ((4, 16), (1, 1), "none", False, None),
        ((4, 16), (2, 1), "64B", True, None),
        ((4, 16), (1, 1), "none", False, "tf32"),
    ]
    assert all(np.shares_memory(given[0], x) for given in made)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("swizzle", "'none', '32B', '64B', '128B'"),
        ("fill", "'zero', 'nan'"),
        ("interleave", "'none', '16B', '32B'"),
        ("l2_promotion", "'none', '64B', '128B', '256B'"),
    ],
)
def test_words_are_those_that_are_known(name: str, known: str) -> None:
    with pytest.raises(ck.ArgumentError, match=f"^tensor_map: {name} is one of {known}, got 'other'$"):
        ck.tensor_map(at((8, 32), "f4"), (4, 16), **{name: "other"})  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "box"), [((256,), (256,)), ((2, 2, 2, 2, 16), (1, 2, 1, 2, 16)), ((16,), (16,))])
def test_boxes_of_one_to_five_dimensions(made: list[Any], shape: tuple[int, ...], box: tuple[int, ...]) -> None:
    ck.tensor_map(at(shape, "u1"), box)
    assert made[0][1] == box


WIDE = at((8, 32), "f4")


@pytest.mark.parametrize(
    ("array", "box", "options", "why"),
    [
        (WIDE, 3, {}, "box is a number for each dimension, got 3"),
        (WIDE, (4, 1.5), {}, r"box is a number for each dimension, got \(4, 1.5\)"),
        (WIDE, (4, 16), {"element_strides": "no"}, "element_strides is a number for each dimension"),
        (WIDE, (4, 16), {"interleave": "16B"}, "the emulator has no interleaved tensors, got interleave='16B'"),
        (at((16,), "c16"), (4,), {}, r"no tensor map has dtype complex128; its bits may do"),
        (at((1,) * 5 + (16,), "u1"), (1,) * 5 + (16,), {}, "1 to 5 dimensions, none empty, got"),
        (at((), "u1"), (), {}, "1 to 5 dimensions, none empty"),
        (at((0, 16), "u1"), (1, 16), {}, "1 to 5 dimensions, none empty"),
        (WIDE, (4,), {}, r"box is 2 numbers of 1 to 256, got \(4,\)"),
        (WIDE, (0, 16), {}, "box is 2 numbers of 1 to 256"),
        (at((8, 1024), "u1"), (257, 16), {}, "box is 2 numbers of 1 to 256"),
        (WIDE, (4, 16), {"element_strides": (1,)}, "element_strides is 2 numbers of 1 to 8"),
        (WIDE, (4, 16), {"element_strides": (9, 1)}, "element_strides is 2 numbers of 1 to 8"),
        (WIDE, (4, 16), {"element_strides": (0, 1)}, "element_strides is 2 numbers of 1 to 8"),
        (WIDE, (4, 16), {"element_strides": (1, 2)}, r"the last of element_strides is 1, got \(1, 2\)"),
        (at((8, 32), "f4", offset=8), (4, 16), {}, "which is no multiple of 16 bytes"),
        (at((8, 8), "f4", (32, 8)), (4, 4), {}, "the last stride is the element's 4 bytes"),
        (at((8, 4), "f4", (24, 4)), (4, 4), {}, "the others multiples of 16"),
        (at((8, 4), "f4", (0, 4)), (4, 4), {}, "the others multiples of 16"),
        (WIDE, (4, 6), {}, "a row of the box is a multiple of 16 bytes, got 6 of 4"),
        (WIDE, (4, 12), {"swizzle": "32B"}, "a row of the box, 48 bytes, is longer than the swizzle 32B"),
        (at((8, 32), "i4"), (4, 16), {"fill": "nan"}, "int32 has no NaN to fill with"),
        (at((8, 32), "u1"), (4, 16), {"fill": "nan"}, "uint8 has no NaN to fill with"),
        (WIDE, (4, 16), {"precision": "fp8"}, "precision is 'tf32' or None, got 'fp8'"),
        (at((8, 32), "i4"), (4, 16), {"precision": "tf32"}, "precision='tf32' the array's dtype is float32, got int32"),
    ],
)
def test_what_no_map_describes(made: list[Any], array: Any, box: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=f"^tensor_map: .*{why}"):
        ck.tensor_map(array, box, **options)
    assert made == []


def test_the_longest_stride_is_less_than_a_tebibyte(made: list[Any]) -> None:
    def far(step: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(at((1, 16), "u1"), (1, 16), (step, 1))

    ck.tensor_map(far(2**40 - 16), (1, 16))
    with pytest.raises(ck.ArgumentError, match="the others multiples of 16"):
        ck.tensor_map(far(2**40), (1, 16))
    assert len(made) == 1


def test_bounds_are_taken_in(made: list[Any]) -> None:
    ck.tensor_map(at((300, 512), "u1"), (256, 256), element_strides=(8, 1))
    ck.tensor_map(WIDE, (4, 8), swizzle="32B")
    ck.tensor_map(at((8, 32), "f2", offset=16), (1, 8), fill="nan")
    assert len(made) == 3


class Array:
    """A device array."""

    def __init__(self, shape: Any = (8, 32), typestr: str = "<f4") -> None:
        self.shape, self.typestr = shape, typestr
        self.__cuda_array_interface__ = {"shape": (8, 32), "typestr": typestr, "data": (256, False), "version": 3}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What cuda.core is asked for."""
    log: list[Any] = []
    failing: list[Exception] = []

    def as_tensor_map(box: Any, **options: Any) -> str:
        log.append((box, {name: getattr(value, "name", value) for name, value in options.items()}))
        if failing:
            raise failing[0]
        return "descriptor"

    def view(array: Any, stream_ptr: int) -> Any:
        assert stream_ptr == -1
        return SimpleNamespace(device_id=3, as_tensor_map=as_tensor_map, dtype=np.dtype(array.typestr))

    monkeypatch.setattr(cuda.core.utils, "StridedMemoryView", SimpleNamespace(from_any_interface=view))
    monkeypatch.setattr(textures.devices, "on_device", lambda number: log.append(number) or contextlib.nullcontext())
    log.append(failing)
    return log


def test_cuda_core_is_asked_for_a_device_arrays_map(asked: list[Any]) -> None:
    assert ck.tensor_map(Array(), (4, 16)) == "descriptor"
    none = {"element_strides": None, "swizzle": "NONE", "oob_fill": "NONE", "interleave": "NONE"}
    assert asked[1:] == [3, ((4, 16), {**none, "l2_promotion": "NONE"})]
    words: dict[str, Any] = {"swizzle": "128B", "fill": "nan", "interleave": "16B", "l2_promotion": "256B"}
    ck.tensor_map(Array(), (4, 16), element_strides=(2, 1), **words)
    assert asked[-1] == (
        (4, 16),
        {
            **{"element_strides": (2, 1), "swizzle": "SWIZZLE_128B", "oob_fill": "NAN_REQUEST_ZERO_FMA"},
            **{"interleave": "INTERLEAVE_16B", "l2_promotion": "L2_256B"},
        },
    )
    ck.tensor_map(Array(), (4, 16), precision="tf32")
    assert asked[-1] == ((4, 16), {**none, "l2_promotion": "NONE", "data_type": "TFLOAT32"})
    with pytest.raises(ck.ArgumentError, match=r"precision='tf32' the array's dtype is float32, got int32"):
        ck.tensor_map(Array(typestr="<i4"), (4, 16), precision="tf32")
    with pytest.raises(ck.ArgumentError, match="box is 2 numbers of 1 to 256"):
        ck.tensor_map(Array(), (4, 16, 1))
    with pytest.raises(ck.ArgumentError, match="element_strides is 2 numbers of 1 to 8"):
        ck.tensor_map(Array(), (4, 16), element_strides=(9, 1))
    ck.tensor_map(Array("unknown"), (4, 16, 1))
    assert asked[-1][0] == (4, 16, 1), "the driver checks what has no shape here"


@pytest.mark.parametrize("error", [TypeError, ValueError, BufferError])
def test_what_cuda_core_refuses_is_an_error_of_ours(asked: list[Any], error: type[Exception]) -> None:
    asked[0].append(error("bad strides"))
    with pytest.raises(ck.ArgumentError, match="tensor_map of Array: bad strides"):
        ck.tensor_map(Array(), (4, 16))
