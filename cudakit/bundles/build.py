"""Build a bundle: compile what a SPEC lists, and write it into one file."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cudakit as ck
from cudakit.bundles import spec
from cudakit.errors import CompileWarning, CudakitError
from cudakit.jit.bundle.file import HEADERS, Entry
from cudakit.jit.cache import bundling
from cudakit.jit.cache.compiling import as_linked, compiled_here
from cudakit.jit.cache.prewarm import compile_all
from cudakit.jit.cache.stages import declarations_of
from cudakit.jit.compile.linked import linker_identity
from cudakit.jit.compile.nvrtc import compiler_identity
from cudakit.jit.signature.signature import declarations_key
from cudakit.jit.source import headers
from cudakit.jit.source.roots import Roots
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.specialise import Specialization, bare
from cudakit.jit.specialise.spellings import own_headers, text_of
from cudakit.tuning.kept import entries_of


def build(path: Path, output: Path) -> int:
    """Build the bundle of a SPEC. Return the number of kernels in it, each for each arch.

    Parameters
    ----------
    path : pathlib.Path
        SPEC, in TOML or Python.
    output : pathlib.Path
        File to write.

    Raises
    ------
    CudakitError
        If the SPEC is wrong, if a kernel does not compile, or if its code would hold on this machine alone.
    """
    instances, tuned = spec.read(path)
    specializations = list(dict.fromkeys(s for instance in instances for s in _specializations(instance)))
    count = len(specializations)
    specializations += dict.fromkeys(bare for s in specializations for bare in _variables(s))
    together = [specialization.among(_sharing(specialization, specializations)) for specialization in specializations]
    compile_all(together)
    kernels = [_entry(*pair) for pair in zip(specializations, together, strict=True)]
    sources = {specialization.source.digest: specialization.source for specialization in specializations}
    texts = [entry for specialization in specializations for entry in _headers(specialization)]
    signatures = [_signature(origin) for origin in sources.values()]
    results = [entry for file in tuned for entry in entries_of(file)]
    entries = (*kernels, *signatures, *texts, *results)
    manifest = _manifest(path, instances, sources.values())
    if any(map(as_linked, specializations)):
        manifest["compiler"]["nvJitLink"] = linker_identity()
    bundling.write_bundle(output, entries, manifest)
    return count


def _specializations(instance: spec.Instance) -> Iterable[Specialization]:
    kernel = instance.kernel
    for arch in instance.archs:
        yield kernel.specialization(*instance.types, arch=arch, target="cubin")
    for arch in instance.ptx:  # there is no PTX of tiles
        yield kernel.specialization(*instance.types, arch=arch, target="tileir" if kernel.signature.is_tile else "ptx")


def _variables(specialization: Specialization) -> Iterator[Specialization]:
    """Yield the specialization of no kernel, by which variables are read and written before any kernel is called."""
    origin = specialization.source
    declarations = declarations_of(origin)
    if declarations.symbols and not specialization.is_tile:
        without_kernel = bare(origin, declarations, specialization.arch, specialization.options)
        yield without_kernel._replace(target=specialization.target)


def _sharing(specialization: Specialization, others: Iterable[Specialization]) -> list[Specialization]:
    """Return the specializations that share variables with another, and must be in one code with it."""
    if specialization.is_tile or not declarations_of(specialization.source).symbols:
        return []
    return [other for other in others if _unit_of(other) == _unit_of(specialization)]


def _unit_of(specialization: Specialization) -> tuple[Any, ...]:
    return specialization.source, specialization.options, specialization.arch, specialization.target


def _entry(specialization: Specialization, together: Specialization) -> Entry:
    """Return the entry of a specialization, whose code is that of all that share its variables."""
    compiled, read = compiled_here(together)
    if b"_INTERNAL_" in compiled.code:
        # The compiler makes names of this process; with a seed they are the same in each.
        options = specialization.options
        seed = {"frandom_seed": specialization.source.digest[:16], **dict(options.extra)}
        compiled, read = compiled_here(together._replace(options=options.replace(extra=seed)))
    entry = bundling.entry_of(specialization, read, compiled)
    if entry is None:
        raise CudakitError(
            f"{specialization.source.name}: {specialization.title} depends on files that other machines may not have: "
            "headers outside of include_paths and the source's folder, or a name of a header that a macro makes"
        )
    folders = [specialization.source.folder, *specialization.options.include_paths]
    for folder in (str(folder) for folder in folders if folder is not None):
        if folder.encode() in compiled.code:
            warnings.warn(
                f"the code of {specialization.title} names the folder {folder}, by assert or __FILE__ in a header: "
                "other folders give other bytes",
                CompileWarning,
                stacklevel=2,
            )
    return entry


def _signature(origin: Source) -> Entry:
    return bundling.signature(declarations_key(origin.digest), declarations_of(origin).to_json().encode())


def _headers(specialization: Specialization) -> Iterator[Entry]:
    """Yield the texts of the headers of a source that decide how arguments are spelled, and their declarations."""
    origin, options = specialization.source, specialization.options
    roots = Roots(origin.folder, options.include_paths)
    texts = dict[str, str]()
    for path in own_headers(origin, options) or ():
        if (name := roots.name(path)) is not None:
            texts[name] = text_of(path)
            yield _signature(Source(texts[name], name))
    if texts:
        yield Entry(HEADERS, origin.digest, {"source": origin.digest}, json.dumps(texts, sort_keys=True).encode())


def _manifest(path: Path, instances: Iterable[spec.Instance], sources: Iterable[Source]) -> dict[str, Any]:
    """Return what made the bundle, from what. Nothing in it depends on the time or the machine."""
    return {
        "made by": "cudakit bundle build",
        "cudakit": ck.__version__,
        "compiler": {"NVRTC": compiler_identity(), "cuda.core": headers.core_version()},
        "spec": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "sources": sorted({(origin.name.removeprefix(f"{os.devnull}/"), origin.digest) for origin in sources}),
        "archs": sorted({arch for instance in instances for arch in instance.archs}),
        "ptx": sorted({arch for instance in instances for arch in instance.ptx}),
    }
