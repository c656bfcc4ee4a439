"""The cards of gallery.md: a program's picture or output, its subject, and its measured rate.

Pictures are those of docs/_static/gallery, which gallery_pictures.py draws; figures are cells of benchmarks/results.
"""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import generated
import plots

PICTURES = Path(__file__).parent / "_static" / "gallery"
NOTEBOOKS = generated.EXAMPLES / "notebooks"
LINES = 8

#: Of a program: the page, cells of the row that is meant, the column, and how it is said.
MEASURED = {
    "tutorial/add_benchmark": ("kernels", ("add", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.add</code>: {} GB/s"),
    "tutorial/core_vector_add": ("launch", ("prepared call (plan)",), "time", "a launch by a plan: {}"),
    "tutorial/graph_capture": (
        "graphs", ("`ck.capture` graph, a kernel of 100",), "time", "a kernel of a hundred in a graph: {}",
    ),
    "tutorial/histogram": (
        "kernels", ("histogram, uniform", "uint8", "268,435,456"), "cudakit, GB/s",
        "<code>ck.ops.histogram</code>: {} GB/s",
    ),
    "tutorial/linear_combination": (
        "generate", ("axpby, out=", "float32", "268,435,456"), "cudakit, GB/s", "<code>axpby</code>: {} GB/s",
    ),
    "tutorial/patterns": ("kernels", ("cumsum", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.cumsum</code>: {} GB/s"),
    "tutorial/reductions": ("kernels", ("max", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.max</code>: {} GB/s"),
    "tutorial/round_trip": (
        "memory", ("256 MiB to device",), "cudakit, pinned", "256 MiB of pinned memory to the device: {} GB/s",
    ),
    "tutorial/saxpy": ("launch", ("checked call, 3 arrays + 1 int",), "time", "a checked call: {}"),
    "tutorial/transpose": (
        "kernels", ("transpose", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.transpose</code>: {} GB/s",
    ),
    "optimise/reduce/reduce": ("kernels", ("sum", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.sum</code>: {} GB/s"),
    "optimise/transpose/transpose": (
        "kernels", ("transpose", "268,435,456"), "cudakit, GB/s", "<code>ck.ops.transpose</code>: {} GB/s",
    ),
    "out_of_core": (
        "pipeline", ("pageable, `map_array` of one array into another",), "GB/s each way",
        "an array through a pipeline and back: {} GB/s each way",
    ),
    "video_pipeline": (
        "pipeline", ("pinned, light kernel (0.05 ms a chunk)",), "of the bound",
        "of what copies and kernels allow, a pipeline reaches {}",
    ),
}  # fmt: skip


class Card(NamedTuple):
    """A program: its page under docs/programs, its subject, and its output or its kernel."""

    page: str
    about: str
    shown: str


def measured(page: str, cells: tuple[str, ...], column: str, text: str) -> str:
    """Return the measurement on the H200 in words, from the first row that has all the cells."""
    rows = [row for row in plots.rows(f"{page}-h200.md") if set(cells) <= set(row.values()) and row.get(column)]
    return text.format(rows[0][column])


def program(path: Path) -> Card:
    """Return the card of a program of examples/."""
    first, rest = generated.docstring(path)
    printed = rest.partition(generated.PRINTS)[2] or kernel(path)
    return Card(
        path.relative_to(generated.EXAMPLES).with_suffix("").as_posix(), first, textwrap.dedent(printed).strip("\n")
    )


def kernel(path: Path) -> str:
    """Return the program's first kernel, or its first lines."""
    beside = path.with_suffix(".cu")
    text = (beside if beside.is_file() else path).read_text(encoding="utf-8")
    start = re.search(r"^(template .*\n)?(extern \"C\" )?__global__", text, re.MULTILINE)
    return text[start.start() :] if start else text


def notebook(path: Path) -> Card:
    """Return the card of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, _, about = "".join(cells[0]["source"]).removeprefix("# ").partition("\n\n")
    printed = [text for cell in cells if cell["cell_type"] == "code" for text in outputs(cell)]
    return Card(f"notebooks/{path.stem}", f"{title}. {about.replace(chr(10), ' ')}", max(printed, key=len))


def outputs(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the text outputs of a notebook's cell."""
    for output in cell["outputs"]:
        yield "".join(output.get("text") or output["data"]["text/plain"]).rstrip()


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *(f"```text\n{text}\n```" for text in outputs(cell))]
    text = "\n\n".join(parts).replace(".ipynb)", ".md)").replace("../../docs/", "../../")
    return text.replace("../tutorial/README.md", "../tutorial/index.md") + "\n"


def sections() -> Iterator[tuple[str, list[Card]]]:
    """Yield the tutorial's sections, the longer programs, and the notebooks."""
    for part in (generated.TUTORIAL / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, table = part.partition("\n")
        names = dict.fromkeys(re.findall(r"^\| \[(\w+)\.py\]", table, re.MULTILINE))
        yield title, [program(generated.TUTORIAL / f"{name}.py") for name in names]
    others = [path for path in sorted(generated.EXAMPLES.rglob("*.py")) if path.parent != generated.TUTORIAL]
    yield "Longer programs", [program(path) for path in others]
    yield "Notebooks", [notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]


def drawn(card: Card) -> str:
    """Return a card as HTML."""
    name = Path(card.page).name
    picture = f'<img src="_static/gallery/{name}.png" alt="" width="320" height="200">'
    if not (PICTURES / f"{name}.png").is_file():
        picture = f"<pre>{html.escape(chr(10).join(card.shown.splitlines()[:LINES]))}</pre>"
    about = re.sub(r"`+(.*?)`+", r"<code>\1</code>", html.escape(card.about))
    figure = f"<small>H200, {measured(*MEASURED[card.page])}</small>" if card.page in MEASURED else ""
    return f'<a href="programs/{card.page}.html">{picture}<b>{name}</b><span>{about}</span>{figure}</a>'


def write(docs: Path) -> None:
    """Write the cards for gallery.md, and the notebooks' pages."""
    for path in NOTEBOOKS.glob("*.ipynb"):
        page = docs / "programs" / "notebooks" / f"{path.stem}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(notebook_page(path), encoding="utf-8")
    parts = []
    for title, cards in sections():
        body = "\n".join(drawn(card) for card in cards)
        parts.append(f'## {title}\n\n`````{{raw}} html\n<div class="cards">\n{body}\n</div>\n`````\n')
    (docs / "made" / "gallery.md").write_text("\n".join(parts), encoding="utf-8")
