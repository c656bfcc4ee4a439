"""The bundles that this process uses, and whether it may compile what they lack."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from cudakit.errors import ArgumentError, CacheWarning, shortened
from cudakit.jit.bundle.file import BundleFile, Entry
from cudakit.records import NamedTuple
from cudakit.types.checked import is_one_of, path_of

if TYPE_CHECKING:
    from cudakit.types.arguments import Evidence

#: What happens to kernels that no bundle has: they are refused, or compiled.
Compile: TypeAlias = Literal["never", "missing"]


class Bundle:
    """A bundle that this process uses, until `close` or the end of a ``with`` block.

    Attributes
    ----------
    path : str
        Absolute path of the file.
    compile : {"never", "missing"}
        Whether kernels that no bundle has are refused or compiled.
    """

    def __init__(self, file: BundleFile, compile: Compile) -> None:
        self.file: BundleFile = file
        self.path: str = file.path
        self.compile: Compile = compile

    def __repr__(self) -> str:
        return f"<cudakit bundle {self.path}: {len(self.file)} entries, compile={self.compile!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, category: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop to use the bundle. Kernels that are loaded stay loaded."""
        _used[:] = [bundle for bundle in _used if bundle is not self]


def use_bundle(path: str | Path, *, compile: Compile = "missing", key: str | Path | bytes | None = None) -> Bundle:
    """Take kernels from a bundle in place of compiling them, from now on, in the whole process.

    Parameters
    ----------
    path : path
        File that ``cudakit bundle build`` made.
    compile : {"never", "missing"}
        What happens to a kernel that no bundle has. ``"missing"`` compiles it. ``"never"`` raises a `CompileError`
        that names the line to add to the bundle's SPEC; no compiler, no parser and no headers are needed then.
    key : path or bytes, optional
        Ed25519 public key, as a file or its content. A bundle that is not signed with it is refused.

    Returns
    -------
    Bundle
        The bundle in use. As a context it is used in the block alone.

    Raises
    ------
    ArgumentError
        If the file is no bundle, is damaged, is of a newer format or has another signature.
    """
    if not is_one_of(compile, ("never", "missing")):
        raise ArgumentError(f"use_bundle: compile is 'never' or 'missing', got {shortened(compile)}")
    file = BundleFile(path_of("use_bundle: path", path))
    if key is not None:
        from cudakit.jit.bundle.signature import require_signature  # takes another package

        require_signature(file, key)
    bundle = Bundle(file, compile)
    _used.insert(0, bundle)
    return bundle


def _nothing() -> None:
    """Return None, as the bundle that was imported."""


class InUse(NamedTuple):
    """The bundles that a kernel may use, the nearest first, and whether nothing may be compiled beside them.

    `imported` returns the bundle that was imported. It is the last one, and is opened only if the others lack an entry.
    """

    files: tuple[BundleFile, ...]
    never: bool
    imported: Callable[[], BundleFile | None] = _nothing

    def all_files(self) -> Iterator[BundleFile]:
        """Yield the bundles, the nearest first."""
        yield from self.files
        if (imported := self.imported()) is not None:
            yield imported

    def entries(self, category: str, key: str) -> Iterator[tuple[BundleFile, Entry]]:
        """Yield the entries with a key, each with its bundle. Bundles that cannot be read are refused."""
        for file in self.all_files():
            try:
                entry = file.read(category, key)
            except ArgumentError as error:
                self.refuse(error)
            else:
                if entry is not None:
                    yield file, entry

    def refuse(self, error: ArgumentError) -> None:
        """Raise the error of a bundle that cannot be read, or warn of it if its kernels may be compiled."""
        if self.never:
            raise error
        warnings.warn(f"{error}. Its kernels are compiled", CacheWarning, stacklevel=2)


def in_use(own: str | None, imported: Callable[[], BundleFile | None] = _nothing) -> InUse:
    """Return the bundles for a kernel: its own, at the path `own`, those of `use_bundle`, and one that was imported.

    Raises
    ------
    ArgumentError
        If the file at the path is no bundle, or a damaged one.
    """
    # A package's checkout, in which no bundle was built, compiles its kernels.
    files = [*([opened(own)] if own is not None and os.path.exists(own) else []), *(bundle.file for bundle in _used)]
    return InUse(tuple(files), any(bundle.compile == "never" for bundle in _used), imported)


def opened(path: str) -> BundleFile:
    """Open a bundle, once for each version of the file."""
    try:
        status = os.stat(path)
    except OSError:
        return BundleFile(path)  # which says why it cannot
    return _opened(path, (status.st_ino, status.st_mtime_ns, status.st_size))


@functools.lru_cache(maxsize=64)
def _opened(path: str, mark: tuple[int, ...]) -> BundleFile:
    return BundleFile(path)


class Use(NamedTuple):
    """A kernel that was loaded: its specialization, and the types of the arguments that led to it.

    Attributes
    ----------
    specialization : Specialization
        The kernel with template arguments and options.
    evidence : tuple of Evidence
        Types of the arguments.
    """

    specialization: Any
    evidence: tuple[Evidence, ...]


@contextlib.contextmanager
def recording() -> Iterator[list[Use]]:
    """Record the kernels that are loaded in the block, in all threads."""
    uses: list[Use] = []
    _recordings.append(uses)
    try:
        yield uses
    finally:
        _recordings.remove(uses)


def note(specialization: Any, evidence: tuple[Evidence, ...]) -> None:
    """Report a kernel that was loaded to the open recordings."""
    for uses in _recordings:
        uses.append(Use(specialization, evidence))


_recordings: list[list[Use]] = []
#: The bundles of `use_bundle`, the last one first.
_used: list[Bundle] = []
