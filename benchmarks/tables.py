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


def publish(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], output: Path | None) -> None:
    """Print a table in Markdown, under its title and what it was measured on; write it to `output` too."""
    lines = [f"# {title}", "", *(f"- {line}" for line in environment_lines()), ""]
    lines += [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    text = "\n".join(lines) + "\n"
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
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        smi = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        )
        cuda = f"CUDA {version // 1000}.{version % 1000 // 10}"
        lines.append(f"{name}, driver {smi.stdout.splitlines()[0]} ({cuda}), cupy {cupy.__version__}")
    return lines


def own_version() -> str:
    """Cudakit's version, where it runs from its checkout without being installed too."""
    import cudakit as ck

    if not ck.__version__.endswith("unknown"):
        return ck.__version__
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    return f"{project['version']} (from its checkout)"
