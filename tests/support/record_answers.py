"""Runs every instruction form on a GPU and stores its answers, for machines without one to replay.

PYTHONPATH=tests python -m support.record_answers --output tests/support/instructions/sm_90.xz
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    """Record, and say what was refused."""
    from cuda.bindings import driver
    from cuda.core import Device
    from support.instructions.answers import Answers
    from support.instructions.catalogue import catalogue
    from support.instructions.places import on_gpu

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    path: Path = parser.parse_args().output
    device = Device()
    device.set_current()
    forms = catalogue()
    started = time.perf_counter()
    found, refused = on_gpu(list(forms.values()))
    about = {
        "card": device.name,
        "driver CUDA version": driver.cuDriverGetVersion()[1],
        "cuda-core": version("cuda-core"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "refused": refused,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    Answers(about, {name: (forms[name].digest(), found[name]) for name in forms if name in found}).save(path)
    seconds = time.perf_counter() - started
    print(f"{device.name}: {len(found)} forms in {seconds:.0f} s, {path.stat().st_size} bytes, {len(refused)} refused")
    for name, reason in refused.items():
        print(f"refused: {name}: {reason}")


if __name__ == "__main__":
    main()
