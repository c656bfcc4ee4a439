"""Lines of code by room: ``python benchmarks/loc.py [CHECKOUT]``. No comments, no docstrings, no blank lines.

Python under ``cudakit/``, a room being a folder of it (of ``jit/`` and ``emulator/`` each folder in it), and CUDA under
``templates/``.
"""

from __future__ import annotations

import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

_SPACE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def python_lines(path: Path) -> int:
    """Lines with a token that is no comment and no string that stands alone."""
    lines: set[int] = set()
    starts = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.NL):
                continue
            if token.type not in _SPACE and not (starts and token.type == tokenize.STRING):
                lines.update(range(token.start[0], token.end[0] + 1))
            starts = token.type in _SPACE or (starts and token.type == tokenize.STRING)
    return len(lines)


def cuda_lines(path: Path) -> int:
    """Lines that are not empty without their comments."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    return sum(bool(line.strip()) for line in text.splitlines())


def room(path: Path) -> str:
    """The folder of a file, two levels deep where the first has floors of its own; files beside the folders: ``.``."""
    folders = path.parts[:-1]
    return "/".join(folders[: 2 if folders[:1] in (("jit",), ("emulator",)) else 1]) or "."


def counted(folder: Path, pattern: str) -> tuple[Counter[str], Counter[str]]:
    """Lines and files by room."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in folder.rglob(pattern):
        name = room(path.relative_to(folder))
        lines[name] += python_lines(path) if pattern == "*.py" else cuda_lines(path)
        files[name] += 1
    return lines, files


def main() -> None:
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    for folder, pattern in (("cudakit", "*.py"), ("templates", "*.cuh")):
        lines, files = counted(checkout / folder, pattern)
        for name in sorted(lines):
            print(f"{folder}/{name:24}{lines[name]:7,} lines{files[name]:5} files")
        print(f"{folder + ', all':33}{lines.total():7,} lines{files.total():5} files\n")


if __name__ == "__main__":
    main()
