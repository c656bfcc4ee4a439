"""Two checkouts of cudakit in one run: a process a side, which time the same case in turns."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tables import table_head, table_row

from cases.peers import ALONE

BENCHMARKS = Path(__file__).parents[1]
#: Turns of a row; of one that looks worse.
TURNS, MOST_TURNS = 3, 9
WORSE = 1.02


class Side:
    """A process that imports cudakit from `checkout` and times cases as it is told; `side.py` is its program."""

    def __init__(self, checkout: Path, *arguments: str) -> None:
        self.checkout = checkout.resolve()
        path = (str(self.checkout), str(BENCHMARKS), os.environ.get("PYTHONPATH", ""))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path).rstrip(os.pathsep), ALONE: "1"}
        # -P: the present folder, which may be a checkout too, is no place to import from.
        command = [sys.executable, "-P", "-m", "cases.side", str(self.checkout), *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, command: str) -> None:
        """Send a command: ``next``, ``time`` or ``skip``."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The answer to the first command that has none yet."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {self.checkout} ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compared(groups: Sequence[str], baseline: Path, quick: bool) -> Iterator[str]:
    """Lines of a table of all cases of `groups`: old, new, and the new time over the old; then which are worse."""
    checkouts = [baseline, BENCHMARKS.parent]
    given = ["--quick"] * quick
    yield f"Old: {described(baseline)}. New: {described(BENCHMARKS.parent)}. In GB/s; at 1,024 elements µs of a call."
    yield f"Medians of {TURNS} turns, old and new one after the other; of up to {MOST_TURNS} where the new one seems"
    yield f"slower by more than {WORSE - 1:.0%}."
    yield ""
    # All is compiled beforehand, at once; what was compiled is on disk.
    warming = [Side(checkout, "--warm", *given, group) for group in groups for checkout in checkouts]
    for side in warming:
        side.close()
    yield from table_head(("group", "op", "dtype", "elements", "old", "new", "new time / old", ""))
    sides = [Side(checkout, *given, *groups) for checkout in checkouts]
    ratios: dict[str, float] = {}
    failed: list[str] = []
    try:
        for group in groups:
            for names, old_ms, new_ms, error in rows(sides, group):
                what = " ".join((group, *names[:3]))
                if error:
                    failed.append(f"{what}: {error}")
                    continue
                ratios[what] = new_ms / old_ms
                yield table_row(_line(group, names, old_ms, new_ms))
    finally:
        for side in sides:
            side.close()
    yield ""
    yield from summary(ratios, failed)


def rows(sides: list[Side], group: str) -> Iterator[tuple[tuple[str, ...], float, float, str]]:
    """Each case of a group: op, dtype, elements and bytes; its two times; or why there are none."""
    while True:
        # Both make the case at once, and each is alone when it is timed.
        for side in sides:
            side.tell("next")
        found = [side.hear() for side in sides]
        errors = {
            name: answer["error"] for name, answer in zip(("old", "new"), found, strict=True) if "error" in answer
        }
        if any("op" not in answer for answer in found):
            if errors:
                yield (), 0.0, 0.0, f"{errors}; nor what follows in this group"
            for side, answer in zip(sides, found, strict=True):
                if "op" in answer:
                    side.tell("skip")
            return
        names = tuple(str(found[0][name]) for name in ("op", "dtype", "size", "bytes"))
        taken: list[list[float]] = [[], []]
        while not errors and not is_settled(taken):
            for name, side, times in zip(("old", "new"), sides, taken, strict=True):
                side.tell("time")
                answer = side.hear()
                times.append(answer.get("ms", 0.0))
                errors |= {name: answer["error"]} if "error" in answer else {}
        if errors:
            yield names, 0.0, 0.0, str(errors)
        else:
            yield names, statistics.median(taken[0]), statistics.median(taken[1]), ""


def is_settled(taken: list[list[float]]) -> bool:
    """Whether enough turns are taken; what looks worse has more of them."""
    old, new = taken
    if len(new) < TURNS or len(new) >= MOST_TURNS:
        return len(new) >= MOST_TURNS
    return statistics.median(new) / statistics.median(old) <= WORSE


def _line(group: str, names: tuple[str, ...], old_ms: float, new_ms: float) -> tuple[str, ...]:
    from cases.case import rate

    op, dtype, size, moved = names[0], names[1], int(names[2]), int(names[3])
    old, new = (rate(ms, size, moved) for ms in (old_ms, new_ms))
    mark = "worse" if new_ms / old_ms > WORSE else ""
    return group, op, dtype, f"{size:,}", old, new, f"{new_ms / old_ms:.3f}", mark


def summary(ratios: dict[str, float], failed: list[str]) -> Iterator[str]:
    """How many rows there are, and which of them are worse, worst first."""
    if ratios:
        mean = statistics.geometric_mean(ratios.values())
        yield f"{len(ratios)} rows; the new time is {mean:.3f} × the old in the mean."
    worse = sorted((ratio, what) for what, ratio in ratios.items() if ratio > WORSE)[::-1]
    yield f"Worse by more than {WORSE - 1:.0%}: {len(worse)}{':' if worse else '.'}"
    yield ""
    for ratio, what in worse:
        yield f"- {what}: {ratio:.3f}"
    for what in failed:
        yield f"- not measured: {what}"


def described(checkout: Path) -> str:
    """The commit of a checkout, and whether files in it differ from that; its folder's name where git cannot say."""
    if not shutil.which("git") or not (checkout / ".git").exists():
        return checkout.resolve().name
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or checkout.resolve().name
