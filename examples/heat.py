"""Heat that spreads in a plate: a stencil, captured as a graph, checked against NumPy, and saved as an animated GIF.

Run: ``python examples/heat.py``. Without a GPU it runs on the emulator, on a small plate.

The temperature u of the plate follows ∂u/∂t = ∇²u, and the edge keeps its temperature. One step on a grid is

    next = now + rate · (left + right + above + below - 4 · now),    stable for rate ≤ 1/4.

A step reads one plate and writes another. Look at the graph: it holds two steps, there and back, so it begins and ends
with the same plate and can be launched again and again.

Prints::

    32 × 32 cells, 14 steps: within 1.4e-07 of NumPy (allowed 6.7e-06)
    picture: heat.gif
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck

#: `inner` is 0 at the edge, whose cells keep their temperature, and 1 elsewhere.
SPREAD = ck.stencil(
    "float next",
    "now(0, 0) + rate * inner(0, 0) * (now(0, -1) + now(0, 1) + now(-1, 0) + now(1, 0) - 4 * now(0, 0))",
    "float now, float inner, float rate",
    name="spread",
)
RATE = np.float32(0.24)


def main(arguments: Sequence[str] | None = None) -> float:
    """Run the simulation, check its end, save the GIF; return the largest difference from NumPy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="cells on a side; default: 192 on a GPU, 32 on the emulator")
    parser.add_argument("--frames", type=int, help="pictures in the GIF; default: 60 on a GPU, 8 on the emulator")
    parser.add_argument(
        "--steps", type=int, help="steps between pictures, even; default: 60 on a GPU, 2 on the emulator"
    )
    parser.add_argument("--out", type=Path, default=Path("heat.gif"), help="the GIF; default: heat.gif")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    size, frames, steps = (
        chosen or (on_a_gpu if on_gpu else on_emulator)
        for chosen, on_a_gpu, on_emulator in ((options.size, 192, 32), (options.frames, 60, 8), (options.steps, 60, 2))
    )
    if steps % 2:
        parser.error(f"--steps is even, because a graph holds two steps; got {steps}")

    start = hot_spots(size)
    frames_shown = [start, *simulate(stream, start, frames - 1, steps)]
    # Each step rounds to float32 a few times. It averages cells, so no error grows.
    error = float(np.abs(frames_shown[-1] - by_numpy(start, (frames - 1) * steps)).max())
    allowed = 4 * (frames - 1) * steps * float(np.finfo(np.float32).eps)
    print(f"{size} × {size} cells, {(frames - 1) * steps} steps: within {error:.1e} of NumPy (allowed {allowed:.1e})")
    assert error <= allowed, "the simulation is wrong"
    if on_gpu:
        print_times(stream, start)
    save_gif(frames_shown, options.out)
    print(f"picture: {options.out}")
    return error


def simulate(stream: Any, start: np.ndarray, frames: int, steps: int) -> list[np.ndarray]:
    """Return the plate after every `steps` steps, `frames` times: (height, width), float32."""
    plates = []
    with ck.using(stream) as xp:
        first, second = xp.asarray(start.copy()), xp.empty(start.shape, np.float32)
        steps_of_graph = two_steps(stream, first, second)
        with ck.capture(stream) as graph:
            for step in steps_of_graph:
                step()
        for _ in range(frames):
            for _ in range(steps // 2):
                graph.launch(stream)
            plates.append(ck.to_host(first, stream))
    return plates


def two_steps(stream: Any, first: Any, second: Any) -> list[Callable[[], None]]:
    """Return a launch from one plate to the other, and a launch back."""
    with ck.using(stream) as xp:
        inner = xp.zeros(first.shape, np.float32)
        inner[1:-1, 1:-1] = 1
    return [
        lambda: SPREAD(first, inner, RATE, out=second, stream=stream),
        lambda: SPREAD(second, inner, RATE, out=first, stream=stream),
    ]


def print_times(stream: Any, start: np.ndarray, repeats: int = 500) -> None:
    """Print the time of a step by itself, and in a graph of 100 steps."""
    with ck.using(stream) as xp:
        steps = two_steps(stream, xp.asarray(start), xp.empty(start.shape, np.float32))
        for step in steps:
            step()  # compiles, before the time is measured
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
    """Return the plate after `steps` steps, by NumPy in float64."""
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
