"""Draw the pictures of streams.md, graphs.md, pipelines.md and tiles.md: ``python docs/guide_pictures.py``.

The timelines are traces of the pages' own kernels on the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tour_pictures import BLUE, FOLDER, GRAY, GREEN, HERE, INK, ORANGE, PAPER, box, svg, text

LANE, EMPTY, MUTED = "#eef1f4", "#e3e7ec", "#6b7785"


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = INK) -> str:
    """Draw a straight arrow."""
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    along_x, along_y = 8 * (to_x - x) / length, 8 * (to_y - y) / length
    head = f"{to_x:g},{to_y:g} " + " ".join(
        f"{to_x - along_x + side * along_y / 2:g},{to_y - along_y - side * along_x / 2:g}" for side in (-1, 1)
    )
    line = f'<path d="M{x:g} {y:g} L{to_x - along_x:g} {to_y - along_y:g}" stroke="{colour}" stroke-width="1.5"/>'
    return f'{line}<polygon points="{head}" fill="{colour}"/>'


def timeline(
    title: str,
    spans: Sequence[Any],
    labels: Sequence[str],
    colours: Sequence[str],
    waits: Sequence[tuple[int, int]] = (),
) -> str:
    """Draw a lane for each stream, a bar for each span, and an arrow for each wait."""
    lanes = list(dict.fromkeys(span.stream for span in spans))
    scale = 640 / max(span.end_ms for span in spans)
    parts = []
    for k, lane in enumerate(lanes):
        parts += [text(88, 44 + 52 * k, lane, size=14, anchor="end"), box(100, 22 + 52 * k, 640, 34, LANE)]
    frames = []
    for span, label, colour in zip(spans, labels, colours, strict=True):
        x, y = 100 + scale * span.start_ms, 22 + 52 * lanes.index(span.stream)
        frames.append((x, y, scale * (span.end_ms - span.start_ms)))
        parts.append(box(x + 0.5, y, frames[-1][2] - 1, 34, colour))
        parts.append(text(x + frames[-1][2] / 2, y + 22, label, size=13, colour=PAPER))
    for first, second in waits:
        (x, y, width), (to_x, to_y, _) = frames[first], frames[second]
        parts.append(arrow(x + width - 10, y + 34, to_x + 10, to_y, ORANGE))
    bottom = 52 * len(lanes) + 26
    parts.append(text(100, bottom + 4, "time, in the emulator's steps →", size=13, colour=MUTED, anchor="start"))
    return svg(764, bottom + 18, title, parts)


def streams(spans: Sequence[Any]) -> str:
    """Draw a kernel that waits for a kernel of another stream, beside one that does not."""
    labels, colours = ["step(x)", "step(y)", "step(x)"], [BLUE, GRAY, BLUE]
    waits = [(first, second) for second, span in enumerate(spans) for first in span.after]
    return timeline("A wait between two streams", spans, labels, colours, waits)


def pipelines(spans: Sequence[Any]) -> str:
    """Draw the copies and kernels of the items of a run."""
    order = {"copy in": ORANGE, "smooth": BLUE, "copy out": GREEN}
    spans = sorted((span for span in spans if span.stream in order), key=lambda span: [*order].index(span.stream))
    labels = []
    for lane in order:
        labels += [str(number) for number in range(sum(span.stream == lane for span in spans))]
    return timeline("A pipeline's copies and kernels", spans, labels, [order[span.stream] for span in spans])


def graphs() -> str:
    """Draw the nodes of the graph of two streams in graphs.md."""
    places = [(150, 24, "step"), (150, 104, "step"), (430, 64, "add")]
    parts = [box(x, y, 130, 40, BLUE) for x, y, _ in places]
    parts += [text(x + 65, y + 25, name, colour=PAPER, mono=True) for x, y, name in places]
    parts += [text(130, 49, "stream", size=14, anchor="end"), text(130, 129, "side", size=14, anchor="end")]
    parts += [arrow(280, 44, 428, 78), arrow(280, 124, 428, 90)]
    parts += [
        text(590, 68, "one launch", size=14, anchor="start"),
        text(590, 88, "for all nodes", size=14, anchor="start"),
        text(150, 172, "no edge between them: they may run at the same time", size=13, colour=MUTED, anchor="start"),
    ]
    return svg(764, 188, "The nodes of a graph of two streams", parts)


def tiles() -> str:
    """Draw the tiles of 64 × 64 that cover an array of 96 × 96."""
    parts, pixels, edge = [], 1.6, 64
    left, top = 150, 46
    for row in range(2):
        for column in range(2):
            x, y = left + column * edge * pixels, top + row * edge * pixels
            wide, high = min(edge, 96 - column * edge), min(edge, 96 - row * edge)
            parts.append(box(x, y, edge * pixels, edge * pixels, EMPTY, radius=0))
            parts.append(box(x, y, wide * pixels, high * pixels, BLUE, radius=0))
            parts.append(box(x, y, edge * pixels, edge * pixels, "none", INK, radius=0))
            parts.append(text(x + wide * pixels / 2, y + high * pixels / 2 + 5, f"{column}, {row}", colour=PAPER))
    parts.append(text(left, 30, "ct::bid().x, ct::bid().y", size=13, anchor="start", mono=True))
    lines = [
        ("a block: one tile of 64 × 64 elements", INK),
        ("the grid: 2 × 2 blocks cover 96 × 96 elements", INK),
        ("blue: elements of the array", BLUE),
        ("gray: beyond the array", MUTED),
        ("load_masked and store_masked do not touch it", MUTED),
    ]
    parts += [
        text(left + 2 * edge * pixels + 28, 84 + 28 * k, words, size=14, colour=colour, anchor="start")
        for k, (words, colour) in enumerate(lines)
    ]
    return svg(764, 272, "Tiles that cover an array", parts)


def drawings() -> dict[str, str]:
    """Return the pictures that need no kernel, by their file names."""
    return {"graphs-two-streams.svg": graphs(), "tiles-cover.svg": tiles()}


def program(page: str, blocks: int) -> dict[str, Any]:
    """Run the first blocks of a page on the emulator, and return their names."""
    source = re.findall(r"```python\n(.*?)```", (HERE / page).read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec("".join(source[:blocks]), names)
    return names


def traced() -> dict[str, str]:
    """Return the timelines, by their file names."""
    import numpy as np

    import cudakit as ck

    ck.stream = ck.emulator.stream
    names = program("streams.md", 1)
    step, x, n = (names[name] for name in ("step", "x", "n"))
    y = ck.to_device(np.zeros(n, np.float32), names["stream"])
    names["stream"].sync()
    with ck.trace({"stream": names["stream"], "second": names["second"]}) as order:
        step(names["stream"], ck.cover(n), x, 1.0, n)
        step(names["second"], ck.cover(n), y, 1.0, n)
        step(names["second"], ck.cover(n), x, 1.0, n)
    names = program("pipelines.md", 2)
    names["n"] = 100  # a copy then takes about as long as the kernel
    with ck.trace() as run:
        list(ck.Pipeline([names["smooth"]], depth=2)(np.full(100, number, np.float32) for number in range(6)))
    return {"streams-order.svg": streams(order.spans), "pipelines-timeline.svg": pipelines(run.spans)}


def main() -> None:
    """Draw them all."""
    for name, drawing in (drawings() | traced()).items():
        (FOLDER / name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
