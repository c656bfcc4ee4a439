"""Results of the stages in bundles: which entry holds the code of a specialization, and what a miss says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudakit.errors import ArgumentError, CompileError
from cudakit.jit.bundle.file import CODE, SIGNATURE, BundleFile, Entry, write
from cudakit.jit.bundle.used import InUse
from cudakit.jit.compile.compiled import Compiled, Promise
from cudakit.jit.compile.nvrtc import compiler_identity
from cudakit.jit.source import headers
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.options import CompileOptions, Target
from cudakit.jit.specialise.specialise import Specialization

#: Options that change no code, or that a SPEC has in another form.
_LEFT_OUT: Final = ("lineinfo", "cache", "bundle", "include_paths", "link")
_PAIRS: Final = ("defines", "extra")


def code_of(specialization: Specialization, bundles: InUse) -> Compiled | None:
    """Return the code of a specialization from bundles, or None if it may be compiled.

    Raises
    ------
    CompileError
        If no bundle has the code, or only code of other headers, and nothing may be compiled or no compiler is here.
    ArgumentError
        If the entry is damaged, and nothing may be compiled.
    """
    if not bundles.files:
        return None
    from cudakit.jit.compile.portable import base_of, key_of  # most programs use no bundle

    base, changed = base_of(specialization), list[str]()
    for file in bundles.files:
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
        f"{_names(bundles.files)} has nothing of the source {name}, or of another text of it, and {reason}: "
        "build the bundle again from the present text"
    )


def entry_of(specialization: Specialization, read: Iterable[Closure | None], compiled: Compiled) -> Entry | None:
    """Return the entry of a specialization's code; None if it holds on this machine alone.

    `read` has the closures of the compiled sources.
    """
    from cudakit.jit.compile.portable import base_of, key_of, portable_closure  # as above

    base, closure = base_of(specialization), portable_closure(specialization, read)
    if base is None or closure is None:
        return None
    header = {
        "label": specialization.title,
        "source": specialization.source.digest,
        "target": specialization.target,
        "arch": specialization.arch,
        "lowered": compiled.lowered,
        "promises": compiled.promises,
        "headers": [closure.files, closure.places],
    }
    return Entry(CODE, key_of(base, specialization.target, specialization.arch), header, compiled.code)


def record_of(entry: Entry) -> dict[str, Any]:
    """Return what the cache keeps of an entry beside its code."""
    return {"key": entry.key, "header": entry.header}


def of_record(record: Mapping[str, Any] | None, code: bytes) -> Entry | None:
    """Return the entry of a record that the cache kept; None if it kept none."""
    return None if record is None else Entry(CODE, record["key"], record["header"], code)


def signature(key: str, declarations: bytes) -> Entry:
    """Return the entry of a source's declarations, which are JSON."""
    return Entry(SIGNATURE, key, {}, declarations)


def compiled_in(entry: Entry) -> Compiled:
    """Return the compiled code of an entry."""
    header: Mapping[str, Any] = entry.header
    promises = tuple(Promise(*row) for row in header["promises"])
    return Compiled(entry.body, dict(header["lowered"]), "", header["target"], promises)


def write_bundle(path: Path, entries: Iterable[Entry], manifest: Mapping[str, Any]) -> None:
    """Write a bundle; of entries with one key the first is kept. The manifest also gets the targets and archs."""
    entries = list(entries)
    targets = {(entry.header["target"], entry.header["arch"]) for entry in entries if entry.category == CODE}
    write(path, entries, {**manifest, "targets": sorted(targets)})


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
    closure = Closure(tuple(map(tuple, files)), tuple(map(tuple, places)))
    from cudakit.jit.compile.portable import differences  # as above

    # Where another header could be found first matters to a compile alone: it takes CUDA's headers to tell.
    return (
        None if closure == NOTHING_READ else next(differences(specialization, closure, places=not bundles.never), None)
    )


def _names(files: Iterable[BundleFile]) -> str:
    return ", ".join(Path(file.path).name for file in files)


def _miss(specialization: Specialization, bundles: InUse, changed: list[str], reason: str) -> str:
    where = f"{specialization.source.name}: {_names(bundles.files)}"
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


def line_of(specialization: Specialization) -> str:
    """Return the line of a SPEC in TOML that adds a specialization to a bundle."""
    origin = specialization.source
    of_template = origin.folder is not None and origin.folder == headers.templates_folder()
    field = "text" if origin.folder is None else "template" if of_template else "file"
    value = {"text": "…", "template": Path(origin.name).stem, "file": Path(origin.name).name}[field]
    fields: dict[str, Any] = {field: value, "name": specialization.kernel}
    if specialization.template_arguments:
        fields["arguments"] = [dict(specialization.template_arguments)]
    if options := dict(changed_options(specialization.options)):
        fields["options"] = options
    if specialization.checks:  # of the layouts of arguments
        fields["types"] = [
            "" if parameter.dtype is None or parameter.dtype.names is None else struct_row(parameter.dtype)
            for parameter in specialization.parameters or ()
        ]
    return f"{in_toml(fields)},"


def changed_options(options: CompileOptions) -> Iterator[tuple[str, Any]]:
    """Yield the options that differ from their defaults, as a SPEC has them; without paths and inputs of the linker."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in _LEFT_OUT and value != field.default:
            yield field.name, dict(value) if field.name in _PAIRS else value


def in_toml(value: Any) -> str:
    """Return a value in one line of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {in_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    return json.dumps(value)  # texts, numbers and truths are written alike


def struct_row(dtype: np.dtype) -> dict[str, Any]:
    """Return the fields of a struct's dtype, as a SPEC has them."""
    names = dtype.names or ()
    fields = [dtype.fields[name] for name in names] if dtype.fields is not None else []
    return {
        "names": list(names),
        "formats": [_format(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        **({"aligned": True} if dtype.isalignedstruct else {}),
    }


def _format(dtype: np.dtype) -> Any:
    if dtype.subdtype is not None:
        return [_format(dtype.subdtype[0]), list(dtype.subdtype[1])]
    return struct_row(dtype) if dtype.names else dtype.str
