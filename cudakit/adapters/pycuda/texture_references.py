"""Texture and surface references, which CUDA 12 removed: variables of texture objects take their place.

A source with ``texture<float, 2> name;`` is rewritten: ``name`` is a constant variable with a texture object, of a
class for which ``tex2D(name, x, y)`` and its kin have overloads (``templates/include/pycuda-references.hpp``). Before a
launch, the objects that were bound since the last one are written to these variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import address_of, allocation_at, array_at
from cudakit.adapters.pycuda.driver_arrays import DTYPES, Array, matrix_to_array
from cudakit.adapters.pycuda.enums import TRSF_NORMALIZED_COORDINATES, TRSF_READ_AS_INTEGER, address_mode, array_format
from cudakit.adapters.pycuda.enums import filter_mode as filter_modes
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.jit.source.flatten import flatten
from cudakit.jit.source.source import Source
from cudakit.memory.textures import texture

#: A declaration of references: ``texture<…> a, b;``, perhaps static.
_DECLARED = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?:static\s+)?(?P<noun>texture|surface)\s*"
    r"<(?P<arguments>[^;{}()]*)>\s*(?P<names>[\w\s,]+);"
)


#: Bytes of which the address of a linear texture is a multiple.
_ALIGNMENT = 512


def rewritten(source: Source, folders: Iterable[str]) -> tuple[Source, dict[str, Any]]:
    """Return a source whose references are variables of texture objects, and these by name.

    A source without references is returned unchanged. If its own headers have references, they are written out.
    `folders` are searched for headers.
    """
    references: dict[str, Any] = {}
    text = source.text
    if "#" in text:
        whole, _ = flatten(text, source.name, str(source.folder) if source.folder else None, folders)
        if len(_DECLARED.findall(whole)) > len(_DECLARED.findall(text)):
            text = whole

    def declaration(match: re.Match[str]) -> str:
        for name in (name.strip() for name in match["names"].split(",")):
            is_texture = match["noun"] == "texture"
            reads_fractions = "cudaReadModeNormalizedFloat" in match["arguments"]
            references[name] = TextureReference(name, reads_fractions) if is_texture else SurfaceReference(name)
        return f"{match['indent']}__constant__ pycuda::{match['noun']}<{match['arguments']}> {match['names']};"

    text = _DECLARED.sub(declaration, text)
    if references:
        source = replace(source, text=f"#include <pycuda-references.hpp>\n#line 1\n{text}")
    return source, references


class TextureReference:
    """A texture reference of a module.

    Parameters
    ----------
    variable : str, optional
        Name of the module's variable.
    reads_fractions : bool
        Whether the source says ``cudaReadModeNormalizedFloat``.
    """

    variable: str

    def __init__(self, variable: str = "", reads_fractions: bool = False) -> None:
        self.variable, self._reads_fractions = variable, reads_fractions
        self.is_new: bool = False
        self._array: Array | None = None
        self._memory: tuple[int, int, int, int] | None = None  # address, width, height, pitch
        self._owner: Any = None
        self._format: tuple[Any, int] = (array_format.FLOAT, 1)
        self._address_modes: list[Any] = [address_mode.CLAMP] * 3
        self._filter_mode: Any = filter_modes.POINT
        self._flags = 0
        self.object: Any = None

    def _changed(self) -> None:
        self.is_new = self._array is not None or self._memory is not None

    def set_array(self, ary: Array) -> None:
        """Read the texels of an array."""
        self._array, self._memory = ary, None
        self._format = (ary.get_descriptor().format, ary.channels)
        self._changed()

    def set_address(self, devptr: Any, bytes: int, allow_offset: bool = False) -> int:
        """Read linear device memory, by ``tex1Dfetch``.

        Textures begin at multiples of 512 bytes. Return the offset of `devptr` from such a place, in bytes, which the
        kernel adds.

        Raises
        ------
        LogicError
            If there is an offset, and `allow_offset` is false.
        """
        address = address_of(devptr)
        offset = (address - allocation_at(address).address) % _ALIGNMENT
        if offset and not allow_offset:
            raise LogicError(
                f"cuTexRefSetAddress failed: invalid value: the memory begins {offset} bytes after a multiple of "
                f"{_ALIGNMENT}; give allow_offset=True, and add the offset in the kernel"
            )
        self._array, self._memory = None, (address - offset, int(bytes) + offset, 0, 0)
        self._owner = devptr
        self._changed()
        return offset

    def set_address_2d(self, devptr: Any, descr: Any, pitch: int) -> None:
        """Read rows of device memory that begin `pitch` bytes apart, by ``tex2D``."""
        self._array, self._memory = None, (address_of(devptr), int(descr.width), int(descr.height), int(pitch))
        self._owner = devptr
        self._format = (descr.format, int(descr.num_channels))
        self._changed()

    def set_format(self, format: Any, num_components: int) -> None:
        """Set the type and the number of a texel's components, for linear memory."""
        self._format = (array_format(int(format)), int(num_components))
        self._changed()

    def set_address_mode(self, dim: int, am: Any) -> None:
        """Set what a lookup outside gives along an axis."""
        self._address_modes[dim] = address_mode(int(am))
        self._changed()

    def set_filter_mode(self, mode: Any) -> None:
        """Set whether a lookup gives the nearest texel, or interpolates."""
        self._filter_mode = filter_modes(int(mode))
        self._changed()

    def set_flags(self, flags: int) -> None:
        """Set flags: TRSF_NORMALIZED_COORDINATES, TRSF_READ_AS_INTEGER."""
        self._flags = int(flags)
        self._changed()

    def get_address(self) -> int:
        """Return the address of the linear memory."""
        if self._memory is None:
            raise LogicError("cuTexRefGetAddress failed: invalid value: the reference is not of linear memory")
        return self._memory[0]

    def get_array(self) -> Array | None:
        """Return the array that the reference reads, or None."""
        return self._array

    def get_address_mode(self, dim: int) -> Any:
        """Return what a lookup outside gives along an axis."""
        return self._address_modes[dim]

    def get_filter_mode(self) -> Any:
        """Return the filter mode."""
        return self._filter_mode

    def get_format(self) -> tuple[Any, int]:
        """Return the type and the number of a texel's components."""
        return self._format

    def get_flags(self) -> int:
        """Return the flags."""
        return self._flags

    def bound(self) -> Any:
        """Return the texture object of what the reference is bound to."""
        words: dict[str, Any] = {
            "filter": "linear" if self._filter_mode == filter_modes.LINEAR else "point",
            "normalized": bool(self._flags & TRSF_NORMALIZED_COORDINATES),
            "read": "normalized" if self._reads_fractions and not self._flags & TRSF_READ_AS_INTEGER else "element",
        }
        modes = tuple(mode.name.lower() for mode in self._address_modes)
        if not words["normalized"]:
            # Texels that are counted are clamped, as the driver does it.
            modes = tuple("clamp" if mode in ("wrap", "mirror") else mode for mode in modes)
        with translated():
            if self._array is not None:
                rank = len(self._array.shape) - (self._array.channels > 1) - self._array.layered
                self.object = texture(self._array.surface, address=modes[:rank], **words)
            else:
                self.object = self._of_memory(modes, words)
        self.is_new = False
        return self.object

    def _of_memory(self, modes: tuple[Any, ...], words: dict[str, Any]) -> Any:
        address, width, height, pitch = self._memory or (0, 0, 0, 0)
        dtype, channels = dtype_of_format(self._format[0]), self._format[1]
        last = (channels,) * (channels > 1)
        if not height:
            array = array_at(address, (width // dtype.itemsize // channels, *last), dtype)
            return texture(array, memory="linear", channels=channels, read=words["read"])  # type: ignore[arg-type]
        steps = (pitch, dtype.itemsize * channels, dtype.itemsize)[: 2 + len(last)]
        array = array_at(address, (height, width, *last), dtype, steps)
        return texture(array, memory="linear", channels=channels, address=modes[:2], **words)  # type: ignore[arg-type]


def dtype_of_format(format: Any) -> np.dtype:
    """Return the dtype of an `array_format`."""
    return np.dtype(DTYPES[array_format(int(format)).name])


class SurfaceReference:
    """A surface reference of a module.

    Parameters
    ----------
    variable : str
        Name of the module's variable.
    """

    def __init__(self, variable: str) -> None:
        self.variable: str = variable
        self.is_new: bool = False
        self._array: Array | None = None
        self.object: Any = None

    def set_array(self, array: Array, flags: int = 0) -> None:
        """Read and write the memory of an array."""
        self._array, self.is_new = array, True

    def get_array(self) -> Array | None:
        """Return the array, or None."""
        return self._array

    def bound(self) -> Any:
        """Return the surface object of the array."""
        self.is_new = False
        self.object = None if self._array is None else self._array.surface
        return self.object


def bind_array_to_texref(ary: Array, texref: TextureReference) -> None:
    """Let a texture reference read an array, without a filter and clamped at the edges."""
    texref.set_array(ary)
    texref.set_address_mode(0, address_mode.CLAMP)
    texref.set_address_mode(1, address_mode.CLAMP)
    texref.set_filter_mode(filter_modes.POINT)


def matrix_to_texref(matrix: Any, texref: TextureReference, order: str) -> None:
    """Let a texture reference read a copy of a matrix."""
    bind_array_to_texref(matrix_to_array(matrix, order), texref)
