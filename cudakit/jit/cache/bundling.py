"""Entries of bundles, and lines of a SPEC, from specializations and their code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudakit.jit.bundle.file import CODE, SIGNATURE, Entry, write
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.portable import base_of, key_of
from cudakit.jit.compile.portable_headers import portable_closure
from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization

#: Options that change no code, or that a SPEC has in another form.
_LEFT_OUT: Final = ("lineinfo", "cache", "bundle", "include_paths", "link")


_PAIRS: Final = ("defines", "extra")


def entry_of(specialization: Specialization, read: Iterable[Closure | None], compiled: Compiled) -> Entry | None:
    """Return the entry of a specialization's code; None if it holds on this machine alone.

    `read` has the closures of the compiled sources.
    """
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


def write_bundle(path: Path, entries: Iterable[Entry], manifest: Mapping[str, Any]) -> None:
    """Write a bundle; of entries with one key the first is kept. The manifest also gets the targets and archs."""
    entries = list(entries)
    targets = {(entry.header["target"], entry.header["arch"]) for entry in entries if entry.category == CODE}
    write(path, entries, {**manifest, "targets": sorted(targets)})


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
