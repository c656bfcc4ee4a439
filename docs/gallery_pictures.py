"""Draw the pictures of gallery.md: ``python docs/gallery_pictures.py [PROGRAM …]``, with the extra ``examples``.

Each program of `PICTURES` runs on the emulator, unchanged from examples/. Then its own kernels and functions draw a
picture.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageOps

import cudakit as ck
from cudakit.demo import read_photo

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
FOLDER = HERE / "_static" / "gallery"
SIZE = (320, 200)

Names = dict[str, Any]


def photo(columns: int = SIZE[0]) -> np.ndarray:
    """Return the upper part of matplotlib's sample portrait, RGB, in the pictures' proportions."""
    image = ImageOps.fit(
        Image.fromarray(read_photo(None)), (columns, columns * SIZE[1] // SIZE[0]), centering=(0.5, 0.1)
    )
    return np.asarray(image)


def gray_photo(columns: int = SIZE[0]) -> np.ndarray:
    """Return the portrait in gray, float32 from 0 to 255."""
    return photo(columns).astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)


def painted(values: np.ndarray, colours: str = "gray") -> Image.Image:
    """Return an array as a picture of `SIZE`, its minimum dark, in whole pixels."""
    from matplotlib import colormaps

    scaled = (values - values.min()) / (np.ptp(values) or 1)
    return ImageOps.fit(
        Image.fromarray(colormaps[colours](scaled, bytes=True)[..., :3]), SIZE, Image.Resampling.NEAREST
    )


def figure(**options: Any) -> tuple[Figure, Any]:
    """Return a plot of `SIZE` in pixels, and its axes."""
    plot = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), layout="constrained", dpi=100)
    plot.set_facecolor("white")
    axes = plot.subplots(**options)
    for axis in np.ravel(axes):
        axis.tick_params(labelsize=7)
    return plot, axes


def side_by_side(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the left half of one picture beside the right half of the other."""
    middle = left.shape[1] // 2
    return np.hstack([left[:, :middle], right[:, middle:]])


def box_blur(names: Names) -> Image.Image:
    """Draw a photograph and the blurred photograph."""
    image = gray_photo()
    return painted(side_by_side(image, names["blur"](image, 4, repeat_edge=False)))


def own_weights(names: Names) -> Image.Image:
    """Draw the edges of a photograph by Sobel's weights."""
    image = gray_photo()
    edges = [names["weigh"](image, weights, flipped=False) for weights in (names["sobel"], names["sobel"].T)]
    return painted(np.minimum(np.hypot(*edges), 400))


def rgb_to_gray(names: Names) -> Image.Image:
    """Draw a photograph in colours and in gray."""
    image = np.ascontiguousarray(photo())
    stream = names["stream"]
    gray = ck.to_device(np.zeros(image.shape[:2], np.uint8), stream)
    names["packaged"](stream, ck.cover(-(-gray.size // 4)), ck.to_device(image, stream), gray, gray.size)
    grays = np.repeat(ck.to_host(gray, stream)[..., None], 3, axis=2)
    return Image.fromarray(side_by_side(image, grays))


def mandelbrot(names: Names) -> Image.Image:
    """Draw the Mandelbrot set."""
    steps = ck.to_device(np.zeros(SIZE[::-1], np.int32), names["stream"])
    kernel, pixel = names["mandelbrot"][np.float64], 3.6 / SIZE[0]
    kernel(names["stream"], ck.cover(steps.shape), steps, *SIZE[::-1], -2.5, 1.12, pixel, 100)
    return painted(np.log1p(ck.to_host(steps, names["stream"])), "magma")


def game_of_life(names: Names) -> Image.Image:
    """Draw a random board after 60 generations."""
    board = np.random.default_rng(2).integers(0, 2, (50, 80), np.uint8)
    return painted(1 - names["play"](board, 60).astype(float))


def texture_sampling(names: Names) -> Image.Image:
    """Draw a coarse image, and the image enlarged by a texture."""
    stream, (columns, rows) = names["stream"], SIZE
    coarse = np.random.default_rng(3).random((5, 8), np.float32)
    out = ck.to_device(np.zeros((rows, columns), np.float32), stream)
    texture = ck.texture(ck.to_device(coarse, stream), filter="linear", address="clamp")
    names["enlarge"](stream, ck.cover(out.shape), texture, out, rows, columns, 5 / rows)
    nearest = np.kron(coarse, np.ones((rows // 5, columns // 8)))
    return painted(side_by_side(nearest, ck.to_host(out, stream)), "viridis")


def n_body(names: Names) -> Figure:
    """Draw the bodies before and after, as the program does."""
    plot, axes = figure(ncols=2)
    for axis, points, title in zip(axes, (names["start_body"], names["end_body"]), ("before", "after"), strict=True):
        axis.scatter(points[:, 0], points[:, 1], s=2)
        axis.set(aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
        axis.set_title(title, fontsize=8)
    return plot


def heat_equation(names: Names) -> Figure:
    """Draw a sine that decays."""
    plot, axes = figure()
    axes.plot(names["position"], np.sin(np.pi * names["position"]), color="0.6", label="t = 0")
    axes.plot(names["position"], names["result"], color="tab:red", label=f"t = {names['time']:.3f}")
    axes.plot(names["position"][::8], names["exact"][::8], "k.", markersize=3, label="exact")
    axes.legend(fontsize=7)
    return plot


def histogram(names: Names) -> Figure:
    """Draw the frequency of axis letter."""
    plot, axes = figure()
    axes.bar([chr(97 + letter) for letter in range(26)], names["counts"])
    axes.tick_params(axis="x", labelsize=6)
    return plot


def black_scholes(names: Names) -> Figure:
    """Draw prices of call options over share price and years."""
    plot, axes = figure()
    points = axes.scatter(names["spot"] / names["strike"], names["calls"], c=names["years"], s=2, cmap="viridis")
    axes.set_xlim(0, 3)
    axes.set_xlabel("spot / strike", fontsize=7)
    axes.set_ylabel("price of a call", fontsize=7)
    plot.colorbar(points, ax=axes).set_label("years", fontsize=7)
    return plot


def heat(names: Names) -> Image.Image:
    """Draw the plate at the end."""
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "heat.gif"
        names["main"](["--emulator", "--size", "160", "--frames", "3", "--steps", "60", "--out", str(path)])
        with Image.open(path) as frames:
            frames.seek(2)
            return ImageOps.fit(frames.convert("RGB"), SIZE)


def video_pipeline(names: Names) -> Image.Image:
    """Draw a frame by the pipeline's last stage."""
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        names["main"](["--emulator", "--frames", "2", "--size", "256", "--out", folder])
        with Image.open(sorted(Path(folder).glob("*.png"))[-1]) as frame:
            return ImageOps.pad(frame.convert("RGB"), SIZE)


PICTURES: dict[str, Callable[[Names], Image.Image | Figure]] = {
    "tutorial/box_blur": box_blur,
    "tutorial/own_weights": own_weights,
    "tutorial/rgb_to_gray": rgb_to_gray,
    "tutorial/mandelbrot": mandelbrot,
    "tutorial/game_of_life": game_of_life,
    "tutorial/texture_sampling": texture_sampling,
    "tutorial/n_body": n_body,
    "tutorial/heat_equation": heat_equation,
    "tutorial/histogram": histogram,
    "tutorial/black_scholes": black_scholes,
    "heat": heat,
    "video_pipeline": video_pipeline,
}


def main(chosen: list[str]) -> None:
    """Draw the chosen pictures, or all."""
    ck.stream, ck.has_gpu = ck.emulator.stream, lambda: False  # type: ignore[assignment]  # the same everywhere
    sys.path.insert(0, str(EXAMPLES / "tutorial"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for program in chosen or PICTURES:
        with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            sys.argv = [program, *(["--picture", f"{folder}/own.png"] if "/" in program else [])]
            names = runpy.run_path(str(EXAMPLES / f"{program}.py"), run_name="__main__" if "/" in program else program)
        picture = PICTURES[program](names)
        path = FOLDER / f"{Path(program).name}.png"
        if isinstance(picture, Figure):
            picture.savefig(path, metadata={"Software": None})
        else:
            picture.quantize(96).save(path, optimize=True)
        print(path.relative_to(HERE), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
