"""Copies, transpositions, flips, rolls and pads against NumPy, to the bit, in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.views import SIZES, View, bits, check_bits, few, views

import cudakit as ck
from cudakit.ops import arrange, copy, flip, pad, roll, transpose

#: Around the 16 bytes of a thread, a block's 4096 bytes of float32, and a large odd number.
LENGTHS = [0, 1, 3, 4, 5, 1023, 1024, 1025, 50_001]
#: Around a tile of 64 × 64, whole tiles, and rows that are not aligned.
SQUARES = [(1, 1), (1, 70), (63, 65), (64, 64), (128, 192), (129, 200), (8, 300)]
F4 = np.dtype("f4")


@pytest.mark.slow
@few
@given(view=views())
def test_copy_of_any_view(stream: Any, xp: Any, view: View) -> None:
    check_bits(copy(view.on(xp), stream=stream), view.host())


@pytest.mark.slow
@few
@given(view=views(), data=st.data())
def test_transpose_of_any_view_in_any_order(stream: Any, xp: Any, view: View, data: st.DataObject) -> None:
    host = view.host()
    order = tuple(data.draw(st.permutations(range(host.ndim))))
    check_bits(transpose(view.on(xp), order, stream=stream), host.transpose(order))


@pytest.mark.slow
@few
@given(view=views(), data=st.data())
def test_flip_of_any_view(stream: Any, xp: Any, view: View, data: st.DataObject) -> None:
    host = view.host()
    axes = tuple(d for d in range(host.ndim) if data.draw(st.booleans()))
    check_bits(flip(view.on(xp), axes, stream=stream), np.flip(host, axes))


@pytest.mark.slow
@few
@given(view=views(), data=st.data())
def test_roll_of_any_view(stream: Any, xp: Any, view: View, data: st.DataObject) -> None:
    host = view.host()
    axes = (
        data.draw(st.none() | st.lists(st.integers(-host.ndim, host.ndim - 1), max_size=3).map(tuple))
        if host.ndim
        else None
    )
    shifts: Any = data.draw(st.integers(-100, 100))
    if axes is not None and data.draw(st.booleans()):
        shifts = tuple(data.draw(st.integers(-100, 100)) for _ in axes)
    check_bits(roll(view.on(xp), shifts, axes, stream=stream), np.roll(host, shifts, axes))


@pytest.mark.slow
@few
@given(view=views(), mode=st.sampled_from(["constant", "edge", "reflect", "wrap"]), data=st.data())
def test_pad_of_any_view(stream: Any, xp: Any, view: View, mode: Any, data: st.DataObject) -> None:
    host = view.host()
    width = st.integers(0, 9) if mode == "constant" or 0 not in host.shape else st.just(0)
    widths = [(data.draw(width), data.draw(width)) for _ in host.shape]
    given = {"constant_values": 5} if mode == "constant" else {}
    want = np.pad(host, widths or 0, mode, **given)  # type: ignore[call-overload]
    check_bits(pad(view.on(xp), widths or 0, mode, 5, stream=stream), want)


@in_tiers(
    "shape, dtype",
    SQUARES,
    SIZES,
    strength=1,
    also=lambda shape, dtype: dtype in ("i1", F4) or shape == (129, 200),
    quick=lambda shape, dtype: shape in ((1, 70), (63, 65)) and dtype == F4,
)
def test_transpose_by_tiles(stream: Any, xp: Any, shape: tuple[int, int], dtype: np.dtype) -> None:
    host = bits((3, *shape), dtype)
    x = xp.asarray(host)
    check_bits(transpose(x[0], stream=stream), host[0].T)
    check_bits(transpose(x, (0, 2, 1), stream=stream), host.transpose(0, 2, 1))
    check_bits(transpose(x, (2, 0, 1), stream=stream), host.transpose(2, 0, 1))
    check_bits(transpose(x[:, :, 1:], (2, 1, 0), stream=stream), host[:, :, 1:].transpose(2, 1, 0))


@pytest.mark.parametrize(
    "order", [(1, 0, 3, 2), *slow((3, 1, 0, 2), (0, 3, 2, 1), (2, 1, 0, 3), (1, 3, 0, 2))], ids=str
)
def test_transpose_of_four_dimensions(stream: Any, xp: Any, order: tuple[int, ...]) -> None:
    host = bits((3, 4, 70, 20), F4)
    x = xp.asarray(host)
    check_bits(transpose(x, order, stream=stream), host.transpose(order))
    check_bits(transpose(x[::-1, :, 1:], order, stream=stream), host[::-1, :, 1:].transpose(order))


@in_tiers(
    "channels, dtype",
    [2, 3, 4, 7],
    SIZES,
    strength=1,
    also=lambda channels, dtype: dtype in ("i1", F4) or channels == 3,
    quick=lambda channels, dtype: (channels, dtype) in [(3, "i1"), (4, F4)],
)
def test_transpose_of_pixels_and_planes(stream: Any, xp: Any, channels: int, dtype: np.dtype) -> None:
    for length in (7, 100, 5003):
        host = bits((2, length, channels), dtype)
        pixels, planes = xp.asarray(host), xp.asarray(np.ascontiguousarray(host.transpose(0, 2, 1)))
        check_bits(transpose(pixels, (0, 2, 1), stream=stream), host.transpose(0, 2, 1))
        check_bits(transpose(planes, (0, 2, 1), stream=stream), host)
        check_bits(transpose(planes[1, :, 1:], stream=stream), host[1, 1:])
        check_bits(transpose(pixels[0, 1:], stream=stream), host[0, 1:].T)


@pytest.mark.parametrize("length", LENGTHS)
def test_sizes(stream: Any, xp: Any, length: int) -> None:
    host = bits(length, F4)
    x = xp.asarray(host)
    check_bits(copy(x, stream=stream), host)
    check_bits(flip(x, stream=stream), host[::-1])
    check_bits(roll(x, 7, stream=stream), np.roll(host, 7))
    check_bits(pad(x, (3, 2), stream=stream), np.pad(host, (3, 2)))


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_neighbours_that_start_at_any_element(stream: Any, xp: Any, start: int, dtype: np.dtype) -> None:
    host = bits(5001, dtype)
    x, out = xp.asarray(host), xp.zeros(5001, dtype)
    check_bits(copy(x[start:], stream=stream), host[start:])
    copy(x[start:], out=out[: 5001 - start], stream=stream)
    check_bits(out[: 5001 - start].copy(), host[start:])
    copy(x[: 5001 - start], out=out[start:], stream=stream)
    check_bits(out[start:].copy(), host[: 5001 - start])
    check_bits(flip(x[start:], stream=stream), host[start:][::-1])


@pytest.mark.parametrize("dtype", [SIZES[1], *slow(SIZES[0], *SIZES[2:])], ids=str)
def test_rows_that_break_within_a_load(stream: Any, xp: Any, dtype: np.dtype) -> None:
    host = bits((3, 41), dtype)
    for x, rows in ((xp.asarray(host), host), (xp.asarray(host)[:, ::-1], host[:, ::-1])):
        for shift in (1, 3, 16, 38):
            check_bits(roll(x, shift, 1, stream=stream), np.roll(rows, shift, 1))
        check_bits(flip(x[:, 1:], 1, stream=stream), rows[:, 1:][:, ::-1])
        for width in ((0, 1), (2, 21), (18, 3)):
            check_bits(pad(x, ((0, 0), width), stream=stream), np.pad(rows, ((0, 0), width)))
            for mode in ("edge", "reflect", "wrap"):
                check_bits(pad(x, ((1, 0), width), mode, stream=stream), np.pad(rows, ((1, 0), width), mode))


@pytest.mark.parametrize("dtype", [F4, *slow(np.dtype("f2"))], ids=str)
def test_out_of_any_strides(stream: Any, xp: Any, dtype: np.dtype) -> None:
    host = bits((40, 50), dtype)
    x = xp.asarray(host)
    for out in (xp.zeros((50, 40), dtype).T, xp.zeros((80, 100), dtype)[::2, ::-2], xp.zeros((40, 51), dtype)[:, 1:]):
        assert copy(x, out=out, stream=stream) is out
        check_bits(xp.ascontiguousarray(out), host)
        flip(x, 0, out=out, stream=stream)
        check_bits(xp.ascontiguousarray(out), host[::-1])
        transpose(x[:, :40], out=out[:, :40], stream=stream)
        check_bits(xp.ascontiguousarray(out[:, :40]), host[:, :40].T)
        roll(x, 3, 1, out=out, stream=stream)
        check_bits(xp.ascontiguousarray(out), np.roll(host, 3, 1))
        assert roll(x, 77, out=out, stream=stream) is out
        check_bits(xp.ascontiguousarray(out), np.roll(host, 77))
        pad(x[:-2, :-3], ((1, 1), (0, 3)), "edge", out=out, stream=stream)
        check_bits(xp.ascontiguousarray(out), np.pad(host[:-2, :-3], ((1, 1), (0, 3)), "edge"))


def test_pad_values_keep_their_sign_and_dtype(stream: Any, xp: Any) -> None:
    x = xp.ones(3, np.float32)
    assert np.signbit(to_host(pad(x, 1, value=-0.0, stream=stream))[[0, -1]]).all()
    assert not np.signbit(to_host(pad(x, 1, value=0.0, stream=stream))).any()
    assert np.isnan(to_host(pad(x, 1, value=np.nan, stream=stream))[[0, -1]]).all()
    check_bits(pad(xp.zeros((0, 2), np.int16), 1, value=-7, stream=stream), np.full((2, 4), -7, np.int16))


def test_roll_adds_up_an_axis_named_twice(stream: Any, xp: Any) -> None:
    host = bits((5, 7), F4)
    check_bits(roll(xp.asarray(host), (1, 2), (0, 0), stream=stream), np.roll(host, (1, 2), (0, 0)))
    check_bits(roll(xp.asarray(host), (1, 2), 0, stream=stream), np.roll(host, (1, 2), 0))
    check_bits(roll(xp.asarray(host), (1, 2), stream=stream), np.roll(host, (1, 2)))


def test_roll_of_what_is_not_contiguous(stream: Any, xp: Any) -> None:
    host = bits((4, 6), F4)
    check_bits(roll(xp.asarray(host).T, 5, stream=stream), np.roll(host.T, 5))
    out = xp.zeros((4, 6), F4).T
    assert roll(xp.asarray(host).T, -2, out=out, stream=stream) is out
    assert (to_host(out).view("i4") == np.roll(host.T, -2).view("i4")).all()
    with pytest.raises(ck.ArgumentError, match="roll: out must be C-contiguous"):
        arrange._roll_job(F4, (4, 6), (24, 4), 1, None, (4, 16))


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
def test_a_copy_to_the_same_array_again_sees_what_changed(stream: Any, xp: Any) -> None:
    host = bits((40, 50), np.int32)
    x, out = xp.array(host), xp.zeros((40, 50), np.int32)
    for _ in range(3):
        assert copy(x, out=out) is out
        check_bits(out, to_host(x))
        x += 1
    x.shape = (50, 40)
    with pytest.raises(ck.ArgumentError, match="out has shape"):
        copy(x, out=out)
    out.shape = (50, 40)
    copy(x, out=out)
    check_bits(out, to_host(x))


def test_bits_are_those_of_another_stream(stream: Any, xp: Any) -> None:
    host = bits((100, 200), F4)
    with ck.using(another(stream)) as other:
        first = to_host(transpose(other.asarray(host)))
    assert first.tobytes() == to_host(transpose(xp.asarray(host), stream=stream)).tobytes()


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), np.float32)
    wrong = [
        ("axes", lambda: transpose(x, (0, 2), stream=stream)),
        ("axes", lambda: transpose(x, (0, 0), stream=stream)),
        ("name 1 of 2", lambda: transpose(x, (0,), stream=stream)),
        ("axis 2", lambda: flip(x, 2, stream=stream)),
        ("axis must be", lambda: flip(x, 0.5, stream=stream)),  # type: ignore[arg-type]
        ("axis 5", lambda: roll(x, 1, 5, stream=stream)),
        ("2 shifts", lambda: roll(x, (1, 2), (0, 1, 0), stream=stream)),
        ("shift is None", lambda: roll(x, None, stream=stream)),  # type: ignore[arg-type]
        ("mode 'mode'; expected one of constant", lambda: pad(x, 1, "mode", stream=stream)),
        ("negative", lambda: pad(x, ((1, -1), (0, 0)), stream=stream)),
        ("does not fit", lambda: pad(x, ((1, 1), (1, 1), (1, 1)), stream=stream)),
        ("width", lambda: pad(x, 1.5, stream=stream)),
        ("is empty", lambda: pad(x[:0], 1, "edge", stream=stream)),
        ("linear_ramp is of real numbers", lambda: pad(x.astype("c8"), 1, "linear_ramp", stream=stream)),
        (r"elements of \|V3 are 3 bytes", lambda: flip(np.zeros(4, "V3"))),
        ("width", lambda: pad(x, np.ones((1, 1, 2), int), stream=stream)),
        ("width", lambda: pad(x, ((1, 2), (3,)), stream=stream)),
        ("value", lambda: pad(x.astype(np.int8), 1, value=300, stream=stream)),
        ("out has shape", lambda: copy(x, out=x[:2], stream=stream)),
        ("out has dtype", lambda: copy(x, out=xp.zeros((4, 6), "i4"), stream=stream)),
        ("not an array", lambda: copy([1, 2], stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    size = (1 << 20) * 2049
    x = xp.arange(size, dtype=np.int64).astype(np.int8)
    assert (copy(x, stream=stream)[-5:] == x[-5:]).all()
    rolled = roll(x, 3, stream=stream)
    assert (rolled[:3] == x[-3:]).all()
    assert (rolled[3:] == x[:-3]).all()
    del rolled
    flipped = flip(x, stream=stream)
    assert (flipped == x[::-1]).all()
    del flipped
    tall = x.reshape(1 << 20, 2049)
    turned = transpose(tall, stream=stream)
    assert (turned[:, ::4097] == tall.T[:, ::4097]).all()
