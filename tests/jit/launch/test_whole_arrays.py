"""Generated calls with arrays that are taken whole: which code each goes to, and what is passed; run without a GPU."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.jit.launch.bind import Callee, bind, evaluate
from cudakit.jit.launch.dispatch import Dispatcher
from cudakit.jit.launch.launch import CallShape, Settled
from cudakit.jit.launch.param_buffer import PackedLaunch
from cudakit.jit.launch.tensor_binding import TensorBinding
from cudakit.jit.specialise.specialise import BoundParameter, PartPromise
from cudakit.streams import devices
from cudakit.types.arguments import Argument, Evidence
from cudakit.types.tensors import TensorLayout, layout_of, overlaps_itself

pytestmark = pytest.mark.emulator
F4 = np.dtype("f4")


class Array:
    """What a launch reads of a CuPy array."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=0)
        self.shape, self.strides, self.dtype = shape, strides, F4

    @property
    def ndim(self) -> int:
        return len(self.shape)


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    cuda = SimpleNamespace(get_current_stream=lambda *device: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))  # type: ignore[misc]


def described(array: Array) -> Argument:
    evidence = Evidence("array", "x", F4, array.ndim)
    strides = tuple(step // 4 for step in array.strides)
    return Argument(array, "cupy", evidence, 0, array.data.ptr, False, array.shape, strides, array.data.ptr)


def layout(array: Array) -> TensorLayout:
    found = described(array)
    return layout_of(found.shape, found.strides, found.pointer, 4)


def shape_for(array: Array, said: list[Any], promises: tuple[PartPromise, ...] = ()) -> CallShape:
    """What a first call with an array adds."""
    parameter = BoundParameter("x", "x", "tensor", F4, True, 2, layout=layout(array), promises=promises)
    fragment = bind(parameter, described(array), Callee("f", 0, False), 24, False)
    loaded: Any = SimpleNamespace(kernel=layout(array), parameters=(parameter,))
    shape = CallShape(loaded, (fragment,), ("cupy",), 0, lambda *given: said.append(given[2:]))
    shape.last_launch = Settled(
        "stream", "config", "core", "config", None, None, True, None, *shape._memo([evaluate(fragment, array)], [array])
    ).flat()
    return shape


def passed(array: Array) -> tuple[TensorLayout, bytes]:
    numbers = (*array.shape, *(step // 4 for step in array.strides))
    return layout(array), struct.pack("<Q4i", array.data.ptr, *numbers)


PLAIN = Array(4096, (8, 16), (64, 4))
OTHERS = [
    Array(8192, (8, 16), (64, 4)),
    Array(4096, (16, 8), (32, 4)),
    Array(4096, (8, 16), (128, 4)),
    Array(4096, (8, 15), (64, 4)),
    Array(4100, (8, 16), (64, 4)),
    Array(4096, (8, 16), (4, 32)),
    Array(4096, (16, 16), (4, 64)),
    Array(4096, (8, 16), (256, 8)),
]


def test_every_layout_goes_to_its_own_code() -> None:
    said: list[Any] = []
    dispatcher = Dispatcher("f", ["x"], lambda *given: said.append("check"))
    kinds = {layout(each): each for each in (PLAIN, *OTHERS)}
    for array in kinds.values():
        dispatcher.add(shape_for(array, said))
    assert len(kinds) == 5
    for _ in range(3):
        for array in (PLAIN, *OTHERS):
            said.clear()
            dispatcher.function("stream", "config", array)
            assert said == [passed(array)]
    said.clear()
    for wrong in (Array(4096, (8, 16), (-64, 4)), Array(4096, (8, 16, 1), (64, 4, 4)), 3, None):
        dispatcher.function("stream", "config", wrong)
    assert said == ["check"] * 4


def test_an_array_is_looked_at_again_where_its_shape_is_another() -> None:
    said: list[Any] = []
    array = Array(4096, (8, 16), (64, 4))
    dispatcher = Dispatcher("f", ["x"], lambda *given: said.append("check"))
    dispatcher.add(shape_for(array, said))
    first = passed(array)
    dispatcher.function("stream", "config", array)
    array.shape, array.strides = (16, 8), (32, 4)
    dispatcher.function("stream", "config", array)
    assert said == [first, passed(array)]
    array.shape, array.strides = (64, 2), (8, 4)
    dispatcher.function("stream", "config", array)
    assert said[2:] == ["check"]


def test_own_promises_are_looked_at_for_every_array() -> None:
    """Of the address too, of which arrays that are alike otherwise have others."""
    said: list[Any] = []
    dispatcher = Dispatcher("f", ["x"], lambda *given: said.append("check"))
    array = Array(4096, (8, 16), (64, 4))
    promises = PartPromise(0, 256, None, None), PartPromise(1, 1, 4, 8), PartPromise(3, 16, 0, None)
    dispatcher.add(shape_for(array, said, promises))
    for other, fits in (
        (Array(8192, (8, 16), (64, 4)), True),
        (Array(8192 + 128, (8, 16), (64, 4)), False),
        (Array(8192 + 256, (8, 16), (64, 4)), True),
        (Array(8192, (9, 16), (64, 4)), False),
        (Array(8192, (3, 16), (64, 4)), False),
        (Array(8192, (8, 16), (80, 4)), False),
        (Array(8192, (8, 16), (128, 4)), True),
    ):
        said.clear()
        dispatcher.function("stream", "config", other)
        assert said == [passed(other) if fits else "check"]


def test_the_driver_is_given_each_part() -> None:
    """Pointers to the address, to each extent and to each stride, wherever other parameters lie."""
    import ctypes

    for wide in (False, True):
        whole = TensorLayout(2, 16, True, wide)
        parameters = (
            BoundParameter("n", "int", "scalar", np.dtype("i4")),
            BoundParameter("x", "x", "tensor", F4, True, 3, layout=whole),
            BoundParameter("m", "int", "scalar", np.dtype("i4")),
        )
        loaded: Any = SimpleNamespace(parameters=parameters, sizes=(4, whole.size(3), 4))
        fragments: Any = [SimpleNamespace(form=form) for form in ("q", "s", "q")]
        made = PackedLaunch(loaded, fragments)
        data = struct.pack("<Q3i4x3q" if wide else "<Q6i", 4096, 1, 2, 3, 4, 5, 6)
        assert len(data) == whole.size(3)
        made._pack(made._buffer, made._start, 7, data, 8)
        sizes = [4, *whole.sizes(3), 4]
        assert len(made._pointers) == len(sizes)
        found = [
            int.from_bytes(ctypes.string_at(at, size), "little") for at, size in zip(made._pointers, sizes, strict=True)
        ]
        assert found == [7, 4096, 1, 2, 3, 4, 5, 6, 8]
        assert all(at % size == 0 for at, size in zip(made._pointers, sizes, strict=True))


@pytest.mark.parametrize(
    ("shape", "strides", "is_one"),
    [
        ((4, 8), (8, 1), False),
        ((4, 8), (1, 4), False),
        ((4, 8), (16, 2), False),
        ((4, 8), (7, 1), True),
        ((3, 3), (1, 1), True),  # a window that slides
        ((2, 2), (2, 3), False),
        ((3, 3), (2, 3), False),
        ((4, 3), (2, 3), True),
        ((4, 8), (0, 1), True),
        ((1, 8), (0, 1), False),
        ((0, 8), (0, 0), False),
        ((8,), (-1,), False),
        ((1 << 20, 2), (2, 1), False),
        ((1 << 20, 2), (2, 3), True),  # too many to look at each
        ((), (), False),
    ],
)
def test_arrays_whose_elements_overlap(shape: tuple[int, ...], strides: tuple[int, ...], is_one: bool) -> None:
    assert overlaps_itself(shape, strides) is is_one
    reached = np.zeros(64, np.int8)
    if 0 < np.prod(shape) < 64 and min(strides, default=0) >= 0:
        places = np.lib.stride_tricks.as_strided(np.arange(64, dtype=np.int8), shape, strides)
        np.add.at(reached, places.ravel(), 1)
        assert bool((reached > 1).any()) is is_one


def test_an_output_whose_elements_overlap_is_refused() -> None:
    parameter = BoundParameter("x", "x", "tensor", F4, False, 2, layout=TensorLayout(1))
    window = TensorBinding(parameter, 4, 1)
    assert "its elements overlap (strides (1, 1)): copy it" in window.refusal(4096, (3, 3), (1, 1))
    assert window.refusal(4096, (3, 3), (3, 1)) == ""
    assert window.pack(4096, (3, 3), (1, 1)) is None
    read = TensorBinding(parameter._replace(const=True), 4, 1)
    assert read.refusal(4096, (3, 3), (1, 1)) == ""
