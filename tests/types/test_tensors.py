"""Arrays that are taken whole: what is known of their layout, and the bytes that are passed, against C's own layout."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from cudakit.types.tensors import TensorLayout, fits, layout_of, packer, passed_strides, plain_layout

pytestmark = pytest.mark.emulator


def passed(rank: int, wide: bool) -> Any:
    """The struct that is passed, as C lays it out."""
    stride = ctypes.c_int64 if wide else ctypes.c_int32
    fields = [("address", ctypes.c_uint64), ("extents", ctypes.c_int32 * rank), ("strides", stride * rank)]
    return type("Passed", (ctypes.Structure,), {"_fields_": fields})


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_what_is_passed_is_a_struct_of_c(rank: int, wide: bool) -> None:
    layout, struct = TensorLayout(wide=wide), passed(rank, wide)
    extents, strides = [*range(1, rank + 1)], [10 * k + 1 for k in range(rank)]
    data = packer(rank, layout)(0x123456789A, *extents, *strides)
    value = struct.from_buffer_copy(data.ljust(ctypes.sizeof(struct), b"\0"))
    assert (value.address, list(value.extents), list(value.strides)) == (0x123456789A, extents, strides)
    sizes, offsets = layout.sizes(rank), layout.offsets(rank)
    first = struct.strides.offset
    step = 8 if wide else 4
    assert offsets == (0, *(8 + 4 * k for k in range(rank)), *(first + step * k for k in range(rank)))
    assert sizes == (8, *[4] * rank, *[step] * rank)
    assert layout.size(rank) == len(data) == first + step * rank


def elements(x: np.ndarray) -> TensorLayout:
    strides = [step // x.itemsize for step in x.strides]
    return layout_of(x.shape, strides, 0x1000, x.itemsize)


BASE = np.zeros((6, 8, 16), np.float32)


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (BASE, TensorLayout(2, 16, True)),
        (BASE[:, :, :12], TensorLayout(2, 16, True)),
        (BASE[:, :, :13], TensorLayout(2, 16, False)),  # rows whose ends are at no multiple of 16 bytes
        (BASE[:, :, ::2], TensorLayout(-1)),  # nothing lies side by side
        (BASE.transpose(2, 0, 1), TensorLayout(0, 16, True)),
        (BASE[:, ::-1], TensorLayout(2)),  # backwards
        (np.zeros((6, 7), np.float32), TensorLayout(1)),  # pitches of 28 bytes
        (np.zeros((6, 7), np.float32)[:, :4], TensorLayout(1)),
        (np.zeros((2, 7), np.float32), TensorLayout(1)),
        (np.zeros((1, 7), np.float32), TensorLayout(1, 16, False)),
        (np.zeros((7, 1), np.float32), TensorLayout(0, 16, False)),
        (np.zeros((8, 0), np.float32), TensorLayout()),
        (np.broadcast_to(np.zeros(16, np.float32), (4, 16)), TensorLayout(1)),  # elements in one place
    ],
)
def test_layouts(view: np.ndarray, wanted: TensorLayout) -> None:
    assert elements(view) == wanted
    assert plain_layout(3) == elements(BASE)


def test_an_address_at_no_multiple_of_16_bytes_and_far_strides() -> None:
    assert layout_of((6, 16), (16, 1), 0x1008, 4) == TensorLayout(1)
    assert layout_of((2, 16), (2**31, 1), 0x1000, 4).wide
    assert not layout_of((2, 16), (2**31 - 1, 1), 0x1000, 4).wide
    assert not layout_of((1, 16), (2**31, 1), 0x1000, 4).wide, "there is no second row"
    assert layout_of((2, 16), (1 << 40, 1), 0x1000, 4) == TensorLayout(1, 16, True, True)
    assert layout_of((2, 16), (15, 1), 0x1000, 4) == TensorLayout(1), "rows that overlap"


def test_code_for_less_is_right_for_more() -> None:
    shape, strides = (6, 16), (16, 1)

    def runs(layout: TensorLayout, address: int = 0x1000, strides: tuple[int, ...] = strides) -> bool:
        return fits(layout, shape, strides, address, 4)

    assert runs(TensorLayout(1, 16, True))
    assert runs(TensorLayout(1, 16, False))
    assert runs(TensorLayout(1))
    assert runs(TensorLayout(-1))
    assert runs(TensorLayout(1, 16, True, wide=True))
    assert not runs(TensorLayout(0))
    assert not runs(TensorLayout(1, 16, True), address=0x1008)
    assert not runs(TensorLayout(1, 16, True), strides=(17, 1))
    assert runs(TensorLayout(1), strides=(17, 1))
    assert not runs(TensorLayout(1), strides=(32, 2))
    assert not runs(TensorLayout(1), strides=(1 << 40, 1))
    assert runs(TensorLayout(1, wide=True), strides=(1 << 40, 1))
    assert not fits(TensorLayout(1, 16, True), (6, 13), (16, 1), 0x1000, 4)
    # Of one row, elements lie side by side along either axis: code for either is right.
    assert fits(TensorLayout(0), (1, 1), (1, 1), 0x1000, 4)
    assert fits(TensorLayout(1), (1, 1), (1, 1), 0x1000, 4)


def test_strides_of_single_elements_are_such_as_all_code_takes() -> None:
    assert passed_strides((6, 16), (16, 1), 4) == (16, 1)
    assert passed_strides((6, 0), (16, 1), 4) == [0, 0]
    for itemsize, shape, strides in itertools.product((1, 2, 4, 8, 16), [(1, 16), (16, 1), (1, 1)], [(77, 1), (1, 3)]):
        found = passed_strides(shape, strides, itemsize)
        span = 1 + sum(step * (extent - 1) for step, extent in zip(strides, shape, strict=True))
        for step, given, extent in zip(found, strides, shape, strict=True):
            if extent > 1:
                assert step == given
            else:
                assert step >= span, "no element of another row may be there"
                assert step * itemsize % 16 == 0
                assert step <= 2**31 - 1


def test_a_single_elements_stride_is_the_least_beyond_all_others() -> None:
    assert passed_strides((1, 17), (1, 1), 4) == [20, 1]
    assert passed_strides((1, 16), (1, 1), 4) == [16, 1]
    assert passed_strides((1, 1), (5, 7), 2) == [8, 8]
    assert passed_strides((1, 3), (1, 2), 1) == [16, 2]
    assert passed_strides((1, 3), (1, 2), 16) == [5, 2]
    assert passed_strides((1, 3), (1, 2), 32) == [5, 2]
    assert passed_strides((1, 3), (1, 2), 0) == [16, 2]
    assert passed_strides((1, 3), (1, 2**30), 4) == [2**31 - 16, 2**30]


def test_it_is_told_to_the_compiler_and_in_errors() -> None:
    assert TensorLayout(1, 16, True).cpp == "::cudakit::tensor_layout<1, 16, true, int>"
    assert TensorLayout(wide=True).cpp == "::cudakit::tensor_layout<-1, 1, false, long long>"
    assert TensorLayout().shown == "elements side by side along no axis"
    shown = "elements side by side along axis 0, address and pitches multiples of 16 bytes"
    assert TensorLayout(0, 16).shown == shown
    assert TensorLayout(0, 16, True).shown == f"{shown}, as are its rows"
