"""Batches of images through a pipeline of ready-made ops: gray, blur, Sobel, resize.

Run: ``python examples/image_pipeline.py``. Without a GPU it runs on the emulator, on a few small images.

Each batch is an item of a pipeline: (images, height, width, 3), uint8. It is copied to the device, passes through four
calls of ``ck.ops``, and comes back as thumbnails of its edges. Meanwhile other batches are copied in and out. Look at
``edges``: it is the whole device code.

Prints::

    2 batches of 2 images, 40 × 40 → 20 × 20
    the first batch equals NumPy's, bit for bit
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit.demo import read_photo


def main(arguments: Sequence[str] | None = None) -> list[np.ndarray]:
    """Run the pipeline, check the first batch, and return the thumbnails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, help="an image file; default: the portrait that matplotlib ships")
    parser.add_argument("--batches", type=int, help="default: 64 on a GPU, 2 on the emulator")
    parser.add_argument("--images", type=int, help="images of a batch; default: 16 on a GPU, 2 on the emulator")
    parser.add_argument("--size", type=int, help="height and width of an image; default: 512, or 40 on the emulator")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    count = options.batches or (64 if on_gpu else 2)
    images = options.images or (16 if on_gpu else 2)
    size = options.size or (512 if on_gpu else 40)
    photo = read_photo(options.photo)

    start = time.perf_counter()
    thumbnails_of_batches = list(ck.Pipeline([edges], stream=stream)(batches(photo, count, images, size)))
    elapsed = time.perf_counter() - start
    rate = f", {count * images / elapsed:.0f} images/s" if on_gpu else ""
    _, height, width = thumbnails_of_batches[0].shape
    print(f"{count} batches of {images} images, {size} × {size} → {height} × {width}{rate}")
    check(next(batches(photo, count, images, size)), thumbnails_of_batches[0])
    return thumbnails_of_batches


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────


def batches(photo: np.ndarray, count: int, images: int, size: int) -> Iterator[np.ndarray]:
    """Batches (images, size, size, 3) of squares of `photo` (height, width, 3), from the same places at each run."""
    random = np.random.default_rng(0)
    height, width = photo.shape[:2]
    size = min(size, height, width)
    for _ in range(count):
        tops, lefts = random.integers(0, height - size + 1, images), random.integers(0, width - size + 1, images)
        squares = [photo[top : top + size, left : left + size] for top, left in zip(tops, lefts, strict=True)]
        yield np.stack(squares)


# ── the stage of the device ──────────────────────────────────────────────────────────────────────────────────────────


def edges(batch: Any, stream: Any) -> Any:
    """(images, height, width, 3) → (images, height / 2, width / 2): how steep each image is, when noise is gone."""
    gray = ck.ops.rgb_to_gray(batch, stream=stream)
    smooth = ck.ops.gaussian_blur(gray, 5, mode="mirror", stream=stream)
    steep = ck.ops.sobel(smooth, stream=stream)
    _, height, width = steep.shape
    return ck.ops.resize(steep, (height // 2, width // 2), stream=stream)


# ── check ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check(batch: np.ndarray, thumbnails: np.ndarray) -> None:
    """Compare thumbnails with NumPy's of the same batch, in integers."""
    gray = (batch.astype(np.int64) @ np.array([19595, 38470, 7471]) + 32768) >> 16
    smooth = (weighted_sum(weighted_sum(np.pad(gray, ((0, 0), (2, 2), (2, 2)), "reflect"), 1), 2) + 128) >> 8
    around = np.pad(smooth, ((0, 0), (1, 1), (1, 1)), "symmetric")
    down, right = around[:, 2:] - around[:, :-2], around[:, :, 2:] - around[:, :, :-2]
    down = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    right = right[:, :-2] + 2 * right[:, 1:-1] + right[:, 2:]
    steep = np.minimum(np.floor(np.sqrt(down**2 + right**2) + 0.5), 255).astype(np.int64)
    height, width = (n // 2 * 2 for n in steep.shape[1:])
    if (height, width) == steep.shape[1:]:
        four = steep.reshape(len(steep), height // 2, 2, width // 2, 2)
        assert np.array_equal(thumbnails, (four.sum((2, 4)) + 2) >> 2), "the thumbnails are not NumPy's"
        print("the first batch equals NumPy's, bit for bit")


def weighted_sum(image: np.ndarray, axis: int) -> np.ndarray:
    """Return sums weighted by (1, 4, 6, 4, 1) along an axis, which loses two elements at each end."""
    n = image.shape[axis] - 4
    parts = [np.take(image, range(k, k + n), axis) for k in range(5)]
    return parts[0] + 4 * parts[1] + 6 * parts[2] + 4 * parts[3] + parts[4]


if __name__ == "__main__":
    main()
