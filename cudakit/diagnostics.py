"""NVRTC's log, placed in what the user wrote: file, line, source line and caret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cudakit import headers
from cudakit.errors import CompileError
from cudakit.source import Source

_HEAD = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<severity>error|catastrophic error|warning|note|remark)"
    r"(?: #(?P<number>[\w-]+))?: (?P<message>.*)$"
)
_NAME_MAP = "__nv_name_map"
_MISSING_HEADER = re.compile(r'could not open source file "([^"]+)"|cannot open source file "([^"]+)"')


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler.

    Attributes
    ----------
    file, line : str, int
        Where, as the user knows it.
    severity : str
        ``error``, ``warning``, ``note`` …
    message : str
    context : tuple of str
        The source line and the caret under it, then notes such as the instantiation.
    """

    file: str
    line: int
    severity: str
    message: str
    context: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}: {self.severity}: {self.message}"
        return "\n".join([head, *(f"    {line}" for line in self.context)])


def read_log(log: str) -> list[Diagnostic]:
    """The diagnostics in NVRTC's `log`, in its order, placed as the compiler placed them."""
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in log.replace("\0", "").splitlines():
        match = _HEAD.match(line)
        if match:
            found.append((match, []))
        elif re.match(r"^\d+ errors? detected|^$", line.strip()):
            continue
        elif found:
            found[-1][1].append(line)
    return [
        Diagnostic(match["file"], int(match["line"]), match["severity"], match["message"], _dedent(context))
        for match, context in found
    ]


def _dedent(lines: list[str]) -> tuple[str, ...]:
    """Lines without the two columns that NVRTC indents by, so that the caret keeps its place."""
    return tuple(line[2:] if line.startswith("  ") else line for line in lines)


def compile_error(
    source: Source, name_expression: str, options: tuple[str, ...], text: str, failure: str, lines_before: int = 0
) -> CompileError:
    """The `CompileError` for NVRTC's `failure` (its exception's text, which holds the log).

    `lines_before` counts generated lines that the compiler takes for the source's own.
    """
    log = failure.split("compilation log:", 1)[-1].strip("\0\n ")
    diagnostics = read_log(log)
    errors = [d for d in diagnostics if "error" in d.severity]
    shift, file = _origin(source)
    shift -= lines_before
    shown = [str(_placed(d, source, file, shift, name_expression)) for d in diagnostics if d.severity != "remark"]
    hints = [hint for d in errors for hint in _hints(d)]
    count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}" if errors else "an error"
    message = "\n".join(
        [
            f"NVRTC found {count} compiling {name_expression}",
            *(shown or [log or failure]),
            *dict.fromkeys(hints),
            f"options: {' '.join(options)}",
        ]
    )
    return CompileError(message, log=log, source=text, options=options, template_arguments=name_expression)


def _placed(d: Diagnostic, source: Source, file: str, shift: int, name_expression: str) -> Diagnostic:
    if d.file == source.name:
        return Diagnostic(file, d.line + shift, d.severity, d.message, d.context)
    if d.file == _NAME_MAP:
        context = tuple(line for line in d.context if "#pragma" not in line and line.strip() != "^")
        return Diagnostic(f"{file}, template arguments of {name_expression}", 1, d.severity, d.message, context)
    return d


def _origin(source: Source) -> tuple[int, str]:
    """How far a string's lines lie from the lines of the Python file it stands in, and that file's name."""
    if source.origin is None:
        return 0, source.name
    path, call_line = source.origin
    try:
        python = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return 0, source.name
    places = [match.start() for match in re.finditer(re.escape(source.text), python)]
    if not places:
        return 0, f"{source.name} of {path}:{call_line}"
    lines = [python.count("\n", 0, place) for place in places]
    return min(lines, key=lambda line: abs(line + 1 - call_line)), path


def _hints(d: Diagnostic) -> list[str]:
    match = _MISSING_HEADER.search(d.message)
    if not match:
        return []
    header = match[1] or match[2]
    wheel = headers.wheel_for(header)
    if wheel:
        return [
            f"hint: <{header}> comes with the wheel {wheel}: pip install 'cudakit[cu13]' (or [cu12]), "
            f"or pip install {wheel}"
        ]
    return [f'hint: add the folder that holds "{header}" with options=CompileOptions(include_paths=[…])']
