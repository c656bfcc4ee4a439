"""What benchmarks that write one table have in common: their options, what they ran on, and the table."""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path


def options(description: str | None, repeats: int) -> argparse.Namespace:
    """What the command line says: ``output`` and ``repeats``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, help="write the table here too")
    parser.add_argument("--repeats", type=int, default=repeats)
    return parser.parse_args()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in rows)]


def publish(title: str, lines: Iterable[str], output: Path | None) -> None:
    """Print a page under its title and what it was measured on; write it to `output` too."""
    text = "\n".join([f"# {title}", "", *(f"- {line}" for line in environment_lines()), "", *lines]) + "\n"
    print(text)
    if output:
        output.write_text(text)


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
    return lines


def card_line() -> str:
    """The first GPU and its driver."""
    import cupy

    smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    version = subprocess.run(smi, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    return f"{cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}, driver {version}"


def own_version() -> str:
    """Cudakit's version, where it runs from its checkout without being installed too."""
    import cudakit as ck

    if not ck.__version__.endswith("unknown"):
        return ck.__version__
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    return f"{project['version']} (from its checkout)"
