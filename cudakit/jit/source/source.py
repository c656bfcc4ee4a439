"""Stage 1, source: text, a file or a packaged template becomes a `Source`."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeAlias

from cudakit.errors import TemplateError, shortened
from cudakit.jit.source import headers
from cudakit.types.checked import path_of, text_of

_MAGIC: Final = ((b"\xed\x43\x4e\x7f", "ltoir"), (b"\x50\xed\x55\xba", "fatbin"), (b"!<arch>\n", "library"))
# A comment ends in one way only, or a text with many would be tried in every way.
_PTX: Final = re.compile(rb"(?:\s|//[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*\.version\s")


def kind_of(code: bytes) -> str | None:
    """Which kind of compiled code: ``cubin``, ``ptx``, ``ltoir``, ``fatbin``, ``object`` or ``library``; None: none."""
    if code[:4] == b"\x7fELF":
        # e_machine of an ELF file: 190 is CUDA.
        return "cubin" if code[18:20] == b"\xbe\0" else "object"
    found = next((kind for magic, kind in _MAGIC if code.startswith(magic)), None)
    return found or ("ptx" if _PTX.match(code[:65536]) else None)


#: What becomes of host code.
HostCode: TypeAlias = Literal["keep", "skip"]


@dataclass(frozen=True)
class Source:
    """CUDA C++ text and where it came from.

    Attributes
    ----------
    text : str
        The CUDA C++ source.
    name : str
        What diagnostics call it: a path, or ``<kernel text>`` for a string.
    folder : Path or None
        Where ``#include "…"`` looks first; None for a string.
    origin : tuple of (str, int), optional
        File and line of the Python call that gave a string, to place diagnostics in.
    host_code : {"keep", "skip"}
        Whether the host's part of an nvcc program was cut from the text, and its own headers written out in it.
    left_out : tuple of str
        Headers that were cut as the host's.
    whole : Source or None
        The program from which this was cut.
    code : bytes or None
        What is compiled already, in the place of text.
    head : str or None
        The head of the one kernel of it that is meant, where its code does not say enough.
    """

    text: str
    name: str
    folder: Path | None = None
    origin: tuple[str, int] | None = field(default=None, compare=False)
    host_code: HostCode = "keep"
    left_out: tuple[str, ...] = ()
    whole: Source | None = field(default=None, compare=False, repr=False)
    code: bytes | None = None
    head: str | None = field(default=None, compare=False)

    @cached_property
    def digest(self) -> str:
        """sha256 of the text, or of the code."""
        return hashlib.sha256(self.text.encode() + (self.code or b"")).hexdigest()

    def named(self, file: str) -> str:
        """What a file of the compiler's messages is called: `name` for this one, of which it may have made a path."""
        # It puts a string into whatever folder it was started in.
        is_this = file.endswith(f"/{self.name}") if self.folder is None else file == str(Path(self.name).absolute())
        return self.name if is_this else file


def from_text(text: str, depth: int = 1) -> Source:
    """`Source` of a string; `depth` counts the frames between the user's call and this one."""
    if not isinstance(text, str):
        raise TemplateError(f"Kernel takes CUDA C++ source as a str, got {type(text).__name__}; see Kernel.from_file")
    if text.strip().endswith((".cu", ".cuh")) and "{" not in text:
        raise TemplateError(
            f"Kernel takes CUDA C++ source, got a name: {shortened(text)}; a file is Kernel.from_file(…)"
        )
    _check_whole(text, "the kernel text")
    frame = sys._getframe(depth)
    return Source(text, "<kernel text>", None, (frame.f_code.co_filename, frame.f_lineno))


def from_file(path: str | Path, head: str | None = None, host_code: HostCode = "keep") -> Source:
    """`Source` of a file; quoted includes are looked for beside it.

    `head` is for compiled code. A text is UTF-8; what is not may stand in comments of an nvcc program, which are cut
    with its host code.
    """
    path = path_of("Kernel.from_file: path", path)
    if head is not None:
        text_of("Kernel.from_file: signature", head)
    try:
        data = path.read_bytes()
        if (kind := kind_of(data)) is not None:
            return _from_code(path, data, kind, head)
        errors = "strict" if host_code == "keep" else "replace"
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors).read()
    except OSError as error:
        raise TemplateError(f"cannot read the CUDA source {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"the CUDA source {path} is not UTF-8 (byte {error.start})") from error
    _check_whole(text, str(path))
    if head is not None:
        raise TemplateError(f"{path} is CUDA C++, which has the kernels' heads: a signature is for compiled code")
    return Source(text, str(path), path.resolve().parent)


def _check_whole(text: str, name: str) -> None:
    """Check that the compiler reads all of a text: it would stop at a NUL, and takes bytes of UTF-8."""
    if (place := text.find("\0")) >= 0:
        line = text.count("\n", 0, place) + 1
        raise TemplateError(f"{name} has a NUL character in line {line}, where the compiler would stop reading")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TemplateError(f"{name} is no text: {error}") from None


def from_ptx(text: str, head: str | None = None) -> Source:
    """`Source` of the text of a PTX module."""
    data = text_of("Kernel.from_ptx: text", text).encode()
    if head is not None:
        text_of("Kernel.from_ptx: signature", head)
    if kind_of(data) != "ptx":
        raise TemplateError(
            f"Kernel.from_ptx takes the text of a PTX module, which begins with .version, got "
            f"{shortened(text.strip()[:40])}; "
            "CUDA C++ is Kernel(text), a file Kernel.from_file(path)"
        )
    return Source("", "<PTX text>", None, code=data, head=head)


def _from_code(path: Path, data: bytes, kind: str, head: str | None) -> Source:
    if kind in ("object", "library"):
        raise TemplateError(f"{path} is a host's {kind}: link it to a kernel, with CompileOptions(link=[…])")
    if head is None and kind in ("ltoir", "fatbin"):
        raise TemplateError(
            f"{path} is {kind}, which does not tell its kernels: give the head of one, as in "
            "signature='void scale(float* x, int n)'"
        )
    return Source("", str(path), path.resolve().parent, code=data, head=head)


def _listed(folder: Path) -> list[str]:
    """Concepts of the template files in a folder."""
    parts = [part for part in ("", "tile/") if (folder / part).is_dir()]
    names = [f"{part}{name}" for part in parts for name in os.listdir(folder / part)]
    return sorted(name.removesuffix(".cuh") for name in names if name.endswith(".cuh"))


def _lies_in(folder: Path, concept: str) -> bool:
    path = folder / f"{concept}.cuh"
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def from_template(concept: str) -> Source:
    """`Source` of the packaged template file ``templates/<concept>.cuh``."""
    folder = headers.templates_folder()
    # Only what is listed is opened: a name cannot lead out of the folder, and a link does not either.
    listed = _listed(folder)
    if concept not in listed or not _lies_in(folder, concept):
        known = ", ".join(name for name in listed if _lies_in(folder, name))
        raise TemplateError(f"no packaged template {shortened(concept)}; there are: {known or 'none'}")
    return from_file(folder / f"{concept}.cuh")
