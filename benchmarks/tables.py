"""Pages of benchmarks: what they ran on, the command that made them, and tables in Markdown."""

from __future__ import annotations

import datetime
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown, each as its row is found."""
    yield from table_head(header)
    for row in rows:
        yield table_row(row)


def table_head(header: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [table_row(header), f"|{'---|' * len(header)}"]


def table_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def page_head(title: str, words: Sequence[str]) -> list[str]:
    """The first lines of a page: its title, what it was measured on, and the command, given as `words`."""
    return [f"# {title}", "", *(f"- {line}" for line in environment_lines()), f"- `{command_line(words)}`", ""]


def page_name(family: str) -> str:
    """The name of a family's page: with the card, as ``launch-h200.md``, where it needs one."""
    import cudakit as ck

    if family == "emulator" or not ck.has_gpu():
        return f"{family}.md"
    return f"{family}-{_card().split()[-1].lower()}.md"


def command_line(words: Sequence[str]) -> str:
    """The command, without where its page goes and where on this machine a folder is."""
    shown: list[str] = []
    for word, former in zip(words, ("", *words), strict=False):
        if former != "--output" and word.partition("=")[0] != "--output":
            shown.append(Path(word).name if os.path.isabs(word) else word)
    return shlex.join(["python", "benchmarks/run.py", *shown])


def environment_lines() -> list[str]:
    """Card, driver and versions."""
    import cuda.core
    from cuda.bindings import driver, nvrtc

    import cudakit as ck

    lines = [
        f"date: {datetime.date.today()}",
        f"python {sys.version.split()[0]}, cudakit {own_version()}, cuda-core {cuda.core.__version__}",
    ]
    lines.append("NVRTC {}.{}".format(*nvrtc.nvrtcVersion()[1:]))
    if ck.has_gpu():
        import cupy

        version = driver.cuDriverGetVersion()[1]
        cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
        lines.append(f"{card_line()} ({cuda}), cupy {cupy.__version__}")
    lines.append(f"{os.cpu_count()} cores")
    return lines


def card_line() -> str:
    """The first GPU and its driver."""
    smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    version = subprocess.run(smi, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    return f"{_card()}, driver {version}"


def _card() -> str:
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def own_version() -> str:
    """Cudakit's version, where it runs from its checkout without being installed too."""
    import cudakit as ck

    if not ck.__version__.endswith("unknown"):
        return ck.__version__
    version = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "version.py"))["version"]
    return f"{version()} (from its checkout)"
