"""Filters of images against SciPy, and, of bytes, against what OpenCV gave, in both places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from support.opencv import KERNEL, answers, image
from support.places import to_host
from support.tiers import in_tiers, slow

import cudakit as ck
from cudakit import ops

MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]
OPENCV = answers()
#: In one go: ndimage.sobel goes along one axis after the other, with `cval` beyond what the first left.
SOBEL = np.outer([-1, 0, 1], [1, 2, 1]).astype("f8")
DTYPES = ["u1", "u2", "f2", "f4", "f8"]
#: Two blocks of rows and columns and a ragged third, aligned and not.
SHAPES = [(70, 544), (41, 130), (7, 7)]


def some(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype)
    found = np.random.default_rng(sum(shape)).integers(0, 256, shape)
    return (found / 8 - 12 if kind.kind == "f" else found * (257 if kind == np.uint16 else 1)).astype(kind)


def close(got: Any, want: np.ndarray, levels: float = 1e-3) -> None:
    """Equal to a float64 reference but for what sums of the window's pixels round; integers may be `levels` off."""
    found = to_host(got)
    if found.dtype.kind in "iu":
        limits = np.iinfo(found.dtype)
        lower = np.clip(np.floor(want + 0.5 - levels), limits.min, limits.max)
        upper = np.clip(np.floor(want + 0.5 + levels), limits.min, limits.max)
        assert ((found >= lower) & (found <= upper)).all()
    else:
        eps = float(np.finfo(found.dtype).eps)
        np.testing.assert_allclose(found.astype("f8"), want, rtol=4 * eps, atol=50 * max(eps, 1e-16) * 64)


def filters(mode: str, value: float) -> list[tuple[str, Callable[..., Any], Callable[[np.ndarray], np.ndarray]]]:
    """An op of each kind of window, small and large, and SciPy's."""
    told = {"mode": mode, "cval": value}
    kernel = np.array([[0.25, -0.5, 1], [0.125, 0, 0.5], [-1, 0.75, 0.0625]])
    wide = np.linspace(-0.1, 0.12, 27).reshape(3, 9)
    ours = {"mode": mode, "value": value}
    weights = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256
    return [
        (
            "gaussian",
            lambda x, **k: ops.gaussian_blur(x, 5, **ours, **k),
            lambda x: ndimage.correlate(x, weights, **told),
        ),
        (
            "sigma",
            lambda x, **k: ops.gaussian_blur(x, None, (0.7, 0.4), **ours, **k),
            lambda x: ndimage.gaussian_filter(x, (0.7, 0.4), **told),
        ),
        (
            "box",
            lambda x, **k: ops.box_blur(x, (3, 7), **ours, **k),
            lambda x: ndimage.uniform_filter(x, (3, 7), **told),
        ),
        ("down", lambda x, **k: ops.sobel(x, 0, **ours, **k), lambda x: ndimage.correlate(x, SOBEL, **told)),
        ("right", lambda x, **k: ops.sobel(x, 1, **ours, **k), lambda x: ndimage.correlate(x, SOBEL.T, **told)),
        (
            "length",
            lambda x, **k: ops.sobel(x, **ours, **k),
            lambda x: np.hypot(ndimage.correlate(x, SOBEL, **told), ndimage.correlate(x, SOBEL.T, **told)),
        ),
        (
            "convolve",
            lambda x, **k: ops.convolve2d(x, kernel, **ours, **k),
            lambda x: ndimage.convolve(x, kernel, **told),
        ),
        ("median", lambda x, **k: ops.median3(x, **ours, **k), lambda x: ndimage.median_filter(x, 3, **told)),
        ("erode", lambda x, **k: ops.erode(x, (3, 5), **ours, **k), lambda x: ndimage.grey_erosion(x, (3, 5), **told)),
        (
            "dilate",
            lambda x, **k: ops.dilate(x, (5, 3), **ours, **k),
            lambda x: ndimage.grey_dilation(x, (5, 3), **told),
        ),
        (
            "far convolve",
            lambda x, **k: ops.convolve2d(x[:, :30], wide, **ours, **k),
            lambda x: ndimage.convolve(x[:, :30], wide, **told),
        ),
        (
            "far erode",
            lambda x, **k: ops.erode(x[:, :30], (1, 9), **ours, **k),
            lambda x: ndimage.grey_erosion(x[:, :30], (1, 9), **told),
        ),
    ]


def of_integers(name: str, dtype: str) -> float:
    """How far integers may be off: weights of bytes are OpenCV's, rounded to 1/256; sums of uint16 are float32."""
    return 2.0 if (name, dtype) == ("sigma", "u1") else 0.05 if dtype == "u2" else 1e-3


NAMES = [name for name, *_ in filters("reflect", 0)]


@in_tiers(
    "name, mode, dtype",
    NAMES,
    MODES,
    ["f4", "u1"],
    quick=lambda name, mode, dtype: dtype == "f4" and mode == ("reflect", "constant")[NAMES.index(name) % 2],
    also=lambda name, mode, dtype: dtype == "f4" and mode == ("reflect", "constant")[NAMES.index(name) % 2],
)
def test_modes(stream: Any, xp: Any, name: str, mode: str, dtype: str) -> None:
    own, scipys = next(calls for each, *calls in filters(mode, 3) if each == name)
    host = some((41, 132) if dtype == "f4" else (9, 33), dtype)
    close(own(xp.asarray(host), stream=stream), scipys(host.astype("f8")), of_integers(name, dtype))


#: Of bytes whole blocks, of floats a ragged one; of other pixels each third window, in small and in ragged images.
WHOLE = [
    *((name, "u1", SHAPES[0]) for name in NAMES),
    *((name, "f4", SHAPES[1]) for name in NAMES),
    *((name, ("u2", "f2", "f8")[k % 3], SHAPES[1 if "far" in name else k % 2 + 1]) for k, name in enumerate(NAMES)),
]


@pytest.mark.slow
@in_tiers(
    "name, dtype, shape",
    NAMES,
    DTYPES,
    SHAPES,
    strength=1,
    where=lambda name, dtype, shape: "far" not in name or shape != SHAPES[2],
    # Whole blocks of bytes, a ragged one of floats; of other pixels each third window, as many of each shape.
    also=lambda *case: case in WHOLE,
)
def test_dtypes_and_shapes(stream: Any, xp: Any, name: str, dtype: str, shape: tuple[int, int]) -> None:
    own, scipys = next(calls for each, *calls in filters("mirror", 0) if each == name)
    host = some(shape, dtype)
    close(own(xp.asarray(host), stream=stream), scipys(host.astype("f8")), of_integers(name, dtype))


@pytest.mark.parametrize("name", ["3", "9", "7_0.8", *slow("5", "7", "5_1.3", "11_3.0")])
def test_gaussian_of_bytes_is_opencvs_to_the_bit(stream: Any, xp: Any, name: str) -> None:
    size, _, sigma = name.partition("_")
    got = ops.gaussian_blur(
        xp.asarray(image()), int(size), float(sigma) if sigma else None, mode="mirror", stream=stream
    )
    np.testing.assert_array_equal(to_host(got), OPENCV[f"gaussian_{name}"])


def test_weights_of_bytes_that_are_rounded_to_nothing(stream: Any, xp: Any) -> None:
    host = image()
    for size, sigma in ((3, 0.1), (7, 0.2), (21, 0.2)):  # the middle weighs 256, which is no byte
        np.testing.assert_array_equal(to_host(ops.gaussian_blur(xp.asarray(host), size, sigma, stream=stream)), host)
    got = ops.gaussian_blur(xp.asarray(host), (1, 21), (0.1, 1.0), mode="wrap", stream=stream)
    np.testing.assert_array_equal(
        to_host(got), to_host(ops.gaussian_blur(xp.asarray(host), (1, 7), 1.0, mode="wrap", stream=stream))
    )
    with pytest.raises(ck.ArgumentError, match="smaller than the window"):
        ops.gaussian_blur(xp.asarray(host[:2]), 3, 0.1, stream=stream)


@pytest.mark.slow
def test_bytes_are_opencvs_to_the_bit(stream: Any, xp: Any) -> None:
    x, rgb, told = xp.asarray(image()), xp.asarray(image(shape=(24, 40, 3))), {"mode": "mirror", "stream": stream}
    found = {
        "gaussian_rgb": ops.gaussian_blur(rgb, (3, 5), (1.5, 1.0), mode="nearest", axes=(0, 1), stream=stream),
        "box": ops.box_blur(x, (3, 5), stream=stream),
        "sobel_down": ops.sobel(x, 0, **told),
        "sobel_right": ops.sobel(x, 1, **told),
        "filter": ops.convolve2d(x, KERNEL[::-1, ::-1], **told),
        "median": ops.median3(x, mode="nearest", stream=stream),
        "erode": ops.erode(x, (3, 5), stream=stream),
        "dilate": ops.dilate(x, (3, 5), stream=stream),
    }
    for name, got in found.items():
        assert got.dtype == OPENCV[name].dtype
        np.testing.assert_array_equal(to_host(got), OPENCV[name], err_msg=name)


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_averages_of_what_is_inside(stream: Any, xp: Any, dtype: str) -> None:
    host = some((12, 30), dtype)
    ones = np.ones(host.shape)
    for size in (3, 9):
        of = ndimage.uniform_filter
        want = of(host.astype("f8"), size, mode="constant") / of(ones, size, mode="constant")
        close(ops.box_blur(xp.asarray(host), size, mode="valid", stream=stream), want)
    if dtype == "f4":
        smooth = [
            ndimage.gaussian_filter(each, 1.0, mode="constant", truncate=2.0) for each in (host.astype("f8"), ones)
        ]
        close(ops.gaussian_blur(xp.asarray(host), 5, 1.0, mode="valid", stream=stream), smooth[0] / smooth[1])


@in_tiers(
    "channels, dtype",
    [2, 3, 4, 5],
    ["u1", "f4"],
    strength=1,
    also=lambda channels, dtype: (channels, dtype) in [(2, "f4"), (3, "u1"), (4, "f4"), (5, "u1"), (3, "f4")],
    quick=lambda channels, dtype: (channels, dtype) == (3, "f4"),
)
def test_channels_and_batches(stream: Any, xp: Any, channels: int, dtype: str) -> None:
    host = some((2, 9, 35, channels), dtype)
    want = ndimage.uniform_filter(host.astype("f8"), (1, 3, 5, 1))
    close(ops.box_blur(xp.asarray(host), (3, 5), axes=(-3, -2), stream=stream), want)
    first = np.ascontiguousarray(host.transpose(0, 3, 1, 2))
    close(ops.box_blur(xp.asarray(first), (3, 5), stream=stream), want.transpose(0, 3, 1, 2))
    # A view: channels last, read as channels first.
    seen = xp.asarray(host).transpose(0, 3, 1, 2)
    close(ops.median3(seen, stream=stream), ndimage.median_filter(first.astype("f8"), (1, 1, 3, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_as_many_rows_a_thread_as_of_large_images(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr("cudakit.ops.filters._BUSY", 0)
    # Rows that begin at whole words, and rows that begin anywhere.
    for shape in ((173, 1072), (37, 1131)):
        host = some(shape, dtype)
        for name in ("gaussian", "length", "right", "median"):
            own, scipys = next(calls for each, *calls in filters("reflect", 0) if each == name)
            close(own(xp.asarray(host), stream=stream), scipys(host.astype("f8")))


@pytest.mark.slow
def test_bytes_of_views_that_begin_anywhere(stream: Any, xp: Any) -> None:
    host = some((17, 811), "u1")  # with strips that are inside
    want = ndimage.correlate(host.astype("f8"), np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256)
    for skipped, before in ((1, 3), (2, 2), (3, 1)):
        x, out = (xp.zeros(host.size + 8, "u1") for _ in range(2))
        x[skipped : skipped + host.size] = xp.asarray(host.ravel())
        inside = out[before : before + host.size].reshape(host.shape)
        ops.gaussian_blur(x[skipped : skipped + host.size].reshape(host.shape), 5, out=inside, stream=stream)
        close(inside, want)
        assert not to_host(out[:before]).any()
        assert not to_host(out[before + host.size :]).any()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(3, 1), (1, 5), (5, 3), (7, 7), (5, 7)])
def test_blurs_of_bytes_are_rounded_from_exact_sums(stream: Any, xp: Any, size: tuple[int, int]) -> None:
    host = some((23, 96), "u1")
    host[:9, :40], host[12:, :40] = 255, 0
    x = xp.asarray(host)
    weights = {1: [1], 3: [1, 2, 1], 5: [1, 4, 6, 4, 1]}
    close(ops.box_blur(x, size, stream=stream), ndimage.correlate(host.astype("f8"), np.ones(size)) / np.prod(size))
    if max(size) < 7:
        window = np.outer(weights[size[0]], weights[size[1]])
        want = ndimage.correlate(host.astype("f8"), window) / window.sum()
        np.testing.assert_array_equal(to_host(ops.gaussian_blur(x, size, stream=stream)), np.floor(want + 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 0])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_wide_means(stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, rows: int) -> None:
    monkeypatch.setattr("cudakit.ops.filters._FAR_BUSY", rows << 20)
    host = some((31, 37), dtype)
    for mode in MODES:
        got = ops.box_blur(xp.asarray(host), (31, 9), mode=mode, value=3, stream=stream)
        close(got, ndimage.uniform_filter(host.astype("f8"), (31, 9), mode=mode, cval=3), 0.01)
        got = ops.gaussian_blur(xp.asarray(host), (9, 9), 1.5, mode=mode, value=50, stream=stream)
        weights = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
        want = ndimage.correlate(host.astype("f8"), np.outer(weights, weights) / weights.sum() ** 2, mode=mode, cval=50)
        close(got, want, 2.0)


def test_outputs(stream: Any, xp: Any) -> None:
    host = some((20, 48), "u1")
    want = ndimage.median_filter(host, 3)
    x = xp.asarray(host)
    for out in (xp.zeros((20, 48), "u1"), xp.zeros((20, 96), "u1")[:, ::2], xp.zeros((20, 48), "u2"), x):
        assert ops.median3(x, out=out, stream=stream) is out
        np.testing.assert_array_equal(to_host(out), want)
    assert ops.sobel(xp.zeros((0, 5, 6), "u1"), 1, stream=stream).shape == (0, 5, 6)
    assert ops.erode(xp.zeros((3, 0, 6), "f4"), stream=stream).shape == (3, 0, 6)


def test_nan_stays_in_its_windows(stream: Any, xp: Any) -> None:
    host = some((12, 20), "f4")
    host[5, 7] = np.nan
    for call in (ops.median3, ops.erode, ops.dilate, lambda x, **k: ops.gaussian_blur(x, 3, **k)):
        found = np.isnan(to_host(call(xp.asarray(host), stream=stream)))
        want = np.zeros(host.shape, bool)
        want[4:7, 6:9] = True
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("sigma", [1.0, 0.9, (0.9, 1.2)])
def test_the_window_of_a_sigma(stream: Any, xp: Any, sigma: Any) -> None:
    x = xp.asarray(np.random.default_rng(0).random((20, 30)).astype("f4"))
    size = tuple(2 * int(4 * each + 0.5) + 1 for each in (sigma if isinstance(sigma, tuple) else (sigma, sigma)))
    got, want = (ops.gaussian_blur(x, given, sigma, stream=stream) for given in (None, size))
    np.testing.assert_array_equal(to_host(got), to_host(want))


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((6, 8), "f4")
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("6 × 8 pixels is smaller than the window of 7 × 7", lambda: ops.gaussian_blur(x, 7, stream=stream)),
        ("2 × 8 pixels is smaller", lambda: ops.median3(x[:2], stream=stream)),
        ("sigma is a number above 0, got 0", lambda: ops.gaussian_blur(x, 3, 0, stream=stream)),
        ("sigma is a number above 0, got nan", lambda: ops.gaussian_blur(x, 3, float("nan"), stream=stream)),
        ("sigma is a number above 0, got inf", lambda: ops.gaussian_blur(x, 3, float("inf"), stream=stream)),
        ("sigma is a number above 0, got 'wide'", lambda: ops.gaussian_blur(x, 3, "wide", stream=stream)),
        ("value takes float32, got None", lambda: ops.sobel(x, value=None, stream=stream)),  # type: ignore[arg-type]
        ("axis is 0", lambda: ops.sobel(x, True, stream=stream)),
        ("kernel is no matrix of numbers", lambda: ops.convolve2d(x, "kernel", stream=stream)),
        ("6 × 2 pixels is smaller", lambda: ops.median3(x[:, :2], stream=stream)),
        ("give size, sigma or both", lambda: ops.gaussian_blur(x, stream=stream)),
        ("size 4 must be odd", lambda: ops.box_blur(x, 4, stream=stream)),
        ("size is a number from 1 up, got 0", lambda: ops.erode(x, 0, stream=stream)),
        (r"size \(2, 3\) must be odd", lambda: ops.convolve2d(x, np.ones((2, 3)), stream=stream)),
        ("kernel has 1 dimensions", lambda: ops.convolve2d(x, np.ones(3), stream=stream)),
        ("mode 'valid'; expected one of constant", lambda: ops.sobel(x, mode="valid", stream=stream)),
        ("mode 'replicate'; expected one of", lambda: ops.box_blur(x, 3, mode="replicate", stream=stream)),
        ("axis is 0", lambda: ops.sobel(x, 2, stream=stream)),
        (r"axes \(0, 2\)", lambda: ops.box_blur(x, 3, axes=(0, 2), stream=stream)),
        (r"axes \(1, 0\) must be two", lambda: ops.box_blur(x, 3, axes=(1, 0), stream=stream)),
        ("image has dtype int64; images are of uint8", lambda: ops.median3(x.astype("i8"), stream=stream)),
        ("out has shape", lambda: ops.median3(x, out=xp.zeros((6, 7), "f4"), stream=stream)),
        ("out has dtype", lambda: ops.median3(x, out=xp.zeros((6, 8), "u1"), stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    corner = xp.asarray(some((64, 96), "u1"))
    for dtype, shape in (("u1", (2, 32_768, 40_000)), ("u1", (1, 32_768, 66_000)), ("f4", (2, 32_768, 33_001))):
        x = xp.zeros(shape, dtype)
        x[-1, -64:, -96:] = corner
        for call in (ops.gaussian_blur, ops.box_blur):
            for size in (5, 9):
                want = call(corner.astype(dtype), size, stream=stream)
                assert (call(x, size, stream=stream)[-1, -32:, -48:] == want[-32:, -48:]).all()
        half = ops.resize(x, (shape[1] // 2, shape[2] // 2), stream=stream)
        if shape[2] % 2 == 0:
            assert (half[-1, -16:, -24:] == ops.resize(corner.astype(dtype), (32, 48), stream=stream)[-16:, -24:]).all()
        del x, half
