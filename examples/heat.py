"""Solve the heat equation on a plate: a stencil captured as a graph, compared with NumPy, saved as an animated GIF.

Run: ``python examples/heat.py``. Without a GPU it runs on the emulator, on a small plate.

The temperature u follows ∂u/∂t = ∇²u and is constant at the edge. One step on a grid is

    next = now + rate · (left + right + above + below - 4 · now),    stable for rate ≤ 1/4.

A step reads the old values of all cells, so there are two arrays, and each step goes from one to the other. Two steps
are captured as one graph. The graph begins and ends with the same array, so it can be launched again and again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck

#: Cells at the edge are not inner and never change.
SPREAD = ck.stencil(
    "float next",
    "now(0, 0) + rate * inner(0, 0) * (now(0, -1) + now(0, 1) + now(-1, 0) + now(1, 0) - 4 * now(0, 0))",
    "float now, float inner, float rate",
    name="spread",
)
RATE = np.float32(0.24)


def main(arguments: Sequence[str] | None = None) -> float:
    """Run the simulation, compare the end with NumPy, save the GIF; return the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="cells a side; default: 192 on a GPU, 32 on the emulator")
    parser.add_argument("--frames", type=int, help="pictures in the GIF; default: 60 on a GPU, 8 on the emulator")
    parser.add_argument("--steps", type=int, help="steps a picture, even; default: 60 on a GPU, 2 on the emulator")
    parser.add_argument("--out", type=Path, default=Path("heat.gif"), help="the GIF; default: heat.gif")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    size, frames, steps = (
        given or (usual if on_gpu else small)
        for given, usual, small in ((options.size, 192, 32), (options.frames, 60, 8), (options.steps, 60, 2))
    )
    if steps % 2:
        parser.error(f"--steps is even, for a graph is two steps; got {steps}")

    start = hot_spots(size)
    seen = [start, *simulate(stream, start, frames - 1, steps)]
    # Each step rounds to float32 a few times. Averages of cells do not enlarge errors.
    error = float(np.abs(seen[-1] - by_numpy(start, (frames - 1) * steps)).max())
    allowed = 4 * (frames - 1) * steps * float(np.finfo(np.float32).eps)
    print(f"{size} × {size} cells, {(frames - 1) * steps} steps: within {error:.1e} of NumPy (allowed {allowed:.1e})")
    assert error <= allowed, "the simulation is wrong"
    if on_gpu:
        print_times(stream, start)
    save_gif(seen, options.out)
    print(f"picture: {options.out}")
    return error


def simulate(stream: Any, start: np.ndarray, frames: int, steps: int) -> list[np.ndarray]:
    """Return `frames` plates, `steps` steps apart: each (height, width), float32."""
    found = []
    with ck.using(stream) as xp:
        here, there = xp.asarray(start.copy()), xp.empty(start.shape, np.float32)
        both = two_steps(stream, here, there)
        with ck.capture(stream) as graph:
            for step in both:
                step()
        for _ in range(frames):
            for _ in range(steps // 2):
                graph.launch(stream)
            found.append(ck.to_host(here, stream))
    return found


def two_steps(stream: Any, here: Any, there: Any) -> list[Callable[[], None]]:
    """Return functions that launch a step from one plate to the other, and a step back."""
    with ck.using(stream) as xp:
        inner = xp.zeros(here.shape, np.float32)
        inner[1:-1, 1:-1] = 1
    return [
        lambda: SPREAD(here, inner, RATE, out=there, stream=stream),
        lambda: SPREAD(there, inner, RATE, out=here, stream=stream),
    ]


def print_times(stream: Any, start: np.ndarray, repeats: int = 500) -> None:
    """Print the time of a step by itself, and in a graph of 100 steps."""
    with ck.using(stream) as xp:
        steps = two_steps(stream, xp.asarray(start), xp.empty(start.shape, np.float32))
        for step in steps:
            step()  # Compile before the measurement.
        with ck.capture(stream) as graph:
            for _ in range(50):
                for step in steps:
                    step()
        with ck.Timer(stream) as launched:
            for _ in range(repeats // 2):
                for step in steps:
                    step()
        with ck.Timer(stream) as captured:
            for _ in range(repeats // 100):
                graph.launch(stream)
        print(f"a step by itself: {1000 * launched.elapsed_ms / repeats:.2f} µs")
        print(f"a step in a graph of 100: {1000 * captured.elapsed_ms / repeats:.2f} µs")


def hot_spots(size: int) -> np.ndarray:
    """Return a cold plate (0) with hot discs (1) and a warm left edge: (size, size), float32."""
    rows, columns = np.mgrid[:size, :size] / size
    plate = np.zeros((size, size), np.float32)
    for row, column, radius in ((0.3, 0.3, 0.12), (0.65, 0.6, 0.18), (0.25, 0.75, 0.08), (0.8, 0.2, 0.06)):
        plate[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1
    plate[:, 0] = 0.5
    return plate


def by_numpy(start: np.ndarray, steps: int) -> np.ndarray:
    """Return the plate after `steps` steps of NumPy in float64."""
    now, rate = start.astype(np.float64), float(RATE)
    for _ in range(steps):
        inner = now[1:-1, 1:-1]
        around = now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1]
        now[1:-1, 1:-1] = inner + rate * (around - 4 * inner)
    return now


def save_gif(plates: Sequence[np.ndarray], path: Path) -> None:
    """Save plates from 0 to 1 as an animation: black, red, yellow, white."""
    try:
        from PIL import Image
    except ImportError as error:
        raise SystemExit(
            f"the GIF is written with Pillow ({error}); install it: pip install 'cudakit[examples]'"
        ) from error
    level = np.arange(256)[:, None] * 3
    palette = np.clip(level - [0, 256, 512], 0, 255).astype(np.uint8)
    pictures = []
    for plate in plates:
        zoom = max(1, 256 // plate.shape[0])
        shades = (255 * np.clip(plate, 0, 1)).astype(np.uint8).repeat(zoom, axis=0).repeat(zoom, axis=1)
        picture = Image.fromarray(shades)
        picture.putpalette(palette.tobytes())
        pictures.append(picture)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=60, loop=0)


if __name__ == "__main__":
    main()
