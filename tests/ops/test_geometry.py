"""Images on other grids against SciPy and what OpenCV gave; gray levels against Pillow and OpenCV, in both places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from support.opencv import MATRIX, answers, image
from support.places import to_host
from support.tiers import in_tiers, slow

import cudakit as ck
from cudakit import ops
from cudakit.streams.witnesses import Witness, Work, witnessing

OPENCV = answers()
MODES = {
    "reflect": "reflect",
    "mirror": "mirror",
    "nearest": "nearest",
    "wrap": "grid-wrap",
    "constant": "grid-constant",
}


@in_tiers(
    "method, shape",
    ["linear", "nearest"],
    [(12, 20), (48, 80), (17, 33), (31, 50)],
    quick=lambda method, shape: shape == (17, 33) or (method, shape) == ("linear", (12, 20)),
)
def test_resize_is_opencvs(stream: Any, xp: Any, method: str, shape: tuple[int, int]) -> None:
    for dtype in ("uint8", "float32"):
        want = OPENCV[f"resize_{method}_{dtype}_{shape[0]}"]
        got = to_host(ops.resize(xp.asarray(image(dtype)), shape, method=method, stream=stream))
        assert got.dtype == want.dtype
        if method == "nearest":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got.astype("f8"), want, rtol=2e-6, atol=1 if dtype == "uint8" else 1e-4)


@pytest.mark.parametrize("dtype", ["u1", "f4", *slow("u2", "f2", "f8")])
def test_resize_of_dtypes_channels_and_batches(stream: Any, xp: Any, dtype: str) -> None:
    host = np.random.default_rng(1).integers(0, 200, (2, 13, 70, 3)).astype(dtype)
    rows, columns = 29, 41
    places = [(np.arange(m) + 0.5) * n / m - 0.5 for n, m in ((13, rows), (70, columns))]
    grid = np.meshgrid(*places, indexing="ij")
    want = np.empty((2, rows, columns, 3))
    for n in range(2):
        for c in range(3):
            want[n, :, :, c] = ndimage.map_coordinates(host[n, :, :, c].astype("f8"), grid, order=1, mode="nearest")
    if np.dtype(dtype).kind == "u":
        want = np.floor(want + 0.5)
    tolerance = {"u1": 1, "u2": 1, "f2": 0.1, "f4": 1e-4, "f8": 1e-10}[dtype]
    for seen, to_first in ((xp.asarray(host), False), (xp.asarray(host.transpose(0, 3, 1, 2)), True)):
        got = ops.resize(seen, (rows, columns), axes=(-2, -1) if to_first else (1, 2), stream=stream)
        expected = want.transpose(0, 3, 1, 2) if to_first else want
        np.testing.assert_allclose(to_host(got).astype("f8"), expected, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_half_and_twice_are_as_other_sizes(stream: Any, xp: Any) -> None:
    host = np.random.default_rng(4).integers(0, 256, (2, 90, 272))
    for shape in ((45, 136), (180, 544)):
        # Pixels of three channels go the common way.
        three = np.repeat(host[..., None], 3, -1).astype("f8")
        want = to_host(ops.resize(xp.asarray(three), shape, axes=(1, 2), stream=stream))[..., 0]
        for dtype in ("u1", "u2", "f2", "f4", "f8"):
            got = to_host(ops.resize(xp.asarray(host.astype(dtype)), shape, stream=stream))
            if dtype[0] == "u":
                np.testing.assert_array_equal(got, np.floor(want + 0.5))
            else:
                np.testing.assert_allclose(got.astype("f8"), want, rtol=1e-3 if dtype == "f2" else 1e-7)


def test_bytes_in_words_are_as_other_bytes(stream: Any, xp: Any) -> None:
    """Read as words where they lie for it; with three channels, or of a view, one by one."""
    random = np.random.default_rng(11)
    for height, width, rows, columns in (
        (12, 40, 9, 30),
        (9, 37, 20, 41),
        (16, 33, 5, 17),
        (6, 2, 7, 3),
        (4, 5, 3, 131),
        (40, 1, 31, 1),
        (40, 48, 30, 40),  # tiles in shared memory
        (50, 528, 67, 304),
        (70, 16, 35, 8),
        (33, 32, 20, 512),
    ):
        host = random.integers(0, 256, (4, height, width)).astype("u1")
        got = to_host(ops.resize(xp.asarray(host), (rows, columns), stream=stream))
        three = xp.asarray(np.repeat(host[..., None], 3, -1))
        np.testing.assert_array_equal(
            got, to_host(ops.resize(three, (rows, columns), axes=(1, 2), stream=stream))[..., 0]
        )
        place = [(np.arange(m) + 0.5) * n / m - 0.5 for n, m in ((height, rows), (width, columns))]
        grid = np.meshgrid(*place, indexing="ij")
        for one, of in zip(got, host, strict=True):
            want = ndimage.map_coordinates(of.astype("f8"), grid, order=1, mode="nearest")
            assert np.abs(one - want).max() < 0.5 + 0.01  # 15 bits of 255


class Kernels(Witness):
    """Keeps the names of the kernels that are launched."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def begin(self, work: Work) -> None:
        if work.kind == "kernel":
            self.names.append(work.name)

    def end(self, work: Work, begun: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("dtype", "size", "shape", "wanted"),
    [
        ("u1", (6, 32), (3, 16), "halved<256>"),
        ("u1", (6, 16), (3, 8), "halved<256>"),
        ("u1", (6, 24), (3, 12), "resized"),  # no eights of columns
        ("u1", (6, 32), (3, 32), "resized_bytes<4, 9>"),
        ("u1", (6, 32), (6, 16), "resized_bytes<4, 9>"),
        ("u1", (7, 32), (3, 32), "resized"),  # more than two rows of the image to a row
        ("f4", (6, 32), (3, 16), "resized"),  # means of bytes alone
        ("u1", (3, 16), (6, 32), "doubled<unsigned char, float, 2>"),
        ("f4", (3, 16), (6, 32), "doubled<float, float, 2>"),
        ("u1", (3, 12), (6, 24), "resized"),  # a thread takes eight bytes
        ("f4", (3, 15), (6, 30), "resized"),
        ("f4", (3, 16), (6, 31), "resized"),
        ("f4", (3, 16), (5, 32), "resized"),
    ],
)
def test_half_and_twice_have_kernels_of_their_own(
    stream: Any, xp: Any, dtype: str, size: tuple[int, int], shape: tuple[int, int], wanted: str
) -> None:
    """Those are the quickest; what they cannot take goes the common way, with the same result."""
    host = np.random.default_rng(2).integers(0, 200, size).astype(dtype)
    heard = Kernels()
    with witnessing(heard):
        got = ops.resize(xp.asarray(host), shape, stream=stream)
    (name,) = heard.names
    assert name == wanted or (wanted == "resized" and name.startswith("resized<"))
    grid = np.meshgrid(*[(np.arange(m) + 0.5) * n / m - 0.5 for n, m in zip(size, shape, strict=True)], indexing="ij")
    want = ndimage.map_coordinates(host.astype("f8"), grid, order=1, mode="nearest")
    np.testing.assert_allclose(to_host(got).astype("f8"), want, rtol=1e-6, atol=0.5 if dtype == "u1" else 1e-6)


def test_which_arrays_the_common_way_reads_as_words(stream: Any, xp: Any) -> None:
    """Bytes that lie at words, of one channel, while no more than twice as wide: the last template argument."""
    bytes_, heard = xp.zeros((4, 40), "u1"), Kernels()
    with witnessing(heard):
        ops.resize(bytes_, (3, 30), stream=stream)
        ops.resize(bytes_, (3, 20), stream=stream)
        ops.resize(bytes_, (3, 19), stream=stream)  # more than twice as wide
        ops.resize(xp.zeros((3, 21), "u1"), (2, 30), stream=stream)  # 63 bytes are no words
        ops.resize(bytes_.reshape(4, 10, 4), (3, 30), axes=(0, 1), stream=stream)
        ops.resize(xp.zeros((4, 40), "f4"), (3, 30), stream=stream)
        ops.resize(bytes_, (3, 30), method="nearest", stream=stream)
        ops.resize(bytes_.reshape(-1)[1:157].reshape(4, 39), (3, 30), stream=stream)  # at no multiple of 16
    words = [name.rpartition(", ")[2].strip("> ") for name in heard.names if name.startswith("resized<")]
    assert len(words) == 8
    assert [word in ("true", "1") for word in words] == [True, True, *[False] * 6]


def test_resize_to_the_same_and_to_one(stream: Any, xp: Any) -> None:
    host = image(np.float32)
    np.testing.assert_array_equal(to_host(ops.resize(xp.asarray(host), host.shape, stream=stream)), host)
    got = to_host(ops.resize(xp.asarray(host), (1, 1), stream=stream))
    np.testing.assert_allclose(got, host[11:13, 19:21].mean(keepdims=True), rtol=1e-6)
    out = xp.zeros((12, 40), "f4")[:, ::2]
    assert ops.resize(xp.asarray(host), (12, 20), out=out, stream=stream) is out
    np.testing.assert_allclose(to_host(out), OPENCV["resize_linear_float32_12"], rtol=2e-6, atol=1e-4)


@in_tiers(
    "mode, method, dtype",
    list(MODES),
    ["linear", "nearest"],
    ["f4", "f8", "u1"],
    quick=lambda mode, method, dtype: (method, dtype) == ("linear", "f4"),
)
def test_warp_is_scipys(stream: Any, xp: Any, mode: str, method: str, dtype: str) -> None:
    # SciPy has y first, and takes points of the result to points of the image.
    matrix = MATRIX + np.array([[0, 0, 0.013], [0, 0, 0.017]])  # no point in the middle between two pixels
    swapped, order, host = matrix[::-1][:, [1, 0, 2]], int(method == "linear"), image(dtype)
    want = ndimage.affine_transform(
        host.astype("f8"), swapped[:, :2], swapped[:, 2], (30, 50), order=order, mode=MODES[mode], cval=7
    )
    told: dict[str, Any] = {"method": method, "mode": mode, "value": 7, "stream": stream}
    got = to_host(ops.warp_affine(xp.asarray(host), matrix, (30, 50), inverse=True, **told))
    tolerance = {"f4": 2e-4, "f8": 1e-10, "u1": 0.5 + 1e-4 if order else 0}[dtype]
    np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=tolerance)


def test_warp_goes_forward_as_opencvs(stream: Any, xp: Any) -> None:
    for dtype in ("uint8", "float32"):
        got = ops.warp_affine(xp.asarray(image(dtype)), MATRIX, mode="nearest", stream=stream)
        # 1/32 of a pixel, of pixels that are 255 apart at most, in two directions.
        assert np.abs(to_host(got).astype("f8") - OPENCV[f"warp_{dtype}"]).max() < 2 * 255 / 64 + 1
    same = ops.warp_affine(xp.asarray(image()), [[1, 0, 3], [0, 1, -2]], mode="wrap", stream=stream)
    np.testing.assert_array_equal(to_host(same), np.roll(image(), (-2, 3), (0, 1)))


def test_warp_of_channels(stream: Any, xp: Any) -> None:
    host = image(shape=(24, 40, 3))
    got = to_host(ops.warp_affine(xp.asarray(host), MATRIX, axes=(0, 1), stream=stream))
    for c in range(3):
        one = ops.warp_affine(xp.asarray(np.ascontiguousarray(host[..., c])), MATRIX, stream=stream)
        np.testing.assert_array_equal(got[..., c], to_host(one))


@pytest.mark.parametrize("dtype", ["u1", "f4", *slow("u2", "f2", "f8")])
def test_gray(stream: Any, xp: Any, dtype: str) -> None:
    host = image(shape=(24, 41, 3))
    want = np.asarray(Image.fromarray(host).convert("L"))
    assert np.abs(want.astype(int) - np.tensordot(host, (0.299, 0.587, 0.114), 1)).max() <= 0.51
    given = host.astype(dtype)
    for seen, axis in (
        (xp.asarray(given), -1),
        (xp.asarray(given.transpose(2, 0, 1)), 0),
        (xp.asarray(given)[:, ::2], 2),
    ):
        got = to_host(ops.rgb_to_gray(seen, axis, stream=stream))
        expected = want[:, : 2 * got.shape[1] : 2] if got.shape[1] < 41 else want
        assert got.dtype == given.dtype
        if dtype in ("u1", "u2"):
            np.testing.assert_array_equal(got, expected)
        else:
            assert np.abs(got - expected).max() < 0.52 + 0.1 * (dtype == "f2")
    opencv = to_host(ops.rgb_to_gray(xp.asarray(image(shape=(24, 40, 3))), stream=stream)).astype(int)
    assert np.abs(opencv - OPENCV["gray"]).max() <= 1


def test_equalize_is_opencvs_to_the_bit(stream: Any, xp: Any) -> None:
    host = image()
    np.testing.assert_array_equal(to_host(ops.equalize(xp.asarray(host), stream=stream)), OPENCV["equalize"])
    batch = np.stack([host, np.full_like(host, 17), 255 - host, np.roll(host, 5)])[:, :, :39]
    got = to_host(ops.equalize(xp.asarray(batch), stream=stream))
    for each, want in zip(got, batch, strict=True):
        np.testing.assert_array_equal(each, to_host(ops.equalize(xp.asarray(want), stream=stream)))
    np.testing.assert_array_equal(got[1], batch[1])
    large = np.random.default_rng(0).integers(30, 90, (150, 331)).astype("u1")
    found = to_host(ops.equalize(xp.asarray(large), stream=stream))
    counts = np.bincount(large.ravel(), minlength=256).cumsum() - (large == 30).sum()
    scale = np.float32(255) / np.float32(large.size - (large == 30).sum())
    np.testing.assert_array_equal(found, np.rint(np.float32(counts.clip(0)) * scale)[large].astype("u1"))


def test_nothing(stream: Any, xp: Any) -> None:
    assert ops.resize(xp.zeros((0, 4, 5), "u1"), (2, 2), stream=stream).shape == (0, 2, 2)
    assert ops.equalize(xp.zeros((3, 0, 5), "u1"), stream=stream).shape == (3, 0, 5)
    assert ops.rgb_to_gray(xp.zeros((0, 3), "f4"), stream=stream).shape == (0,)


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((6, 8), "f4")
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("rows is a number from 1 up, got 0", lambda: ops.resize(x, (0, 4), stream=stream)),
        ("shape is", lambda: ops.resize(x, 4, stream=stream)),  # type: ignore[arg-type]
        (
            "method 'cubic'; expected one of linear, nearest",
            lambda: ops.resize(x, (3, 4), method="cubic", stream=stream),
        ),
        ("an image of 0 × 8 pixels has none", lambda: ops.resize(x[:0], (3, 4), stream=stream)),
        ("image has dtype int32; images are of", lambda: ops.resize(x.astype("i4"), (3, 4), stream=stream)),
        ("has no inverse", lambda: ops.warp_affine(x, [[1, 2, 0], [2, 4, 0]], stream=stream)),
        ("matrix is of 2 × 3", lambda: ops.warp_affine(x, np.eye(3), stream=stream)),
        ("matrix is of 2 × 3 finite", lambda: ops.warp_affine(x, np.full((2, 3), np.nan), stream=stream)),
        ("matrix is not of numbers", lambda: ops.warp_affine(x, "matrix", stream=stream)),
        ("an image of 0 × 8 pixels has none", lambda: ops.warp_affine(x[:0], MATRIX, stream=stream)),
        ("an image of 6 × 0 pixels has none", lambda: ops.warp_affine(x[:, :0], MATRIX, (2, 3), stream=stream)),
        ("columns is a number from 1 up, got 0", lambda: ops.resize(x, (4, 0), stream=stream)),
        ("shape is", lambda: ops.resize(x, (4, 5, 6), stream=stream)),  # type: ignore[arg-type]
        ("image has dtype int32; images", lambda: ops.rgb_to_gray(xp.zeros((2, 3), "i4"), stream=stream)),
        ("image has dtype int32; images", lambda: ops.warp_affine(x.astype("i4"), MATRIX, stream=stream)),
        ("mode 'valid'", lambda: ops.warp_affine(x, MATRIX, mode="valid", stream=stream)),
        ("image has 8 channels", lambda: ops.rgb_to_gray(x, stream=stream)),
        ("levels are of uint8", lambda: ops.equalize(x, stream=stream)),
        (r"give \(…, height, width\)", lambda: ops.equalize(xp.zeros(5, "u1"), stream=stream)),
        ("out has shape", lambda: ops.resize(x, (3, 4), out=xp.zeros((4, 3), "f4"), stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()
