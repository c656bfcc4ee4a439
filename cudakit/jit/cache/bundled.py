"""Results of the stages in bundles: which entry holds the code of a specialization, and what a miss says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, CompileError
from cudakit.jit.bundle.file import CODE, SIGNATURE, BundleFile, Entry
from cudakit.jit.bundle.used import InUse
from cudakit.jit.compile.compiled import Compiled, Promise

if TYPE_CHECKING:
    from cudakit.jit.specialise.options import Target
    from cudakit.jit.specialise.specialise import Specialization


def code_of(specialization: Specialization, bundles: InUse) -> Compiled | None:
    """Return the code of a specialization from bundles, or None if it may be compiled.

    Raises
    ------
    CompileError
        If no bundle has the code, or only code of other headers, and nothing may be compiled or no compiler is here.
    ArgumentError
        If the entry is damaged, and nothing may be compiled.
    """
    if next(bundles.all_files(), None) is None:
        return None
    from cudakit.jit.compile.portable import base_of, key_of  # most programs use no bundle

    base, changed = base_of(specialization), list[str]()
    for file in bundles.all_files():
        if base is None:
            break
        try:
            for target, arch in _candidates(specialization, file.manifest.get("targets", ())):
                entry = file.read(CODE, key_of(base, target, arch))
                if entry is not None:
                    other = _other_header(specialization, entry, bundles)
                    if other is None:
                        return compiled_in(entry)
                    changed.append(other)
        except ArgumentError as error:
            bundles.refuse(error)
    reason = "compile='never' forbids to compile it" if bundles.never else _lack_of_compiler(specialization)
    if reason is not None:
        raise CompileError(_miss(specialization, bundles, changed, reason))
    return None


def _lack_of_compiler(specialization: Specialization) -> str | None:
    """Return the reason why a source cannot be compiled here, or None."""
    if specialization.source.code is not None:
        return None
    from cudakit.jit.compile.nvrtc import compiler_identity  # for what a bundle lacks

    try:
        compiler_identity()
    except CompileError as error:
        return f"there is no compiler here ({error})"
    return None


def signature_of(key: str, name: str, bundles: InUse) -> bytes | None:
    """Return the JSON of a source's declarations from bundles, or None if the source may be parsed.

    Raises
    ------
    CompileError
        If no bundle has them, and nothing may be compiled. `name` is the source's, for the message.
    """
    for _, entry in bundles.entries(SIGNATURE, key):
        return entry.body
    if bundles.never:
        raise CompileError(source_miss(name, bundles, "compile='never' forbids to parse it"))
    return None


def source_miss(name: str, bundles: InUse, reason: str) -> str:
    """Return the message for a source that no bundle has. `reason` says why it cannot be parsed."""
    return (
        f"{_names(bundles.all_files())} has nothing of the source {name}, or of another text of it, and {reason}: "
        "build the bundle again from the present text"
    )


def compiled_in(entry: Entry) -> Compiled:
    """Return the compiled code of an entry."""
    header: Mapping[str, Any] = entry.header
    promises = tuple(Promise(*row) for row in header["promises"])
    return Compiled(entry.body, dict(header["lowered"]), "", header["target"], promises)


def _candidates(specialization: Specialization, targets: Iterable[tuple[Target, str]]) -> Iterator[tuple[Target, str]]:
    """Yield target and arch of the code that a specialization's arch can run, the best first.

    Machine code runs on devices of its major version and of its minor version or later; with ``a`` on its own version
    alone. PTX and, on the emulator, Tile IR run on devices of their version or later.
    """
    target, arch = specialization.target, specialization.arch
    yield target, arch
    if target not in ("cubin", "ptx", "tileir") or (specialization.is_tile and target == "cubin"):
        return
    text = "tileir" if specialization.is_tile else "ptx"
    number, suffix = _number(arch)
    rows = [(*_number(other), *row) for row in targets if (other := row[1]) != arch or row[0] != target]
    if suffix:
        rows = [row for row in rows if row[:2] == (number, suffix)]
    runs_as_it_is = [
        row
        for row in rows
        if row[2] == "cubin" == target
        and row[0] // 10 == number // 10
        and (row[0] == number or (row[0] < number and row[1] != "a"))
    ]
    translated = [row for row in rows if row[2] == text and (row[0] == number or (row[0] < number and not row[1]))]
    for *_, other_target, other_arch in (*sorted(runs_as_it_is, reverse=True), *sorted(translated, reverse=True)):
        yield other_target, other_arch


def _number(arch: str) -> tuple[int, str]:
    number = arch.strip("sm_af")
    return int(number), arch[len("sm_") + len(number) :]


def _other_header(specialization: Specialization, entry: Entry, bundles: InUse) -> str | None:
    """Return a header here that is another than the one in an entry's code, or None."""
    files, places = entry.header["headers"]
    if not (files or places):
        return None
    from cudakit.jit.compile.portable_headers import differences  # for sources with headers of their own
    from cudakit.jit.source.closure import Closure

    closure = Closure(tuple(map(tuple, files)), tuple(map(tuple, places)))
    # Where another header could be found first matters to a compile alone: it takes CUDA's headers to tell.
    return next(differences(specialization, closure, places=not bundles.never), None)


def _names(files: Iterable[BundleFile]) -> str:
    return ", ".join(Path(file.path).name for file in files)


def _miss(specialization: Specialization, bundles: InUse, changed: list[str], reason: str) -> str:
    from cudakit.jit.cache.bundling import line_of  # for the error alone

    where = f"{specialization.source.name}: {_names(bundles.all_files())}"
    if changed:
        return (
            f"{where} has {specialization.title} with another {changed[0]}, and {reason}: "
            "build the bundle again, or install the header that it was built with"
        )
    return (
        f"{where} has no {specialization.name_expression or specialization.title} for {specialization.arch} "
        f"({specialization.target}), and {reason}. The line for the kernels of its SPEC:\n"
        f"  {line_of(specialization)}"
    )
