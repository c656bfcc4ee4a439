"""The content of bundles: what one holds and from what it was made, how two differ, and a smaller copy of one."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cudakit.errors import ArgumentError
from cudakit.jit.bundle.file import CODE, HEADERS, SIGNATURE, TUNED, BundleFile, Entry
from cudakit.jit.cache import bundling
from cudakit.jit.signature.signature import declarations_key

#: Fields of the manifest that follow from the entries.
_DERIVED: Final = ("targets",)


def described(file: BundleFile) -> dict[str, Any]:
    """Return the content of a bundle as JSON can hold it."""
    entries = list(file)
    return {
        "file": file.path,
        "bytes": Path(file.path).stat().st_size,
        "seal": file.seal.hex(),
        "signed by": None if file.signature is None else file.signature.public_key.hex(),
        "manifest": {name: value for name, value in file.manifest.items() if name not in _DERIVED},
        "kernels": [
            {
                "kernel": entry.header["label"],
                "target": entry.header["target"],
                "arch": entry.header["arch"],
                "bytes": len(entry.body),
                "headers": [name for name, _ in entry.header["headers"][0]],
            }
            for entry in _kernels(entries)
        ],
        "others": [{"category": entry.category, "key": entry.key} for entry in entries if entry.category != CODE],
    }


def _kernels(entries: Iterable[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if entry.category == CODE), key=_name_of)


def _name_of(entry: Entry) -> tuple[str, ...]:
    if entry.category != CODE:
        return "", entry.category, entry.key
    return entry.header["label"], entry.header["target"], entry.header["arch"]


def differences(first: BundleFile, second: BundleFile) -> Iterator[str]:
    """Yield how two bundles differ, a line each."""
    for name in sorted({*first.manifest, *second.manifest}.difference(_DERIVED)):
        former, latter = first.manifest.get(name), second.manifest.get(name)
        if former != latter:
            yield f"{name}: {former} → {latter}"
    formers, latters = ({(entry.category, entry.key): entry for entry in file} for file in (first, second))
    for key in sorted({*formers, *latters}, key=lambda key: _name_of(formers.get(key) or latters[key])):
        former_entry, latter_entry = formers.get(key), latters.get(key)
        entry = former_entry or latter_entry
        assert entry is not None
        shown = " ".join(filter(None, _name_of(entry)))
        if latter_entry is None:
            yield f"- {shown}"
        elif former_entry is None:
            yield f"+ {shown}"
        elif former_entry != latter_entry:
            yield f"~ {shown}: {_change(former_entry, latter_entry)}"


def _change(former: Entry, latter: Entry) -> str:
    if former.body != latter.body:
        return f"other code, {len(former.body)} → {len(latter.body)} bytes"
    return f"other {', '.join(name for name in latter.header if former.header.get(name) != latter.header[name])}"


def prune(path: Path, output: Path, pattern: str | None, archs: Iterable[str]) -> tuple[int, int]:
    """Write a copy of a bundle with fewer kernels, which is not signed.

    Parameters
    ----------
    path, output : pathlib.Path
        The bundle, and the file to write.
    pattern : str or None
        Part of the kernels' names, in which ``*`` and ``?`` stand for any text and any character.
    archs : iterable of str
        Archs whose code is kept; empty for all.

    Returns
    -------
    int, int
        Numbers of kernels before and after.

    Raises
    ------
    ArgumentError
        If the bundle is damaged, or no kernel is left.
    """
    file, archs = BundleFile(path), set(archs)
    entries = list(file)
    kernels = _kernels(entries)
    left = [
        entry
        for entry in kernels
        if (not archs or entry.header["arch"] in archs)
        and (pattern is None or fnmatch.fnmatchcase(entry.header["label"], f"*{pattern}*"))
    ]
    if not left:
        raise ArgumentError(f"{path} has no kernel of this name and arch; cudakit bundle show {path} lists them")
    digests = {entry.header["source"] for entry in left}
    keys = set(map(declarations_key, digests))
    others = [
        entry
        for entry in entries
        if entry.category == TUNED or (entry.category == HEADERS and entry.header["source"] in digests)
    ]
    signatures = [entry for entry in entries if entry.category == SIGNATURE and entry.key in keys]
    bundling.write_bundle(output, (*left, *signatures, *others), file.manifest)
    return len(kernels), len(left)
