"""A clip through gray, blur, edges and a histogram, frame by frame, and written as PNGs.

Run: ``python examples/video_pipeline.py``. Without a GPU it runs on the emulator, on a few small frames.

The clip is a window that moves over a photograph. Each frame is an item of a pipeline: it is copied to the device,
passes through three device stages, and comes back. Meanwhile threads of the host draw earlier frames, and later ones
are copied in. Look at the list of stages in ``main``. A PNG shows the edges of a frame above the histogram of its
blurred gray levels.

Prints::

    6 frames of 48 × 48: PNGs in video
    the first frame equals NumPy's, bit for bit
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cudakit as ck
from cudakit.demo import blur_reference, gray_reference, read_photo

EDGES = """
// out = min(255, |gradient|) by Sobel's filters; rows and columns at the edges are repeated.
__global__ void edges(const unsigned char* __restrict__ image, unsigned char* __restrict__ out, int height, int width) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height || column >= width) return;
    int above = max(row - 1, 0) * width, here = row * width, below = min(row + 1, height - 1) * width;
    int left = max(column - 1, 0), right = min(column + 1, width - 1);
    int x = image[above + right] + 2 * image[here + right] + image[below + right]
          - image[above + left] - 2 * image[here + left] - image[below + left];
    int y = image[below + left] + 2 * image[below + column] + image[below + right]
          - image[above + left] - 2 * image[above + column] - image[above + right];
    out[here + column] = min(255, (int)sqrtf((float)(x * x + y * y)));
}
"""
BINS, BAR_HEIGHT = 256, 64


class Frame(NamedTuple):
    """A frame in the pipeline. Device stages pass on values that are no arrays."""

    number: int
    image: Any  # (height, width, 3) or (height, width), uint8
    counts: Any = None  # (256,), int64


def main(arguments: Sequence[str] | None = None) -> list[Frame]:
    """Run the pipeline, write the PNGs, check the first frame, and return the frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, help="an image file; default: the portrait that matplotlib ships")
    parser.add_argument("--frames", type=int, help="frames of the clip; default: 240 on a GPU, 6 on the emulator")
    parser.add_argument("--size", type=int, help="height and width of a frame; default: 512, or 48 on the emulator")
    parser.add_argument("--out", type=Path, default=Path("video"), help="folder of the PNGs; default: video")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    count = options.frames or (240 if on_gpu else 6)
    size = options.size or (512 if on_gpu else 48)
    photo = read_photo(options.photo)

    write = ck.pipeline.host(lambda frame: draw(frame, options.out), threads=4, name="draw")
    pipeline = ck.Pipeline([to_gray, to_blurred, to_edges, write], stream=stream, progress=True)

    start = time.perf_counter()
    frames = list(pipeline(clip(photo, count, size)))
    elapsed = time.perf_counter() - start
    rate = f"{count / elapsed:.1f} frames/s, " if on_gpu else ""
    print(f"{count} frames of {size} × {size}: {rate}PNGs in {options.out}")
    check(next(clip(photo, count, size)).image, frames[0])
    return frames


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────


def clip(photo: np.ndarray, count: int, size: int) -> Iterator[Frame]:
    """Yield frames (size, size, 3): a window that moves over `photo` (height, width, 3) on a Lissajous curve."""
    height, width = photo.shape[:2]
    size = min(size, height, width)
    for number in range(count):
        angle = 2 * np.pi * number / count
        top = round((height - size) * (0.5 + 0.5 * np.sin(3 * angle)))
        left = round((width - size) * (0.5 + 0.5 * np.sin(2 * angle)))
        yield Frame(number, photo[top : top + size, left : left + size])


# ── stages of the device ─────────────────────────────────────────────────────────────────────────────────────────────

gray = ck.Kernel.from_template("image/gray")
blur = ck.Kernel.from_template("image/blur")
edges = ck.Kernel(EDGES)


def to_gray(frame: Frame, stream: Any) -> Frame:
    """Convert RGB to gray, four pixels in each thread."""
    height, width, _ = frame.image.shape
    out = ck.empty((height, width), np.uint8, stream=stream)
    gray(stream, ck.cover(-(-height * width // 4)), frame.image, out, height * width)
    return frame._replace(image=out)


def to_blurred(frame: Frame, stream: Any) -> Frame:
    """Blur by a binomial filter, a tile of 16 × 32 in each block; count the gray levels of the result."""
    height, width = frame.image.shape
    out = ck.empty((height, width), np.uint8, stream=stream)
    blur(stream, ck.config(-(-height // 16) * -(-width // 32), 256), frame.image, out, height, width)
    counts, _ = ck.ops.histogram(out, BINS, (0, BINS), stream=stream)
    return frame._replace(image=out, counts=counts)


def to_edges(frame: Frame, stream: Any) -> Frame:
    """Compute the length of the gradient, one pixel in each thread."""
    height, width = frame.image.shape
    out = ck.empty((height, width), np.uint8, stream=stream)
    edges(stream, ck.config((-(-width // 32), -(-height // 8)), (32, 8)), frame.image, out, height, width)
    return frame._replace(image=out)


# ── the stage of the host ────────────────────────────────────────────────────────────────────────────────────────────


def draw(frame: Frame, folder: Path) -> Frame:
    """Write a PNG of the frame's edges, with the histogram as bars below."""
    width = frame.image.shape[1]
    bins = np.arange(width) * BINS // width  # the bin that each column shows
    bars = frame.counts[bins] * BAR_HEIGHT // max(int(frame.counts.max()), 1)
    rows = np.arange(BAR_HEIGHT, 0, -1)[:, None]
    picture = np.vstack([frame.image, np.where(rows <= bars, 255, 32).astype(np.uint8)])
    ck.pipeline.write_image(folder / f"{frame.number:04d}.png", picture)
    return frame


# ── check ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check(rgb: np.ndarray, frame: Frame) -> None:
    """Compare a frame with NumPy's result for the same pixels."""
    smooth = blur_reference(gray_reference(rgb))
    around = np.pad(smooth.astype(np.int32), 1, mode="edge")
    across = around[:-2] + 2 * around[1:-1] + around[2:]  # weights 1, 2, 1 down the columns
    along = around[:, :-2] + 2 * around[:, 1:-1] + around[:, 2:]
    gradient = np.sqrt(((across[:, 2:] - across[:, :-2]) ** 2 + (along[2:] - along[:-2]) ** 2).astype(np.float32))
    expected = np.minimum(gradient.astype(np.int32), 255)
    assert np.array_equal(frame.image, expected), "the edges are not NumPy's"
    assert np.array_equal(frame.counts, np.bincount(smooth.ravel(), minlength=BINS)), "the histogram is not NumPy's"
    print("the first frame equals NumPy's, bit for bit")


if __name__ == "__main__":
    main()
