"""The `Source` of a kernel: a text, a file or a packaged template."""

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
from cudakit.types.checked import path_of, text_of

_MAGIC: Final = ((b"\xed\x43\x4e\x7f", "ltoir"), (b"\x50\xed\x55\xba", "fatbin"), (b"!<arch>\n", "library"))
# A comment has only one possible end, or matching many comments would take exponential time.
_PTX: Final = rb"(?:\s|//[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*\.version\s"


def kind_of(code: bytes) -> str | None:
    """Return the format of compiled code: ``cubin``, ``ptx``, ``ltoir``, ``fatbin``, ``object`` or ``library``; else
    None.
    """
    if code[:4] == b"\x7fELF":
        # e_machine of an ELF file: 190 is CUDA.
        return "cubin" if code[18:20] == b"\xbe\0" else "object"
    code_format = next((name for magic, name in _MAGIC if code.startswith(magic)), None)
    head = code[:65536]
    # Most files are C++, and need no regular expression.
    return code_format or ("ptx" if b".version" in head and re.match(_PTX, head) else None)


#: The treatment of host code: compiled, or cut.
HostCode: TypeAlias = Literal["keep", "skip"]


@dataclass(frozen=True)
class Source:
    """CUDA C++ source, or compiled code, and its origin.

    Attributes
    ----------
    text : str
        CUDA C++ source.
    name : str
        Name in diagnostics: a path, or ``<kernel text>`` for a string.
    folder : Path or None
        Folder that ``#include "…"`` searches first; None for a string.
    origin : tuple of (str, int), optional
        File and line of the Python call that passed a string, for diagnostics.
    host_code : {"keep", "skip"}
        Whether the host's part of an nvcc program was cut, with the program's own headers written out in the text.
    left_out : tuple of str
        Host headers that were cut.
    whole : Source or None
        The uncut program.
    code : bytes or None
        Compiled code, in place of a text.
    head : str or None
        Signature of the kernel, if the compiled code does not contain it.
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
        """SHA-256 of the text and the code; of an nvcc program in any folder the same."""
        text = self.text if self.host_code == "keep" else without_folders(self.text)
        return hashlib.sha256(text.encode() + (self.code or b"")).hexdigest()

    def named(self, file: str) -> str:
        """Return the name of a file in the compiler's messages: this source's `name` if `file` is it, else `file`."""
        # The compiler adds its working directory to the name of a string.
        is_this = file.endswith(f"/{self.name}") if self.folder is None else file == str(Path(self.name).absolute())
        return self.name if is_this else file


def from_text(text: str, depth: int = 1) -> Source:
    """Make the `Source` of a string; `depth` counts the frames between the user's call and this function."""
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
    """Make the `Source` of a file; quoted includes search the file's folder first.

    `head` is for compiled code. A text must be UTF-8. Only the comments of an nvcc program, which are cut with its host
    code, may hold other bytes.
    """
    path = path_of("Kernel.from_file: path", path)
    if head is not None:
        text_of("Kernel.from_file: signature", head)
    try:
        data = path.read_bytes()
        if (code_format := kind_of(data)) is not None:
            return _from_code(path, data, code_format, head)
        errors = "strict" if host_code == "keep" else "replace"
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors).read()
    except OSError as error:
        unread = TemplateError(f"cannot read the CUDA source {path}: {error.strerror or error}")
        raise unread.detailed(kind="file", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"the CUDA source {path} is not UTF-8 (byte {error.start})") from error
    _check_whole(text, str(path))
    if head is not None:
        raise TemplateError(f"{path} is CUDA C++, which has the kernels' heads: a signature is for compiled code")
    return Source(text, str(path), path.resolve().parent)


def _check_whole(text: str, name: str) -> None:
    """Check that the compiler can read all of a text: it would stop at a NUL, and reads UTF-8 only."""
    if (place := text.find("\0")) >= 0:
        line = text.count("\n", 0, place) + 1
        raise TemplateError(f"{name} has a NUL character in line {line}, where the compiler would stop reading")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TemplateError(f"{name} is no text: {error}") from None


def from_ptx(text: str, head: str | None = None) -> Source:
    """Make the `Source` of a PTX module."""
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


def from_bytes(data: bytes) -> Source:
    """Make the `Source` of compiled code: PTX or a cubin.

    Raises
    ------
    TemplateError
        If it is code of another format, or no code.
    """
    code_format = kind_of(data)
    if code_format not in ("ptx", "cubin"):
        raise TemplateError(f"compiled code is PTX or a cubin here, got {code_format or shortened(data[:40])}")
    return Source("", f"<{code_format} code>", None, code=data)


def _from_code(path: Path, data: bytes, code_format: str, head: str | None) -> Source:
    if code_format in ("object", "library"):
        raise TemplateError(f"{path} is a host's {code_format}: link it to a kernel, with CompileOptions(link=[…])")
    if head is None and code_format in ("ltoir", "fatbin"):
        raise TemplateError(
            f"{path} is {code_format}, which does not tell its kernels: give the head of one, as in "
            "signature='void scale(float* x, int n)'"
        )
    return Source("", str(path), path.resolve().parent, code=data, head=head)


def _listed(folder: Path) -> list[str]:
    """Return the concepts of the template files in a folder: their names without ``.cuh``, sorted.

    Files in its subfolder ``tile`` are listed as ``tile/<name>``.
    """
    parts = [part for part in ("", "tile/") if (folder / part).is_dir()]
    names = [f"{part}{name}" for part in parts for name in os.listdir(folder / part)]
    return sorted(name.removesuffix(".cuh") for name in names if name.endswith(".cuh"))


def _lies_in(folder: Path, concept: str) -> bool:
    path = folder / f"{concept}.cuh"
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def from_template(concept: str) -> Source:
    """Make the `Source` of the packaged template file ``templates/<concept>.cuh``."""
    from cudakit.jit.source.headers import templates_folder  # sources of users need no folder of cudakit's

    folder = templates_folder()
    # Only listed names are opened: neither a name nor a link can lead out of the folder.
    listed = _listed(folder)
    if concept not in listed or not _lies_in(folder, concept):
        names = ", ".join(name for name in listed if _lies_in(folder, name))
        raise TemplateError(f"no packaged template {shortened(concept)}; there are: {names or 'none'}")
    return from_file(folder / f"{concept}.cuh")


def without_folders(text: str) -> str:
    """Return a text without the folders of the files that ``#line`` names."""
    return re.sub(r'^(#line \d+ ").*[/\\]', r"\1", text, flags=re.MULTILINE)


def escaped(name: str) -> str:
    """Escape a file's name for the quotes of a ``#line``."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
