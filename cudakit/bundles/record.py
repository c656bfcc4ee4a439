"""The SPEC of what a program used: each kernel that it loaded, as a row from which the same kernel is built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cudakit.bundles import spec
from cudakit.errors import CudakitError
from cudakit.jit.bundle.used import Use
from cudakit.jit.cache.bundling import changed_options, in_toml, struct_row
from cudakit.jit.compile.portable import base_of
from cudakit.jit.source import headers
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization
from cudakit.types.arguments import Evidence

_GENERATED: Final = "cudakit_struct_"


def text_of(uses: Iterable[Use], folder: Path, archs: Sequence[str]) -> tuple[str, list[str]]:
    """Return the SPEC, in TOML, of the kernels that were used, and the names of those that no SPEC can have.

    Parameters
    ----------
    uses : iterable of Use
        The kernels.
    folder : pathlib.Path
        Folder of the SPEC, to which paths in it are relative.
    archs : sequence of str
        Archs of the machine code; empty for those of the run.
    """
    uses = list({base: use for use in uses if (base := base_of(use.specialization))}.values())
    rows, left = dict[str, dict[str, Any]](), list[str]()
    for use in uses:
        row = _row(use, folder)
        if row is None:
            left.append(use.specialization.title)
            continue
        former = rows.setdefault(in_toml({**row, "arguments": ()}), {**row, "arguments": []})
        former["arguments"] += row.get("arguments", [])
    shown = [{name: value for name, value in row.items() if value != []} for row in rows.values()]
    archs = archs or sorted({use.specialization.arch for use in uses}) or ["sm_90"]
    lines = [f"archs = {in_toml(archs)}", "kernels = [", *(f"  {in_toml(row)}," for row in shown), "]"]
    return "\n".join(lines) + "\n", left


def lacking(uses: Iterable[Use], path: Path) -> list[str]:
    """Return the rows, in TOML, of the kernels that were used and that the SPEC at a path lacks."""
    there = {
        base_of(instance.kernel.specialization(*instance.types, arch=(*instance.archs, *instance.ptx)[0]))
        for instance in spec.read(path).instances
    }
    missing = {base: use for use in uses if (base := base_of(use.specialization)) not in there}
    folder = path.resolve().parent
    return [in_toml(_row(use, folder) or {"name": use.specialization.title}) for use in missing.values()]


def _row(use: Use, folder: Path) -> dict[str, Any] | None:
    """Return the shortest row of a SPEC that makes the same specialization; None if none does."""
    specialization = use.specialization
    fields = {**_origin(specialization.source, folder), "name": specialization.kernel}
    if options := _options(specialization.options, folder):
        fields["options"] = options
    bound = dict(specialization.template_arguments)
    # The name of a generated struct means nothing without the argument that has its fields.
    named = {name: text for name, text in bound.items() if _GENERATED not in text}
    types = {"types": [_type(evidence) for evidence in use.evidence]}
    arguments, some = ({"arguments": [table]} if table else {} for table in (bound, named))
    for more in (arguments, types, {**some, **types}, {**arguments, **types}):
        if _is_of(row := {**fields, **more}, specialization, folder):
            return row
    return None


def _is_of(row: Mapping[str, Any], specialization: Specialization, folder: Path) -> bool:
    try:
        (instance,) = spec.instances_of("", row, {"ptx": specialization.arch}, folder)
        own = instance.kernel.specialization(*instance.types, arch=specialization.arch, target=specialization.target)
    except (CudakitError, TypeError, ValueError):
        return False
    return base_of(own) == base_of(specialization)


def _origin(origin: Source, folder: Path) -> dict[str, Any]:
    if origin.host_code == "skip" and origin.whole is not None:
        return {**_origin(origin.whole, folder), "host_code": "skip"}
    if origin.folder is not None and _is_file(origin):
        if origin.folder.is_relative_to(headers.templates_folder()):
            return {"template": Path(origin.name).relative_to(headers.templates_folder()).with_suffix("").as_posix()}
        return {"file": _relative(origin.name, folder)}
    return {"text": origin.text}


def _is_file(origin: Source) -> bool:
    try:
        return Path(origin.name).read_text(encoding="utf-8", errors="replace") == origin.text
    except OSError:
        return False


def _relative(path: str, folder: Path) -> str:
    return Path(os.path.relpath(os.path.abspath(path), folder)).as_posix()


def _options(options: CompileOptions, folder: Path) -> dict[str, Any]:
    fields = dict[str, Any](changed_options(options))
    if options.include_paths:
        fields["include_paths"] = [_relative(path, folder) for path in options.include_paths]
    if options.link:  # machine code has no text
        fields["link"] = [
            _relative(str(item), folder) if isinstance(item, Path) else getattr(item, "text", None)
            for item in options.link
        ]
    return fields


def _type(evidence: Evidence) -> Any:
    """Return the type of an argument as a SPEC has it."""
    dtype = evidence.dtype
    if dtype is None or evidence.category not in ("array", "scalar"):
        return ""
    shown = dtype.name if dtype.names is None else struct_row(dtype)
    return [shown, evidence.rank] if evidence.category == "array" and evidence.rank > 1 else shown
