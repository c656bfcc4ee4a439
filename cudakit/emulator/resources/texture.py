"""Textures, surfaces and tensor maps: memory of host arrays that kernels access by a handle, or by 128 bytes.

Textures are sampled as in the CUDA C++ programming guide's chapter on texture fetching. Linear filtering weighs texels
by fractions of 8 bits, with an H200's cuts and roundings. The results are the same bit for bit, with two exceptions.

- About one in a hundred sums of the eight texels of three dimensions, which the hardware cuts once more.
- Signed 8-bit texels read as fractions: one sum in 25 is off by one unit of 16 bits.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import ml_dtypes
import numpy as np

from cudakit.emulator.machine.memory import READ
from cudakit.errors import EmulationError

Resource = TypeVar("Resource")


class Handles(Generic[Resource]):
    """Objects by the handles that kernels use for them, for as long as the objects live."""

    def __init__(self, noun: str, first: int) -> None:
        self._noun, self._first = noun, first
        self._numbers = itertools.count(first)
        self._next = first
        self._objects: weakref.WeakValueDictionary[int, Resource] = weakref.WeakValueDictionary()

    def add(self, resource: Resource) -> int:
        """Return a new handle for an object."""
        number = next(self._numbers)
        self._next = number + 1
        self._objects[number] = resource
        return number

    def __getitem__(self, number: int) -> Resource:
        resource = self._objects.get(number)
        if resource is None:
            why = "was freed: keep the Python object for as long as kernels use it"
            if not self._first <= number < self._next:
                why = f"is no {self._noun} of the emulator; make one with ck.{self._noun}(array)"
            raise EmulationError(f"{self._noun} {number:#x} {why}")
        return resource

    def among(self, numbers: np.ndarray) -> Iterator[tuple[Resource, Any]]:
        """Yield each object that lanes name, with its lanes: a mask, or ``slice(None)`` if all name the same object.

        `numbers` has a handle for each lane.
        """
        if (numbers == numbers[0]).all():
            yield self[int(numbers[0])], slice(None)
            return
        for number in np.unique(numbers):
            yield self[int(number)], numbers == number


# ── textures ──


class TextureObject:
    """Texels of a host array, with the modes by which a kernel reads the texels.

    Attributes
    ----------
    texels : numpy.ndarray, shape (layers, depth, height, width, channels)
        Elements of the host array.
    rank : int
        Number of coordinates of a lookup, without the layer.
    address : tuple of str
        Address modes of x, y and z.
    is_linear : bool
        Whether the texture is linear memory, which integer coordinates index and which is zero outside.
    handle : int
        Handle that a kernel uses for the texture.
    flags : numpy.ndarray or None
        While a launch is watched, a byte for each byte of the texels, which lookups set to `memory.READ`.
    """

    texels: np.ndarray
    rank: int
    filter: str
    address: tuple[str, ...]
    normalized: bool
    read: str

    def __init__(
        self,
        texels: np.ndarray,
        rank: int,
        *,
        filter: str,
        address: tuple[str, ...],
        normalized: bool,
        read: str,
        is_linear: bool,
    ) -> None:
        self.texels, self.rank = texels, rank
        self.filter, self.address, self.normalized, self.read = filter, address, normalized, read
        self.is_linear = is_linear
        self.flags: np.ndarray | None = None
        self.handle: int = TEXTURES.add(self)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Width, height and depth, in texels."""
        depth, height, width = self.texels.shape[1:4]
        return width, height, depth

    @property
    def gives_floats(self) -> bool:
        """True if a lookup returns floats: the texels are floats, or are read as fractions of their type's range."""
        return self.read == "normalized" or self.texels.dtype.kind == "f"


#: Global, since handles may be in memory and in structs, where no launch sees them.
TEXTURES: Handles[TextureObject] = Handles("texture", 0x7400_0000_0000_0000)


def sample(texture: TextureObject, layer: np.ndarray, coordinates: list[np.ndarray], offsets: list[Any]) -> np.ndarray:
    """Return the values at `coordinates` (x, y, z up to the rank), a row of channels a lane.

    Integer coordinates name a texel. Values at float coordinates are filtered.
    """
    if coordinates[0].dtype.kind != "f":
        return _texels(texture, layer, [c.astype(np.float64) + o for c, o in zip(coordinates, offsets, strict=True)])
    positions = _positions(texture, coordinates, offsets)
    if texture.filter == "point":
        return _texels(texture, layer, [np.floor(position) for position in positions])
    # Clamping applies to the coordinate, not to the corner: outside, the fraction is 0 (seen in 3-D weights).
    positions = [
        np.clip(position, 0.5, size - 0.5) if mode == "clamp" else position
        for position, size, mode in zip(positions, texture.sizes, texture.address, strict=False)
    ]
    # Fractions of 8 bits, rounded halves up: 257 values, 1 included.
    corners = [np.floor(position - 0.5) for position in positions]
    fractions = [np.floor((p - 0.5 - c) * _ONE + 0.5) for p, c in zip(positions, corners, strict=True)]
    weights = _weights(fractions)
    corner_texels = {
        steps: _raw_texels(texture, layer, [corner + step for corner, step in zip(corners, steps, strict=True)])
        for steps in weights
    }
    if texture.read == "normalized":
        return _blend_fractions(corner_texels, weights, texture.texels.dtype)
    # The sum goes over the texels of one z, then over the next z.
    total = np.zeros(corner_texels[next(iter(corner_texels))].shape)
    for k in {steps[2:] for steps in weights}:
        total += _blend([(corner_texels[steps], weights[steps][:, None]) for steps in weights if steps[2:] == k])
    bits = np.finfo(texture.texels.dtype).nmant + 1
    return _round(total / _ONE, bits)


#: Weight 1.
_ONE = 256
#: Bits of a texel that enter a sum, from the highest bit of the largest texel.
_ALIGNED_BITS = 28


def _blend(terms: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Sum texels by weights; first cut the bits that the hardware drops when it aligns texels to the largest.

    `terms` has pairs of texels and weights.
    """
    weighed = [np.where(weight > 0, texels, 0).astype(np.float64) for texels, weight in terms]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.max(np.abs(weighed), axis=0))
        cut = [
            np.ldexp(np.trunc(np.ldexp(texels, _ALIGNED_BITS - exponent)), exponent - _ALIGNED_BITS)
            for texels in weighed
        ]
        return np.asarray(sum(texels * weight for texels, (_, weight) in zip(cut, terms, strict=True)))


def _round(values: np.ndarray, bits: int) -> np.ndarray:
    """Round `values` to `bits` significant bits, halves away from zero, as float32."""
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(values)
        whole = np.floor(np.abs(np.ldexp(fraction, bits)) + 0.5)
        return np.asarray(np.copysign(np.ldexp(whole, exponent - bits), values), np.float32)


def _blend_fractions(
    corner_texels: dict[tuple[int, ...], np.ndarray], weights: dict[tuple[int, ...], np.ndarray], dtype: np.dtype
) -> np.ndarray:
    """Sum corner texels by weights, for integer texels that are read as fractions of their range; return float32.

    The sum is rounded to 16 bits as the hardware does. Keys are the corners' steps from the first corner. Weights are
    in 256ths. `dtype` is that of the texels.
    """
    full = 65535 if dtype.kind == "u" else 32767
    unit = full / np.iinfo(dtype).max
    whole = np.sum([corner_texels[steps] * unit * weight[:, None] for steps, weight in weights.items()], axis=0)
    return np.asarray(np.maximum(np.floor(whole / _ONE + 0.5), -32767) / full, np.float32)


def _weights(fractions: list[np.ndarray]) -> dict[tuple[int, ...], np.ndarray]:
    """Return the weight of each corner in 256ths, with a sum of one, as the hardware computes it.

    The hardware splits 256 by z, then by x, then by y. The upper part by z or x is rounded halves up. By y, both parts
    at the upper x are rounded halves up, and both parts at the lower x halves down. The corners' sums along y are then
    the fraction along x.
    """
    x, y, z = (*fractions, *[np.zeros_like(fractions[0])] * (3 - len(fractions)))
    weights = {}
    for k, deep in enumerate((_ONE - z, z)):
        right = np.floor(deep * x / _ONE + 0.5)
        upper_right = np.floor(right * y / _ONE + 0.5)
        left = deep - right
        lower_left = np.floor(left * (_ONE - y) / _ONE + 0.5)
        four = {(0, 0): lower_left, (1, 0): right - upper_right, (0, 1): left - lower_left, (1, 1): upper_right}
        weights.update({(*corner, k)[: len(fractions)]: weight for corner, weight in four.items() if weight.any()})
    return weights


def gather(texture: TextureObject, layer: np.ndarray, coordinates: list[np.ndarray], offsets: list[Any]) -> np.ndarray:
    """Return the four texels that linear filtering would weigh, shape (lanes, 4, channels).

    Their order is (0, 1), (1, 1), (1, 0), (0, 0), as steps in x and y from the corner with the lowest coordinates.
    """
    corners = [np.floor(position - 0.5) for position in _positions(texture, coordinates, offsets)]
    corner_steps = ((0, 1), (1, 1), (1, 0), (0, 0))
    return np.stack([_texels(texture, layer, [corners[0] + x, corners[1] + y]) for x, y in corner_steps], axis=1)


def _positions(texture: TextureObject, coordinates: list[np.ndarray], offsets: list[Any]) -> list[np.ndarray]:
    """Return the position along each axis in texels, as float64: coordinates plus offsets.

    Normalized coordinates are first multiplied by the texture's size. NaN counts as 0, infinity as the largest float.
    """
    positions = []
    for coordinate, offset, size in zip(coordinates, offsets, texture.sizes, strict=False):
        wide = np.nan_to_num(coordinate).astype(np.float64)
        positions.append((wide * size if texture.normalized else wide) + offset)
    return positions


def _texels(texture: TextureObject, layer: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """Return texels at whole-number positions, (lanes, channels), as float32 if the texture gives floats.

    `places` has the positions along x, y and z, up to the rank.
    """
    texels = _raw_texels(texture, layer, places)
    if texture.read == "normalized":
        greatest = np.float64(np.iinfo(texels.dtype).max)
        return np.maximum(texels / greatest, -1.0).astype(np.float32)
    return texels.astype(np.float32) if texels.dtype.kind == "f" else texels


def _raw_texels(texture: TextureObject, layer: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """Return texels at whole-number positions, (lanes, channels), in their own dtype.

    `places` has the positions along x, y and z, up to the rank. Outside the texture the address modes apply.
    """
    inside = np.ones(layer.size, bool)
    where = []
    for place, size, mode in zip(places, texture.sizes, texture.address, strict=False):
        if mode == "wrap":
            place = np.mod(place, size)
        elif mode == "mirror":
            place = np.mod(place, 2 * size)
            place = np.minimum(place, 2 * size - 1 - place)
        elif mode == "border" or texture.is_linear:
            inside &= (place >= 0) & (place < size)
        where.append(np.clip(place, 0, size - 1).astype(np.int64))
    where += [np.zeros(layer.size, np.int64)] * (3 - len(where))
    layers = np.minimum(layer, texture.texels.shape[0] - 1).astype(np.int64)
    texels = texture.texels[layers, where[2], where[1], where[0]]
    if texture.flags is not None:
        rows = texture.flags.reshape(*texture.texels.shape[:4], -1)
        rows[layers[inside], where[2][inside], where[1][inside], where[0][inside]] = READ
    return np.asarray(np.where(inside[:, None], texels, texels.dtype.type(0)))


# ── surfaces ──


class SurfaceObject:
    """Memory of a host array as a surface.

    Attributes
    ----------
    array : numpy.ndarray, shape (layers, depth, height, width, channels), C-contiguous
        Elements of the host array.
    rank : int
        Number of coordinates of a place, without the layer.
    shape : tuple of int
        Shape of the user's array.
    dtype : numpy.dtype
        Dtype of the elements.
    channels : int
        Number of channels.
    layered : bool
        Whether the surface has layers.
    handle : int
        Handle that a kernel uses for the surface.
    """

    array: np.ndarray
    rank: int
    shape: tuple[int, ...]
    dtype: np.dtype
    layered: bool
    channels: int

    def __init__(self, array: np.ndarray, rank: int, shape: tuple[int, ...], layered: bool = False) -> None:
        self.array, self.rank = array, rank
        self.shape, self.dtype, self.layered = shape, array.dtype, layered
        self._bytes = array.reshape(-1).view(np.uint8)
        layers, depth, height, width, self.channels = array.shape
        #: Width in bytes, height, depth, layers.
        self.sizes: tuple[int, int, int, int] = (width * self.channels * array.itemsize, height, depth, layers)
        self.handle: int = SURFACES.add(self)

    @property
    def values(self) -> np.ndarray:
        """View of the memory in the shape of the user's array."""
        return self.array.reshape(self.shape)

    def elements(self, dtype: np.dtype) -> np.ndarray:
        """Return a flat view of the memory as elements of another dtype, without a remainder of bytes at the end."""
        return self._bytes[: self._bytes.size // dtype.itemsize * dtype.itemsize].view(dtype)


#: Global, as textures' handles are.
SURFACES: Handles[SurfaceObject] = Handles("surface", 0x7500_0000_0000_0000)


# ── tensor maps ──

#: Begins every tensor map that the emulator knows.
MAGIC = int.from_bytes(b"cudakit\x01", "little")
#: The 128 bytes of one. Fields by dimension have the fastest dimension first, as the coordinates of a copy do; strides
#: are in bytes, and begin with the second dimension.
TENSOR_MAP = np.dtype(
    {
        "names": ["magic", "address", "kind", "shape", "strides", "box", "element_strides", "rank", "swizzle", "nan"],
        "formats": ["<u8", "<u8", "S8", "(5,)<i8", "(4,)<i8", "(5,)<u2", "(5,)u1", "u1", "u1", "?"],
        "offsets": [0, 8, 120, 16, 56, 96, 106, 111, 112, 113],
        "itemsize": 128,
    }
)


class EmulatedTensorMap:
    """A tensor map for tensor copies: the layout of a tensor, and the shape of a box. It keeps the host array alive.

    Attributes
    ----------
    array : numpy.ndarray
        Host array of the tensor.
    data : bytes
        The 128 bytes of ``CUtensorMap`` that a kernel gets.
    """

    array: np.ndarray
    data: bytes
    #: PTX type of the elements, for each dtype that a tensor map can have.
    KINDS: ClassVar[dict[np.dtype, str]] = {
        np.dtype(np.uint8): "u8", np.dtype(np.uint16): "u16", np.dtype(np.uint32): "u32", np.dtype(np.int32): "s32",
        np.dtype(np.uint64): "u64", np.dtype(np.int64): "s64", np.dtype(np.float16): "f16",
        np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(ml_dtypes.bfloat16): "bf16",
    }  # fmt: skip
    #: Bytes over which 16-byte chunks are exchanged, by name.
    SWIZZLES: ClassVar[dict[str, int]] = {"none": 0, "32B": 32, "64B": 64, "128B": 128}

    __slots__ = ("array", "data")

    def __init__(
        self, array: np.ndarray, box: Sequence[int], element_strides: Sequence[int], swizzle: str, nan: bool,
        precision: str | None = None,
    ) -> None:  # fmt: skip
        """Make a tensor map of an array; dimensions are in NumPy's order, the slowest first."""
        record = np.zeros((), TENSOR_MAP)
        record["magic"], record["address"] = MAGIC, array.__array_interface__["data"][0]
        record["kind"], record["rank"] = precision or self.KINDS[array.dtype], array.ndim
        for field, values in (
            ("shape", array.shape), ("strides", array.strides[:-1]), ("box", box), ("element_strides", element_strides)
        ):  # fmt: skip
            record[field][: len(values)] = values[::-1]
        record["swizzle"], record["nan"] = self.SWIZZLES[swizzle], nan
        self.array, self.data = array, record.tobytes()
