"""The image and histogram templates against NumPy, on any stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.demo import blur_reference, from_uint8, gray_reference, histogram_reference, tolerance

#: Around the blur's tile of 16 rows of 32, around a block of 256, and a large odd one.
SHAPES = [
    (1, 1),
    (1, 7),
    (257, 1),
    (5, 3),
    (15, 31),
    (16, 32),
    (17, 33),
    (33, 17),
    (1, 255),
    (1, 256),
    (1, 257),
    (203, 511),
]
DTYPES = [np.dtype(np.uint8), np.dtype(np.float32)]
CONFIGS = [ck.config(1, 32), ck.config(3, (5, 7)), ck.config((2, 3), (8, 4, 2))]


def image_of(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    return from_uint8(np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8), dtype)


def agrees(result: np.ndarray, reference: np.ndarray, terms: int) -> bool:
    difference = np.abs(result.astype(np.float64) - reference.astype(np.float64)).max()
    return bool(difference <= tolerance(result.dtype, terms, reference))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gray(stream: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    rgb = image_of(dtype, *shape, 3)
    kernel = ck.Kernel.from_template("image/gray")
    with ck.using(stream) as xp:
        out = xp.zeros(shape, dtype)
        kernel(stream, ck.cover(out.size), xp.asarray(rgb), out, out.size)
        assert agrees(to_host(out), gray_reference(rgb), terms=3)


def test_gray_in_double(stream: Any) -> None:
    rgb = image_of(np.dtype(np.float64), 7, 9, 3)
    with ck.using(stream) as xp:
        out = xp.zeros((7, 9))
        ck.Kernel.from_template("image/gray")(stream, ck.cover(63), xp.asarray(rgb), out, 63)
        assert agrees(to_host(out), gray_reference(rgb), terms=3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_gray_from_and_to_any_element(stream: Any, start: int, dtype: np.dtype[Any]) -> None:
    pixels = 1001
    flat = image_of(dtype, pixels * 3 + start)
    reference = gray_reference(flat[start:].reshape(pixels, 3))
    with ck.using(stream) as xp:
        for out_start in sorted({0, 1, start}):
            out = xp.zeros(pixels + out_start + 4, dtype)
            view = out[out_start : out_start + pixels]
            kernel = ck.Kernel.from_template("image/gray")
            kernel(stream, ck.cover(pixels), xp.asarray(flat)[start:], view, pixels)
            assert agrees(to_host(view), reference, terms=3)
            assert not to_host(out[out_start + pixels :]).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blur(stream: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    image = image_of(dtype, *shape)
    with ck.using(stream) as xp:
        out = xp.zeros(shape, dtype)
        ck.Kernel.from_template("image/blur")(stream, ck.cover(out.size), xp.asarray(image), out, *shape)
        assert agrees(to_host(out), blur_reference(image), terms=25)


def test_blur_rounds_negative_integers_upward_at_a_half(stream: Any) -> None:
    image = (image_of(np.dtype(np.uint8), 20, 40).astype(np.int16) - 128) * 200
    with ck.using(stream) as xp:
        out = xp.zeros(image.shape, np.int16)
        ck.Kernel.from_template("image/blur")(stream, ck.cover(out.size), xp.asarray(image), out, *image.shape)
        assert (to_host(out) == blur_reference(image)).all()


@pytest.mark.parametrize("tile", [{"TILE_X": 64, "TILE_Y": 8}, {"TILE_Y": 1}], ids=str)
def test_blur_of_other_tiles(stream: Any, tile: dict[str, int]) -> None:
    image = image_of(np.dtype(np.uint8), 37, 131)
    with ck.using(stream) as xp:
        out = xp.zeros_like(xp.asarray(image))
        kernel = ck.Kernel.from_template("image/blur")[tile]
        kernel(stream, ck.cover(out.size), xp.asarray(image), out, *image.shape)
        assert (to_host(out) == blur_reference(image)).all()


@pytest.mark.parametrize("config", CONFIGS, ids=["one warp", "odd block", "two dimensions"])
def test_any_launch_shape_is_right(stream: Any, config: Any) -> None:
    rgb = image_of(np.dtype(np.uint8), 41, 67, 3)
    gray, blur, even = (ck.Kernel.from_template(name) for name in ("image/gray", "image/blur", "histogram/even"))
    with ck.using(stream) as xp:
        grayed, blurred = xp.zeros((41, 67), np.uint8), xp.zeros((41, 67), np.uint8)
        counts = xp.zeros(256, np.uint64)
        gray(stream, config, xp.asarray(rgb), grayed, grayed.size)
        blur(stream, config, grayed, blurred, 41, 67)
        even(stream, config, blurred, counts, blurred.size, 0.0, 256.0)
        reference = blur_reference(gray_reference(rgb))
        assert (to_host(blurred) == reference).all()
        assert (to_host(counts) == np.bincount(reference.ravel(), minlength=256)).all()


@pytest.mark.parametrize("dtype", [*DTYPES, np.dtype(np.int16), np.dtype(np.int64), np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("size", [1, 3, 4, 5, 255, 256, 257, 100_003])
def test_histogram(stream: Any, size: int, dtype: np.dtype[Any]) -> None:
    values = (np.random.default_rng(size).random(size) * 300 - 20).clip(0 if dtype.kind == "u" else None, 255)
    values = values.astype(dtype)
    low, high = 10.25, 200.75  # values fall below and above, and no bin starts at a whole number
    with ck.using(stream) as xp:
        counts = xp.zeros(256, np.uint64)
        kernel = ck.Kernel.from_template("histogram/even")
        kernel(stream, ck.cover(size), xp.asarray(values), counts, size, low, high)
        assert (to_host(counts) == histogram_reference(values, low, high, 256)).all()


@pytest.mark.parametrize("bins", [1, 10, 1024, 1025, 12287])
def test_histogram_bins(stream: Any, bins: int) -> None:
    values = np.random.default_rng(bins).random(50_001).astype(np.float32)
    with ck.using(stream) as xp:
        counts = xp.zeros(bins, np.uint64)
        kernel = ck.Kernel.from_template("histogram/even")[{"BINS": bins}]
        kernel(stream, ck.config(16, 128), xp.asarray(values), counts, values.size, 0.0, 1.0)
        assert (to_host(counts) == histogram_reference(values, 0.0, 1.0, bins)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_histogram_edges_and_nan(stream: Any, dtype: Any) -> None:
    below_high = np.nextafter(dtype(1), dtype(0))
    values = np.array([0.0, -1e-30, 0.5, below_high, 1.0, np.nan, np.inf, -np.inf, 0.25], dtype)
    with ck.using(stream) as xp:
        counts = xp.zeros(4, np.uint64)
        kernel = ck.Kernel.from_template("histogram/even")[{"BINS": 4}]
        kernel(stream, ck.config(1, 64), xp.asarray(values), counts, values.size, 0.0, 1.0)
        assert to_host(counts).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_histogram_from_any_element_adds_to_the_counts(stream: Any, dtype: np.dtype[Any]) -> None:
    values = image_of(dtype, 1003)
    with ck.using(stream) as xp:
        counts = xp.full(256, 5, np.uint64)
        kernel = ck.Kernel.from_template("histogram/even")
        for start in range(4):
            kernel(stream, ck.config(2, 96), xp.asarray(values)[start:], counts, values.size - start, 0.0, 256.0)
        reference = sum(histogram_reference(values[start:], 0.0, 256.0, 256) for start in range(4))
        assert (to_host(counts) == 5 + reference).all()


def test_histogram_of_one_level_counts_every_value(stream: Any) -> None:
    size = 3_000_001
    with ck.using(stream) as xp:
        counts = xp.zeros(256, np.uint64)
        values = xp.full(size, 77, np.uint8)
        ck.Kernel.from_template("histogram/even")(stream, ck.cover(size), values, counts, size, 0.0, 256.0)
        assert to_host(counts)[77] == size == to_host(counts).sum()
