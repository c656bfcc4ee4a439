"""Stand-ins for ``cuda.core.texture`` and for tensor maps: textures, surfaces and maps of the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.core import TensorMapDescriptorOptions
from cuda.core.texture import OpaqueArrayOptions, TextureObjectOptions
from cuda.core.typing import ArrayFormatType

from cudakit.adapters.cuda_core.faults import Closeable, CoreError, of_options, raising
from cudakit.adapters.cuda_core.memory import Buffer
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.streams import stream_of
from cudakit.adapters.cuda_core.views import StridedMemoryView
from cudakit.errors import shortened
from cudakit.memory import memory, textures


class _Closeable(Closeable):
    """A resource of the device that is closed by hand or by a ``with`` block."""

    _emulated: Any

    @property
    def handle(self) -> int:
        """Number by which kernels use the object; 0 once it is closed."""
        return 0 if self.is_closed else int(self._emulated.handle)

    @property
    def device(self) -> Any:
        """The one device."""
        return parts.Device(0)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _shaped(shape: Sequence[int], channels: int) -> tuple[int, ...]:
    """Return NumPy's shape of texels: cuda.core's shape begins with the width."""
    return (*reversed(shape), *((channels,) if channels > 1 else ()))


class OpaqueArray(_Closeable):
    """A stand-in for ``cuda.core.texture.OpaqueArray``."""

    def __init__(self, options: Any) -> None:
        options = of_options(OpaqueArrayOptions, options, "OpaqueArray options")
        self._options = options
        self.shape: tuple[int, ...] = tuple(options.shape)
        self.num_channels: int = int(options.num_channels)
        self.format: Any = options.format
        self.is_surface_load_store: bool = bool(options.is_surface_load_store)
        self.dtype: np.dtype[Any] = np.dtype(str(options.format))
        zeros = np.zeros(_shaped(self.shape, self.num_channels), self.dtype)
        self._emulated = textures.surface(zeros, channels=self.num_channels)  # type: ignore[arg-type]  # 1, 2 or 4

    @property
    def element_bytes(self) -> int:
        """Bytes of an element with all its channels."""
        return self.dtype.itemsize * self.num_channels

    @property
    def size_bytes(self) -> int:
        """Bytes of the array."""
        return int(self._emulated.values.nbytes)

    def _copy(self, other: Any, stream: Any, is_source: bool) -> None:
        values = self._emulated.values
        if isinstance(other, Buffer):
            flat = other.live_bytes()
        else:
            host = other if isinstance(other, np.ndarray) else np.frombuffer(other, np.uint8)
            flat = host.reshape(-1).view(np.uint8)
        if flat.size < self.size_bytes:
            raise ValueError(f"{flat.size} bytes are smaller than the array extent of {self.size_bytes} bytes")
        shaped = np.asarray(flat)[: self.size_bytes].view(np.ndarray).view(self.dtype).reshape(values.shape)
        target = stream_of(stream, "copy")
        into, source = (values, shaped) if is_source else (shaped, values)
        memory.copy(into, source, target)

    def copy_from(self, src: Any, *, stream: Any) -> None:
        """Copy from a buffer or from host memory, whose first bytes are taken."""
        self._copy(src, stream, True)

    def copy_to(self, dst: Any, *, stream: Any) -> Any:
        """Copy to the first bytes of a buffer or of host memory, and return it."""
        self._copy(dst, stream, False)
        return dst


class ResourceDescriptor:
    """A stand-in for ``cuda.core.texture.ResourceDescriptor``: the memory of a texture."""

    def __init__(self) -> None:
        raise RuntimeError("ResourceDescriptor.from_opaque_array, from_linear or from_pitch2d makes one")

    kind: str
    source: Any
    format: Any
    num_channels: int
    size_bytes: int | None
    width: int | None
    height: int | None
    pitch_bytes: int | None

    @classmethod
    def _of(cls, kind: str, source: Any, format: Any, channels: int, **sizes: int | None) -> ResourceDescriptor:
        resource = super().__new__(cls)
        resource.kind, resource.source, resource.format, resource.num_channels = kind, source, format, channels
        for name in ("size_bytes", "width", "height", "pitch_bytes"):
            setattr(resource, name, sizes.get(name))
        return resource

    @classmethod
    def from_opaque_array(cls, array: OpaqueArray) -> ResourceDescriptor:
        """Return the memory of an array."""
        if not isinstance(array, OpaqueArray):
            raise TypeError(f"from_opaque_array takes an OpaqueArray, got {shortened(array)}")
        return cls._of("array", array, array.format, array.num_channels)

    from_mipmapped_array: Any = staticmethod(
        raising("ResourceDescriptor.from_mipmapped_array: the emulator has no mipmaps")
    )

    @classmethod
    def from_linear(
        cls, buffer: Buffer, *, format: Any, num_channels: int, size_bytes: int | None = None
    ) -> ResourceDescriptor:
        """Return the memory of a buffer, in one dimension."""
        element = _element_bytes(buffer, format, num_channels)
        size = buffer.size if size_bytes is None else size_bytes
        if size > buffer.size:
            raise ValueError(f"size_bytes={size} exceeds buffer.size={buffer.size}")
        if size < element or size % element:
            raise ValueError(
                f"a texture has at least one element, and a multiple of element size ({element}), got {size} bytes"
            )
        return cls._of("linear", buffer, format, num_channels, size_bytes=size)

    @classmethod
    def from_pitch2d(
        cls, buffer: Buffer, *, format: Any, num_channels: int, width: int, height: int, pitch_bytes: int
    ) -> ResourceDescriptor:
        """Return the memory of a buffer, in rows that are `pitch_bytes` apart."""
        row = width * _element_bytes(buffer, format, num_channels)
        if width < 1 or height < 1:
            raise ValueError(f"width and height are >= 1, got {width} and {height}")
        if pitch_bytes < row:
            raise ValueError(f"pitch_bytes={pitch_bytes} is less than a row of {row} bytes")
        if pitch_bytes * (height - 1) + row > buffer.size:
            raise ValueError(f"{height} rows of pitch_bytes={pitch_bytes} exceeds buffer.size={buffer.size}")
        sizes = {"width": width, "height": height, "pitch_bytes": pitch_bytes}
        return cls._of("pitch2d", buffer, format, num_channels, **sizes)

    def texels(self) -> Any:
        """Return the surface or the array that a texture reads."""
        if isinstance(self.source, OpaqueArray):
            return self.source._emulated
        dtype, channels = np.dtype(str(self.format)), int(self.num_channels)
        plain = np.asarray(self.source.live_bytes()).view(np.ndarray)
        if self.kind == "linear":
            shape: tuple[int, ...] = ((self.size_bytes or 0) // (dtype.itemsize * channels),)
            return plain[: self.size_bytes].view(dtype).reshape(_shaped(shape, channels))
        row = int(self.width or 0) * dtype.itemsize * channels
        if self.pitch_bytes != row:
            raise CoreError(
                f"ResourceDescriptor.from_pitch2d: the emulator takes rows without a gap: a pitch of {row}, got "
                f"{self.pitch_bytes}"
            )
        shape = (int(self.width or 0), int(self.height or 0))
        return plain[: row * shape[1]].view(dtype).reshape(_shaped(shape, channels))


def _element_bytes(buffer: Any, format: Any, num_channels: Any) -> int:
    """Return the bytes of an element with all its channels, or raise for what cuda.core refuses."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"buffer must be a Buffer, got {shortened(buffer)}")
    if not isinstance(format, ArrayFormatType):
        raise ValueError(f"format must be an ArrayFormatType, got {shortened(format)}")
    if num_channels not in (1, 2, 4):
        raise ValueError(f"num_channels must be 1, 2 or 4, got {shortened(num_channels)}")
    return int(np.dtype(str(format)).itemsize * num_channels)


class TextureObject(_Closeable):
    """A stand-in for ``cuda.core.texture.TextureObject``."""

    def __init__(self, resource: ResourceDescriptor, options: Any = None) -> None:
        options = of_options(TextureObjectOptions, options, "TextureObject options")
        for name in ("srgb", "seamless_cubemap", "max_anisotropy", "border_color"):
            if getattr(options, name):
                raise CoreError(f"TextureObject: the emulator has no {name}, got {shortened(getattr(options, name))}")
        self.resource: ResourceDescriptor = resource
        self.options: Any = options
        texels = resource.texels()
        is_array = resource.kind == "array"
        channels = int(resource.num_channels)
        shape = resource.source.shape if is_array else (1,) * (1 if resource.kind == "linear" else 2)
        modes = options.address_mode
        modes = (str(modes),) * len(shape) if isinstance(modes, str) else tuple(map(str, modes))[: len(shape)]
        words: dict[str, Any] = {
            "filter": str(options.filter_mode), "normalized": bool(options.normalized_coords), "address": modes,
            "read": "normalized" if str(options.read_mode) == "normalized_float" else "element",
            "memory": "array" if is_array else "linear",
        }  # fmt: skip
        if not is_array:
            words["channels"] = channels
        self._emulated = textures.texture(texels, **words)


class SurfaceObject(_Closeable):
    """A stand-in for ``cuda.core.texture.SurfaceObject``."""

    resource: ResourceDescriptor

    def __init__(self, resource: ResourceDescriptor) -> None:
        if resource.kind != "array" or not resource.source.is_surface_load_store:
            raise ValueError("a surface is array-backed: its OpaqueArray was made with is_surface_load_store=True")
        self.resource, self._emulated = resource, resource.source._emulated


_WORDS = {
    "interleave": {"NONE": "none", "INTERLEAVE_16B": "16B", "INTERLEAVE_32B": "32B"},
    "swizzle": {"NONE": "none", "SWIZZLE_32B": "32B", "SWIZZLE_64B": "64B", "SWIZZLE_128B": "128B"},
    "l2_promotion": {"NONE": "none", "L2_64B": "64B", "L2_128B": "128B", "L2_256B": "256B"},
    "oob_fill": {"NONE": "zero", "NAN_REQUEST_ZERO_FMA": "nan"},
}


class TensorMapDescriptor:
    """A stand-in for ``cuda.core.TensorMapDescriptor``."""

    def __init__(self) -> None:
        raise RuntimeError("StridedMemoryView.as_tensor_map makes a TensorMapDescriptor")

    _emulated: Any
    _arguments: tuple[Any, ...]

    @classmethod
    def of_elements(cls, array: np.ndarray, box_dim: Any = None, *, options: Any = None, **keywords: Any) -> Any:
        if options is not None:
            options = of_options(TensorMapDescriptorOptions, options, "TensorMapDescriptor options")
            box_dim = options.box_dim
            keywords = {name: getattr(options, name) for name in (*_WORDS, "element_strides", "data_type")}
        data_type = keywords.pop("data_type", None)
        name = "" if data_type is None else getattr(data_type, "name", None) or np.dtype(data_type).name
        if name and name.lower() != array.dtype.name:
            raise CoreError(f"as_tensor_map: the emulator takes the array's own dtype, got data_type={name}")
        steps = keywords.pop("element_strides", None)
        words = {name: _WORDS[name][value.name] for name, value in keywords.items() if value is not None}
        words = {"fill" if name == "oob_fill" else name: word for name, word in words.items()}
        self = super().__new__(cls)
        self._arguments = (box_dim, steps, words)
        self._take(array)
        return self

    def _take(self, array: np.ndarray) -> None:
        box, steps, words = self._arguments
        self._emulated = textures.tensor_map(array, box, element_strides=steps, **words)

    @property
    def device(self) -> Any:
        """The one device."""
        return parts.Device(0)

    def replace_address(self, tensor: Any) -> None:
        """Take the memory of another array of the same shape and dtype."""
        view = tensor if isinstance(tensor, StridedMemoryView) else StridedMemoryView.from_any_interface(tensor, -1)
        self._take(view.elements())

    def __repr__(self) -> str:
        return "<TensorMapDescriptor on the emulator>"
