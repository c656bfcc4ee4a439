"""Generate docs/api from the docstrings, docs/programs from examples/, and docs/made from the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tables_of_code

import cudakit as ck

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TUTORIAL = EXAMPLES / "tutorial"
PRINTS = "Prints::\n"  # in a program's docstring, before its recorded output
RECORDED = "Output, recorded on the emulator, on a machine without a GPU:"


def _classes(base: type) -> set[str]:
    """Return the names of `cudakit` that are classes derived from `base`."""
    return {name for name in ck.__all__ if isinstance(value := getattr(ck, name), type) and issubclass(value, base)}


#: Pages of the reference for the names of `cudakit`: title, description, names, related modules.
SUBJECTS = {
    "kernels": (
        "Kernels",
        "Compile a kernel and launch it.",
        "Kernel Module CompileOptions cover Cover config Config Plan prewarm use_bundle",
        "adapters",
    ),
    "streams": (
        "Streams and devices",
        "Choose where kernels run, and in which order.",
        "stream using has_gpu device_limits show_config",
        "emulator",
    ),
    "memory": (
        "Memory",
        "Allocate memory, copy it, and pass host arrays to a kernel.",
        "to_device to_host empty allocated In Out InOut texture surface tensor_map",
        "memory",
    ),
    "expressions": (
        "Kernels from expressions",
        "Build a kernel from an expression or from a Python function.",
        "elementwise reduction scan stencil fuse",
        "generate ops math random",
    ),
    "graphs": ("Graphs", "Capture calls once and launch them again as one.", "Graph capture", ""),
    "pipelines": (
        "Pipelines",
        "Run many items through several streams.",
        "Pipeline",
        "pipeline scale",
    ),
    "timing": (
        "Timing",
        "Measure a call, record what ran when, and find the fastest variant.",
        "Timer trace tune",
        "hazards tuning",
    ),
    "checks": (
        "Checks and proofs",
        "Find races, wrong addresses and other faults without a GPU.",
        "check prove",
        "testing hazards",
    ),
    "errors": (
        "Errors and warnings",
        "Every exception of cudakit is a `CudakitError`.",
        " ".join(["report", *sorted(_classes(Exception) - _classes(Warning)), *sorted(_classes(Warning))]),
        "errors",
    ),
}
LINK = re.compile(r"\]\((\w+)\.py\)")


def modules() -> list[str]:
    """Return the public modules: `cudakit`, those that it names, and those that these name."""
    result = ["cudakit"]
    for module in result:
        namespace = importlib.import_module(module)
        result += [f"{module}.{name}" for name in public(module) if inspect.ismodule(getattr(namespace, name))]
    return result


def public(module: str) -> list[str]:
    """Return the public names of a module, with the functions of `cudakit.math`'s table."""
    namespace = importlib.import_module(module)
    if hasattr(namespace, "__all__"):
        return [*namespace.__all__, *(ck.math.TABLE if namespace is ck.math else ())]
    return [name for name, value in vars(namespace).items() if inspect.isclass(value) and name[0] != "_"]


def write(docs: Path) -> None:
    """Write the generated folders."""
    tables_of_code.write(docs)
    for folder, pages in (("api", api()), ("programs", programs())):
        shutil.rmtree(docs / folder, ignore_errors=True)
        for name, text in pages:
            path = docs / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def api() -> Iterator[tuple[str, str]]:
    """Yield the pages of the reference: one for each subject, one for each module, and the list."""
    package, *others = modules()
    lists = f"By subject:\n\n{_toctree([*SUBJECTS])}\nBy module:\n\n{_toctree([package, *others])}"
    yield "index.rst", _titled("Reference", f"Every public name, from its docstring.\n\n{lists}")
    yield f"{package}.rst", _titled(package, f".. automodule:: {package}\n   :no-members:\n")
    for page, (title, about, names, related) in SUBJECTS.items():
        entries = "\n".join(_entry(package, name) for name in names.split())
        links = ", ".join(f":doc:`cudakit.{module}`" for module in related.split())
        more = f"\n\nMore: {links}." if links else ""
        text = f"{about}{more}\n\n.. currentmodule:: {package}\n\n{entries}"
        yield f"{page}.rst", _titled(title, text)
    for module in others:
        names = sorted(public(module), key=lambda name: (name.lower(), name))
        entries = "\n".join(_entry(module, name) for name in names)
        yield f"{module}.rst", _titled(module, f".. automodule:: {module}\n   :no-members:\n\n{entries}")


def _entry(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    full = f"{module}.{name}"
    if inspect.ismodule(value):
        return f"* :doc:`{full}`\n"
    if isinstance(value, ck.math.Ufunc):
        entry = ck.math.TABLE[name]
        errors = f"At most {entry.single} ulp from the exact value in float32, {entry.double} in float64."
        if name.startswith("logaddexp"):
            errors += " Ulps of the larger input, where that is larger than the result."
        inputs = "x, y" if getattr(np, name).nin == 2 else "x"
        call = f'{name}({inputs}, *, out=None, where=None, stream=None, dtype=None, casting="same_kind")'
        return f".. py:function:: {call}\n\n   ``{entry.expression}``. {errors}\n"
    if isinstance(value, Mapping):
        reasons = "".join(f"   {key}\n      {text}\n" for key, text in value.items() if isinstance(text, str))
        return f".. py:data:: {name}\n   :type: dict\n\n{reasons or '   By name.'}\n"
    if module != "cudakit" and getattr(ck, name, None) is value:
        if full == f"{value.__module__}.{name}":  # autodoc has given it this name, too
            return f"* :py:obj:`cudakit.{name}`\n"
        kind = "class" if inspect.isclass(value) else "data"
        return f".. py:{kind}:: {name}\n\n   The same as :py:obj:`cudakit.{name}`.\n"
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f".. autoexception:: {full}\n   :members:\n"
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {full}\n"
    return f".. autodata:: {full}\n   :no-value:\n"


def programs() -> Iterator[tuple[str, str]]:
    """Yield a page for each program of examples/, in the same folders, and two lists."""
    text = (TUTORIAL / "README.md").read_text(encoding="utf-8")
    there = sorted(path.stem for path in TUTORIAL.glob("*.py"))
    listed = list(
        dict.fromkeys([*LINK.findall(text), *there])
    )  # a program may be linked twice, and a helper not at all
    yield "tutorial/index.md", LINK.sub(r"](\1.md)", text) + "\n" + _hidden(listed)
    others = [path.relative_to(EXAMPLES) for path in sorted(EXAMPLES.rglob("*.py")) if path.parent != TUTORIAL]
    rows = "\n".join(f"| [{path}]({path.with_suffix('.md')}) | {docstring(EXAMPLES / path)[0]} |" for path in others)
    table = f"| program | what it does |\n|---|---|\n{rows}\n"
    begins = "# Examples\n\nLonger programs. Run one from the project's root."
    yield "index.md", f"{begins}\n\n{table}\n{_hidden([str(path.with_suffix('')) for path in others])}"
    for path in [*(Path(f"tutorial/{name}.py") for name in listed), *others]:
        yield str(path.with_suffix(".md")), _program(path)


def _program(path: Path) -> str:
    first, rest = docstring(EXAMPLES / path)
    sources = [path, *(path.with_suffix(".cu"),) * (EXAMPLES / path).with_suffix(".cu").is_file()]
    shown = "\n".join(
        f"```{{literalinclude}} /../examples/{source}\n"
        f":language: {'python' if source.suffix == '.py' else 'cuda'}\n:caption: examples/{source}\n```\n"
        for source in sources
    )
    about, _, output = rest.partition(PRINTS)
    if output:
        shown = f"{RECORDED}\n\n```text\n{textwrap.dedent(output).strip(chr(10))}\n```\n\n{shown}"
    return f"# {path.stem}\n\n```{{eval-rst}}\n{first}\n\n{about}\n```\n\n{shown}"


def _hidden(pages: list[str]) -> str:
    return "```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def docstring(path: Path) -> tuple[str, str]:
    """Return the first line of a program's docstring, and the rest."""
    first, _, rest = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")
    return first.replace("\n", " "), rest


def _titled(title: str, text: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n{text}"


def _toctree(names: list[str]) -> str:
    return ".. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {name}\n" for name in names)
