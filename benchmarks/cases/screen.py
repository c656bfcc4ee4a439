"""How many programs of a folder compile as they stand: the first kernel of every .cu file, for a named arch; no GPU.

``python benchmarks/run.py screen FOLDER`` compiles each as ``ck.Kernel.from_file(path, name, host_code="skip")``, with
the macros and folders of headers of a Makefile beside it. Template arguments are those of the program's own launches
(``launched.py``); what is not found so is float and 1, or the like. With ``--emulator`` all kernels of what
compiled are given to the emulator's machines: how many NumPy's has all instructions of, and how many of those become
machine code.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from launched import Program
from tables import table

from cudakit.jit.signature.signature import Signature
from cudakit.types.cpp import split_arguments

TITLE = "Programs of others, compiled as they stand"
#: Classes of reasons, by what the first error says, or (with a bar before it) any line of the message.
REASONS = {
    "a macro of the build is not there": r"|hint: \w+ stands under",
    "a library that is not here": r"thrust::|Eigen|BOOST|torch|cute::|XMFLOAT|gdt|could not open|cannot open",
    "what CUDA took away": r'"__shfl\w*"|"t_\w+"|texture<|tex1Dfetch',
    "inside an instance, mostly for want of its template arguments": (
        r"|detected during|cannot be deduced|template arguments of [\w:]+<"
    ),
    "GNU's extensions": r"expected an expression",
    "an unknown name": r"is undefined|has no member|not a class or namespace|name followed by",
}
SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".c", ".cpp", ".cc")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="where the programs are")
    parser.add_argument("--include", type=Path, action="append", default=[], help="a folder of headers that all share")
    parser.add_argument("--host-code", choices=["keep", "skip"], default="skip")
    parser.add_argument("--only", default="", help="files whose path has this")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--emulator", action="store_true", help="say what the emulator's machines take")
    parser.add_argument("--verbose", action="store_true", help="show the first error of each file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())


def lines(options: argparse.Namespace) -> Iterator[str]:
    everything = sorted(options.folder.rglob("*.cu"))
    parts = _included([path for path in options.folder.rglob("*.*") if path.suffix in SUFFIXES])
    paths = [path for path in everything if options.only in str(path) and path.resolve() not in parts]
    work = [(path, options.include, options.host_code, options.arch, options.emulator) for path in paths]
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=40) as pool:
        tried = list(pool.imap(_tried, work, chunksize=4))
    results = [(path, error) for path, (error, _) in zip(paths, tried, strict=True) if error is not None]
    failed = [(path, error) for path, error in results if error]
    yield f"{len(results) - len(failed)} of {len(results)} files with a kernel compile"
    yield f"({len(paths)} files; `host_code={options.host_code!r}`, {options.arch})."
    yield f"{len(everything) - len(paths)} more are no programs: others include them, and have what they use."
    yield ""
    if options.emulator:
        yield from _emulated([reason for _, reasons in tried for reason in reasons])
    counts = Counter(_reason(error) for _, error in failed)
    for reason, count in counts.most_common():
        yield f"## {reason}: {count}"
        yield ""
        files = [(path, error) for path, error in failed if _reason(error) == reason]
        if options.verbose:
            yield from (f"- {path.relative_to(options.folder)}: {_first(error)}" for path, error in files)
        else:
            yield from table(["file"], [[str(path.relative_to(options.folder))] for path, _ in files])
        yield ""


def _emulated(reasons: list[str]) -> Iterator[str]:
    """What the emulator's machines take of all kernels, by why they do not."""
    known = [reason for reason in reasons if not reason.startswith("missing: ")]
    compiled = sum(not reason for reason in known)
    yield f"Of the {len(reasons)} kernels in them the emulator has all instructions of {len(known)};"
    yield f"{compiled} of these become machine code, {compiled / max(1, len(known)):.1%}."
    yield ""
    counts = Counter(reason for reason in reasons if reason)
    yield from table(["why not", "kernels"], [[f"`{reason}`", str(count)] for reason, count in counts.most_common()])
    yield ""


def _taken(ptx: bytes) -> list[str]:
    """Of each kernel of a program: "" where it can be machine code, else why not."""
    from cudakit.emulator.compiled import Refusal, kernel, native
    from cudakit.emulator.compiled.analysis import traits_of
    from cudakit.emulator.compiled.layout import Layout
    from cudakit.emulator.compiled.source import Inlined
    from cudakit.emulator.machine.decode import Context, decode
    from cudakit.emulator.machine.memory import Memory
    from cudakit.emulator.machine.module import Module
    from cudakit.emulator.ptx.parser import parse

    program = parse(ptx.decode())
    module = Module(program, Memory())
    found = []
    for entry in [function for function in program.functions.values() if function.is_entry]:
        try:
            inlined = Inlined(program, entry)
            context = Context(module.symbols, inlined.function)
            lost = [given for given in inlined.function.code if decode(given, context).missing]
            if lost:
                found.append(f"missing: {lost[0].name}")
                continue
            width = 32 if traits_of([context]).uses_warps else native.processor().native
            kernel.make(context, Layout(width, True, True), True)
            found.append("")
        except Refusal as refusal:
            found.append(re.sub(r"instruction ([\w.:]+).*", r"\1", str(refusal)))
    return found


def _included(paths: list[Path]) -> set[Path]:
    """Files that another one includes."""
    found = set()
    for path in paths:
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+\.cu)"', path.read_text(errors="replace"), re.MULTILINE):
            found.add((path.parent / name).resolve())
    return found


def _tried(work: tuple[Path, list[Path], str, str, bool]) -> tuple[str | None, list[str]]:
    """The error of compiling a file's first kernel, "" for none, None where it has no kernel; and, where it is asked,
    why each kernel of the code is left to NumPy, "" where it is not.
    """
    import cudakit as ck

    path, include, host_code, arch, emulated = work
    defines, folders = _of_makefile(path)
    extra = {"relocatable_device_code": True} if _is_linked(path) else {}
    options = ck.CompileOptions(include_paths=[path.parent, *folders, *include], defines=defines, extra=extra)
    try:
        found = _first_kernel(path, options, host_code)
        if found is None:
            return None, []
        kernel, choices = found
        first = ""
        for given in choices:
            try:
                compiled = (kernel[given] if given else kernel).compile(arch=arch, target="ptx")
                return "", _taken(compiled.code) if emulated else []
            except ck.CudakitError as error:
                first = first or str(error)
        return first, []
    except ck.CudakitError as error:
        return str(error), []
    except Exception as error:
        return f"{type(error).__name__}: {error}", []


def _first_kernel(path: Path, options: Any, host_code: str) -> tuple[Any, list[tuple[Any, ...]]] | None:
    """The kernel, and the template arguments to try."""
    import cudakit as ck
    from cudakit.jit.signature.host_code import device_part
    from cudakit.jit.signature.reader import parse
    from cudakit.jit.source import source
    from cudakit.jit.source.flatten import flatten

    found = source.from_file(path, None, host_code)  # type: ignore[arg-type]
    if host_code == "skip":
        found = device_part(found, options.include_paths)
    kernels = [kernel for kernel in parse(found.text).kernels if kernel.defined]
    if not kernels:
        return None
    first = kernels[0]
    same = [kernel for kernel in kernels if kernel.name == first.name]
    name = first.name if len(same) == 1 else f"{first.name}({', '.join(str(p.type) for p in first.parameters or ())})"
    kernel = ck.Kernel.from_file(path, name, options=options, host_code=host_code)  # type: ignore[arg-type]
    needed = [p for p in first.template_parameters if p.default is None and not p.pack]
    if not needed:
        return kernel, [()]
    bare = first.name.rpartition("::")[2]
    whole = source.from_file(path, None, host_code)  # type: ignore[arg-type]
    flat = flatten(whole.text, whole.name, str(path.parent), options.include_paths)
    launched = Program(flat.text).launched(bare, [p.name for p in first.template_parameters])[:6]
    # Not every type can be float, nor every number 1.
    kinds = [("float", "float", 1), ("float", "int", 32), ("int", "int", 4), ("int", "float", 128)]
    kinds += [("float2", "float2", 4), ("uchar4", "uchar4", 8)]
    structs = [name for name in parse(found.text).structs if "::" not in name][:6]
    owns = [("float", name, 4) for name in structs] + [(name, "float", 4) for name in structs]
    choices = [_completed(first, words, kind) for words in launched for kind in kinds[:4]]
    choices += [_completed(first, (), kind) for kind in [*kinds, *owns]]
    return kernel, list(dict.fromkeys(choices))


def _completed(
    kernel: Signature, launched: tuple[str | None, ...], kind: tuple[str, str, int]
) -> tuple[str | int, ...]:
    """Template arguments as a launch gives them; those not known are of a kind: first type, other types, number."""
    given: list[str | int] = []
    types = 0
    for parameter, word in zip_longest(kernel.template_parameters, launched):
        types += parameter.kind == "type"
        if word is not None:
            given += [
                int(part) if part.isdigit() else part for part in (split_arguments(word) if parameter.pack else [word])
            ]
        elif parameter.default is not None or parameter.pack:
            break
        else:
            given.append(kind[2] if parameter.kind != "type" else kind[0] if types == 1 else kind[1])
    return tuple(given)


def _of_makefile(path: Path) -> tuple[list[tuple[str, str]], list[Path]]:
    """Macros and folders of headers that a Makefile beside a program names."""
    makefiles = [folder / "Makefile" for folder in (path.parent, path.parent.parent, path.parent.parent.parent)]
    makefile = next((makefile for makefile in makefiles if makefile.is_file()), None)
    if makefile is None:
        return [], []
    text = makefile.read_text(errors="replace")
    variables = dict(re.findall(r"^\s*(\w+)\s*[:?]?=\s*(\S+)\s*$", text, re.MULTILINE))
    text = re.sub(r"\$[({](\w+)[)}]", lambda match: variables.get(match[1], ""), text)
    defines = [(name, value or "1") for name, value in re.findall(r"(?<![\w-])-D\s*(\w+)(?:=([\w.]+))?", text)]
    folders = [makefile.parent / folder for folder in re.findall(r"(?<![\w-])-I\s*([\w./-]+)", text)]
    # A program is not built for debugging unless one asks for it.
    return [pair for pair in dict(defines).items() if pair[0] != "DEBUG"], [f for f in folders if f.is_dir()]


def _is_linked(path: Path) -> bool:
    """Whether the build beside a program links device code, as kernels that launch kernels need it."""
    builds = [path.parent / name for name in ("Makefile", "CMakeLists.txt")]
    text = "".join(build.read_text(errors="replace") for build in builds if build.is_file())
    return re.search(r"CUDA_SEPARABLE_COMPILATION\s+ON|-rdc=true|\s-dc\b", text) is not None


def _reason(error: str) -> str:
    first = _first(error)
    for name, pattern in REASONS.items():
        if re.search(pattern.removeprefix("|"), error if pattern.startswith("|") else first):
            return name
    return "other"


def _first(error: str) -> str:
    found = re.search(r"error: (.*)", error)
    return (found[1] if found else error.partition("\n")[0])[:200]
