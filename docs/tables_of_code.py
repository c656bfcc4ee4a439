"""Tables generated from the code, as Markdown, which pages include from docs/made/."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cudakit import cli, reports
from cudakit.jit.cache import settings
from cudakit.jit.source.headers import templates_folder
from cudakit.types import cpp, structs

KERNEL = re.compile(
    r"(?P<comment>(?:^//.*\n)+)(?P<head>template <[^{;]*?)?"
    r"(?:^\[\[.*\]\]\n)?^__(?:tile_)?global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(?P<name>\w+)\(",
    re.MULTILINE,
)


def fragments() -> dict[str, str]:
    """Return all tables, by the names of their files in docs/made/."""
    made = {
        "scalars": scalars(),
        "vectors": vectors(),
        "fields": fields(),
        "templates": templates(),
        "headers": headers(),
        "commands": commands(),
        "kinds": kinds(),
        "variables": variables(),
    }
    return {f"{name}.md": text for name, text in made.items()}


def write(docs: Path) -> None:
    """Write all tables."""
    folder = docs / "made"
    folder.mkdir(exist_ok=True)
    for name, text in fragments().items():
        (folder / name).write_text(text, encoding="utf-8")


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table. Bars in its cells are escaped."""
    lines = [heads, ("---",) * len(heads), *((cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(*words: str) -> str:
    """Return words as code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def scalars() -> str:
    """Return a row for each dtype that is a C++ type."""
    by_dtype: dict[np.dtype, list[str]] = {}
    for name in (*cpp.SCALARS, *cpp.ML_SCALARS):
        dtype = cpp.scalar(name)
        assert dtype is not None
        by_dtype.setdefault(dtype, []).append(name)
    rows = []
    for dtype, names in sorted(by_dtype.items(), key=lambda row: ("biufcV".index(row[0].kind), row[0].itemsize)):
        first = cpp.spelling(dtype)
        assert first is not None
        others = [name for name in names if name != first and "::" not in name]
        header = cpp.HEADER.get(first.partition("<")[0])
        rows.append((code(dtype.name), code(first), code(*others), f"`<{header}>`" if header else ""))
    return table(("dtype", "C++", "also", "needs"), rows)


def vectors() -> str:
    """Return a row for each component type of vectors."""
    families: dict[str, list[str]] = {}
    for name in (*cpp.VECTORS, "__nv_bfloat162", "nv_bfloat162"):
        base = name.rstrip("0123456789") if not name.endswith("162") else name.removesuffix("2")
        families.setdefault(base, []).append(name)
    rows = []
    for names in families.values():
        found = [cpp.vector(name) for name in names]
        parts = [each for each in found if each is not None]
        alignments = ", ".join(str(alignment) for _, _, alignment in parts)
        rows.append((code(*names), code(parts[0][0].name), alignments))
    return table(("C++", "components", "aligned to bytes"), rows)


def fields() -> str:
    """Return the C++ types of a dataclass's annotations, by `struct_dtype`."""
    inner = dataclasses.make_dataclass("Inner", [("weight", np.float64), ("kind", np.uint8)])
    shown = [
        ("np.float32", np.float32, "float x"),
        ("np.int32", np.int32, "int x"),
        ("np.uint8", np.uint8, "unsigned char x"),
        ("np.bool_", np.bool_, "bool x"),
        ("np.float16", np.float16, "__half x"),
        ("np.complex64", np.complex64, "cuda::std::complex<float> x"),
        ("int", int, "long long x"),
        ("float", float, "double x"),
        ("bool", bool, "bool x"),
        ("complex", complex, "cuda::std::complex<double> x"),
        ("Annotated[np.float32, (4, 4)]", Annotated[np.float32, (4, 4)], "float x[4][4]"),
        ("Annotated[np.int16, 3]", Annotated[np.int16, 3], "short x[3]"),
        ("Inner, a dataclass of np.float64 and np.uint8", inner, "Inner x"),
    ]
    rows = []
    for words, annotation, declared in shown:
        made: Any = dataclasses.make_dataclass("Shown", [("x", annotation)])
        dtype = structs.struct_dtype(made)
        kind = dtype[0].base
        expected = "Inner" if kind.names else cpp.spelling(kind)
        assert declared.startswith(f"{expected} x"), (declared, expected)
        rows.append((f"`{words}`", f"`{declared};`", str(dtype.itemsize)))
    return table(("annotation", "C++", "bytes"), rows)


# ── templates and headers ────────────────────────────────────────────────────────────────────────────────────────────


def templates() -> str:
    """Return a section for each file of templates/, with the comments above its kernels."""
    folder = templates_folder()
    return "\n".join(_concept(path) for path in (*sorted(folder.glob("*.cuh")), *sorted(folder.glob("tile/*.cuh"))))


def _concept(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    found = list(KERNEL.finditer(text))
    kernels = re.findall(r"^__(?:tile_)?global__", text, re.MULTILINE)
    assert len(found) == len(kernels), f"{path.name}: a kernel without a comment"
    concept = path.relative_to(templates_folder()).with_suffix("").as_posix()
    lines = [f"### {concept}\n"]
    for kernel in found:
        head = " ".join((kernel["head"] or "").split()).replace("< ", "<")
        lines += [f"`{concept}/{kernel['name']}`" + (f", `{head}`" if head else "") + "\n"]
        lines.append(_prose(kernel["comment"]))
    return "\n".join(lines)


def headers() -> str:
    """Return a section for each header that users include."""
    return "\n".join(_header(path) for path in sorted((templates_folder() / "include" / "cudakit").glob("*.cuh")))


def _header(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    first = re.match(r"(?://.*\n)+", text)
    assert first, f"{path.name} does not say what it is for"
    lines = [f"### `<cudakit/{path.name}>`\n", _prose(first[0])]
    rows = [
        (f"`{_declared(text[at.end() :])}`", _sentence(at[0]))
        for at in re.finditer(r"(?:^ *///.*\n)+", text, re.MULTILINE)
    ]
    if rows:
        lines.append(table(("declares", "which is"), rows))
    return "\n".join(lines)


def _declared(rest: str) -> str:
    """Return the declaration at the start of a text, without its body."""
    head = re.match(r"[^{;]*", re.sub(r"^ *// .*\n", "", rest))
    assert head
    words = re.sub(r" = [^,)>]+|(?<=\)) : .*", "", " ".join(head[0].split())).replace("< ", "<")
    return re.sub(r"\b(inline|constexpr|static|explicit|__device__|__host__) ", "", words)


def _prose(comment: str) -> str:
    """Convert a comment to paragraphs, items (``Shapes: …``), and code (indented by four)."""
    parts: list[tuple[str, list[str]]] = []
    kind = ""
    for line in (line.removeprefix("//").removeprefix(" ") for line in comment.splitlines()):
        if not line:
            kind = ""
        elif line.startswith("    ") or re.match(r"\w+: ", line) or not kind or (kind == "code" and line[0] != " "):
            before, kind = kind, "code" if line.startswith("    ") else "item" if re.match(r"\w+: ", line) else "text"
            if not (before == kind == "code"):
                parts.append((kind, []))
            parts[-1][1].append(line)
        else:
            parts[-1][1].append(line)
    return "\n".join(_block(kind, lines) for kind, lines in parts) + "\n"


def _block(kind: str, lines: list[str]) -> str:
    if kind == "code":
        return "\n```cuda\n" + "\n".join(line[4:] for line in lines) + "\n```\n"
    words = _escaped(" ".join(line.strip() for line in lines))
    return re.sub(r"^(\w+):", r"- **\1**:", words) if kind == "item" else f"{words}\n"


def _sentence(comment: str) -> str:
    return _escaped(" ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines()))


def _escaped(words: str) -> str:
    return re.sub(r"`[^`]*`|[<_*]", lambda found: found[0] if len(found[0]) > 1 else f"\\{found[0]}", words)


# ── the command line and the environment ─────────────────────────────────────────────────────────────────────────────


def commands() -> str:
    """Return a section for each command, from its parser."""
    return "\n".join(_command(parser, text) for parser, text in _leaves(cli.parser(), ""))


def _leaves(parser: argparse.ArgumentParser, text: str) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield parser, text
    for action in inner:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, child in action.choices.items():
            yield from _leaves(child, helps[name])


def _command(parser: argparse.ArgumentParser, text: str) -> str:
    words = " ".join(parser.format_usage().removeprefix("usage: ").split())
    # As wide as a page's code; between arguments only.
    whole = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", "\0"), words)
    lines = textwrap.wrap(whole, 90, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    usage = "\n".join(lines).replace("\0", " ")
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        takes = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
        rows.append((f"`{name}{takes}`", action.help or ""))
    listed = table(("argument", "is"), rows) if rows else ""
    return f"### {parser.prog}\n\n{text[:1].upper()}{text[1:]}.\n\n```text\n{usage}\n```\n\n{listed}"


def kinds() -> str:
    """Return a row for each kind of problem, with its exit status."""
    rows = [("0", "", "no problem"), *((str(row.status), f"`{name}`", row.text) for name, row in reports.KINDS.items())]
    return table(("status", "kind", "is"), rows)


def variables() -> str:
    """Return a row for each environment variable, from the docstring of `settings`."""
    lines = inspect.getdoc(settings)
    assert lines
    border = re.search(r"^=+ +=+ +(=+)$", lines, re.MULTILINE)
    assert border
    third = border.start(1) - border.start()
    rows = []
    for line in lines[border.end() :].splitlines():
        if name := re.match(r"(``\w+``)\s+", line):
            cells = (name[1], line[name.end() : third].strip(), line[third:].strip())
            rows.append(tuple(cell.replace("``", "`") for cell in cells))
    return table(("variable", "meaning", "default"), rows)


if __name__ == "__main__":
    write(Path(__file__).parent)
