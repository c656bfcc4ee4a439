"""Which calls are taken for ones that were made before: with a stand-in for CuPy, whose arrays need a GPU."""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from cudakit.generate.again import Again
from cudakit.generate.folding import Given
from cudakit.ops.place import Place

STREAM = object()


class Array:
    """What is looked at of a CuPy array."""

    def __init__(self, shape: Any, dtype: Any = "f4", ptr: int = 0, contiguous: bool = True) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.size = int(np.prod(shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.data = types.SimpleNamespace(ptr=ptr, device_id=0)
        self._c_contiguous = contiguous
        self.flags = types.SimpleNamespace(c_contiguous=contiguous)


class Job(NamedTuple):
    shape: tuple[int, ...]
    dtypes: tuple[np.dtype, ...]


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("cupy")
    module.ndarray = Array  # type: ignore[attr-defined]
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: STREAM)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def known(cupy: Any, in_place: bool = False, **call: Any) -> Again[Job]:
    """What remembers one call: of (4, 5) float32 along axis 0, to (5,) float32."""
    again: Again[Job] = Again(in_place)
    values = [Array((4, 5), ptr=1000)]
    place = Place(call.get("xp", cupy), STREAM, call.get("current", True), 0)
    kinds = ((values[0].dtype, values[0].shape, (20, 4)),)
    again.remember(Job((5,), (np.dtype("f4"),)), Given(place, values, kinds), (0, False), call.get("outs"))
    return again


def test_a_call_of_the_same_kind(cupy: Any) -> None:
    again = known(cupy)
    found = again.find((Array((4, 5), ptr=9000),), (0, False), None)
    assert found is not None
    assert found.job.shape == (5,)
    assert (found.place.stream, found.place.current, found.place.device) == (STREAM, True, 0)
    (made,) = found.results
    assert (made.shape, made.dtype) == ((5,), np.float32)
    out = Array((5,), ptr=5000)
    for given in (out, (out,)):
        found = again.find((Array((4, 5), ptr=9000),), (0, False), given)
        assert found is not None
        assert found.results == [out]


def test_calls_of_another_kind(cupy: Any) -> None:
    again = known(cupy)
    x = Array((4, 5), ptr=9000)
    other_device = Array((4, 5), ptr=9000)
    other_device.data.device_id = 1
    for args, options, out in (
        ((Array((5, 4)),), (0, False), None),
        ((Array((4, 5), "f8"),), (0, False), None),
        ((Array((4, 5), contiguous=False),), (0, False), None),
        ((np.zeros((4, 5), "f4"),), (0, False), None),
        ((other_device,), (0, False), None),
        ((2.0,), (0, False), None),
        ((x, x), (0, False), None),
        ((), (0, False), None),
        ((x,), (1, False), None),
        ((x,), (0, True), None),
        ((x,), ([0], False), None),
        ((x,), (0, False), Array((4,), ptr=1)),
        ((x,), (0, False), Array((5,), "f8", ptr=1)),
        ((x,), (0, False), Array((5,), ptr=1, contiguous=False)),
        ((x,), (0, False), (Array((5,), ptr=1), None)),
        ((x,), (0, False), (None,)),
        ((x,), (0, False), np.zeros(5, "f4")),
        ((x,), (0, False), Array((5,), ptr=9000 + 79)),
        ((x,), (0, False), Array((5,), ptr=9000 - 19)),
    ):
        assert again.find(args, options, out) is None


def test_an_output_beside_its_input_is_no_overlap(cupy: Any) -> None:
    x = Array((4, 5), ptr=9000)
    for ptr in (9000 + 80, 9000 - 20):
        assert known(cupy).find((x,), (0, False), Array((5,), ptr=ptr)) is not None


def test_in_place(cupy: Any) -> None:
    x = Array((5,), ptr=9000)
    for in_place in (False, True):
        again: Again[Job] = Again(in_place)
        place = Place(cupy, STREAM, True, 0)
        again.remember(Job((5,), (x.dtype,)), Given(place, [x], ((x.dtype, x.shape, (4,)),)), (0,), None)
        assert (again.find((x,), (0,), x) is not None) is in_place
        assert again.find((x,), (0,), Array((5,), ptr=9004)) is None


@pytest.mark.parametrize("call", [{"xp": np}, {"current": False}, {"outs": (np.dtype("f8"),)}, {"outs": (None,)}])
def test_calls_that_are_not_remembered(cupy: Any, call: dict[str, Any]) -> None:
    assert known(cupy, **call).find((Array((4, 5), ptr=9000),), (0, False), None) is None
