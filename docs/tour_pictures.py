"""Draw the pictures of tour.md: ``python docs/tour_pictures.py``, on the emulator, with the extra ``examples``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "pictures"
INK, BLUE, ORANGE, GREEN, GRAY, PAPER = "#26323f", "#3b75af", "#d9772b", "#4a8f3c", "#9aa5b1", "#ffffff"


def text(
    x: float, y: float, words: str, *, size: int = 15, colour: str = INK, anchor: str = "middle", mono: bool = False
) -> str:
    """Draw words with their middle, start or end at x."""
    family = "ui-monospace, Menlo, Consolas, monospace" if mono else "system-ui, 'Segoe UI', Arial, sans-serif"
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">'
        f"{escaped}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str, edge: str = "none", radius: int = 3) -> str:
    """Draw a rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" stroke="{edge}" '
        'stroke-width="1.5"/>'
    )


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return a picture with a white background, which is readable on a dark page too."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{title}</title>\n" + "\n".join([box(0, 0, width, height, PAPER, radius=8), *parts]) + "\n</svg>\n"
    )


def call() -> str:
    """Draw the parts of a call with their meanings."""
    words = [
        ("julia", INK, "the kernel"),
        ("[np.float32]", BLUE, "template arguments"),
        ("(", INK, ""),
        ("stream", ORANGE, "where, and after what"),
        (", ", INK, ""),
        ("ck.cover(shape)", GREEN, "how many threads"),
        (", ", INK, ""),
        ("image, -0.8, 0.156, …", BLUE, "the kernel's own parameters"),
        (")", INK, ""),
    ]
    x, step, parts = 24.0, 9.65, []
    for number, (code, colour, meaning) in enumerate(words):
        width = step * len(code)
        parts.append(text(x, 44, code, size=16, colour=colour, anchor="start", mono=True))
        if meaning:
            low = 82 if number in (0, 3, 7) else 112
            parts.append(f'<path d="M{x + width / 2:g} 54 V{low - 16}" stroke="{colour}" stroke-width="1.5"/>')
            parts.append(text(max(x + width / 2, 60), low, meaning, size=14, colour=colour))
        x += width
    return svg(round(x) + 24, 128, "The parts of a call", parts)


def grid() -> str:
    """Draw blocks over an array whose size is not a multiple of theirs."""
    size, columns, rows, wide, high = 13, 8, 4, 3, 3
    within_x, within_y = 20, 10
    parts = []
    for row in range(rows * high):
        for column in range(columns * wide):
            x, y = 24 + column * size + column // columns * 8, 44 + row * size + row // rows * 8
            inside = column < within_x and row < within_y
            parts.append(box(x, y, size - 2, size - 2, BLUE if inside else "#e3e7ec", radius=2))
    for j in range(high):
        for i in range(wide):
            x, y = 24 + i * (columns * size + 8), 44 + j * (rows * size + 8)
            parts.append(box(x - 3, y - 3, columns * size + 4, rows * size + 4, "none", INK))
    left = 24 + wide * (columns * size + 8) + 24
    lines = [
        ("a thread: one square", INK),
        ("a block: 8 × 4 threads here, mostly 256", INK),
        ("the grid: 3 × 3 blocks", INK),
        ("blue: (row, column) is inside the array", BLUE),
        ("gray: beyond it, the kernel returns at once", "#6b7785"),
    ]
    parts.append(text(24, 28, "blockIdx.x, threadIdx.x → column", size=13, anchor="start"))
    parts += [
        text(left, 70 + 28 * k, words, size=14, colour=colour, anchor="start")
        for k, (words, colour) in enumerate(lines)
    ]
    return svg(left + 330, 44 + high * (rows * size + 8) + 16, "Threads, blocks and the grid", parts)


def streams(spans: Any) -> str:
    """Draw a row for each stream and a bar for each kernel."""
    spans = [span for span in spans if span.kind == "kernel"]
    end = max(span.end_ms for span in spans)
    rows = list(dict.fromkeys(span.stream for span in spans))
    parts = []
    for k, row in enumerate(rows):
        parts.append(text(96, 48 + 44 * k, row, size=14, anchor="end"))
        parts.append(box(108, 26 + 44 * k, 500, 34, "#eef1f4"))
    for span in spans:
        x, y = 108 + 500 * span.start_ms / end, 26 + 44 * rows.index(span.stream)
        width = 500 * (span.end_ms - span.start_ms) / end
        inside = width > 9 * len(span.name)
        parts.append(box(x, y, width, 34, BLUE if inside else ORANGE))
        at = x + width / 2 if inside else x + width + 8
        look = {"colour": PAPER} if inside else {"anchor": "start"}
        parts.append(text(at, y + 22, span.name, size=13, **look))
    parts.append(
        text(108, 44 * len(rows) + 46, "time, in the emulator's steps →", size=13, colour="#6b7785", anchor="start")
    )
    return svg(820, 44 * len(rows) + 62, "Kernels on two streams", parts)


def drawings() -> dict[str, str]:
    """Return the pictures that need no kernel, by their file names."""
    return {"tour-call.svg": call(), "tour-grid.svg": grid()}


def computed() -> dict[str, Any]:
    """Run the programs of the page on the emulator, and return their names."""
    import cudakit as ck

    ck.stream = ck.emulator.stream
    page = (HERE / "tour.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    return names


def main() -> None:
    """Draw them all."""
    import matplotlib
    import numpy as np
    from PIL import Image

    FOLDER.mkdir(exist_ok=True)
    for name, drawing in drawings().items():
        (FOLDER / name).write_text(drawing, encoding="utf-8")
    names = computed()
    steps = np.minimum(np.log1p(names["image"].astype(float)) / np.log(256), 1)
    colours = (matplotlib.colormaps["magma"](steps)[..., :3] * 255).astype(np.uint8)
    Image.fromarray(colours).resize((720, 480), Image.Resampling.LANCZOS).quantize(64).save(
        FOLDER / "tour-julia.png", optimize=True
    )
    (FOLDER / "tour-streams.svg").write_text(streams(names["trace"].spans), encoding="utf-8")


if __name__ == "__main__":
    main()
