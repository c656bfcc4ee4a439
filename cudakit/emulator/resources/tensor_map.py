"""The emulator's tensor maps: 128 bytes that tell a copy where a tensor lies and what a box of it is."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

#: Begins every tensor map that the emulator knows.
MAGIC = int.from_bytes(b"cudakit\x01", "little")
BYTES = 128
#: Fields by dimension have the fastest dimension first, as the coordinates of a copy do; strides are
#: in bytes, and begin with the second dimension.
LAYOUT = np.dtype(
    {
        "names": ["magic", "address", "kind", "shape", "strides", "box", "element_strides", "rank", "swizzle", "nan"],
        "formats": ["<u8", "<u8", "S8", "(5,)<i8", "(4,)<i8", "(5,)<u2", "(5,)u1", "u1", "u1", "?"],
        "offsets": [0, 8, 120, 16, 56, 96, 106, 111, 112, 113],
        "itemsize": BYTES,
    }
)
#: PTX type of the elements, for each dtype that a tensor map can have.
KINDS: dict[np.dtype, str] = {
    np.dtype(np.uint8): "u8", np.dtype(np.uint16): "u16", np.dtype(np.uint32): "u32", np.dtype(np.int32): "s32",
    np.dtype(np.uint64): "u64", np.dtype(np.int64): "s64", np.dtype(np.float16): "f16",
    np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(ml_dtypes.bfloat16): "bf16",
}  # fmt: skip
#: Bytes over which 16-byte chunks are exchanged, by name.
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


def place(field: str) -> tuple[int, np.dtype]:
    """Byte at which a field begins, and the unsigned integers that it holds."""
    assert LAYOUT.fields is not None
    dtype, start, *_ = LAYOUT.fields[field]
    return int(start), np.dtype(f"u{dtype.base.itemsize}")


class EmulatedTensorMap:
    """A tensor map of a host array, which it keeps alive.

    Attributes
    ----------
    array : numpy.ndarray
    data : bytes
        The 128 bytes that a kernel gets, ``CUtensorMap`` to it.
    """

    array: np.ndarray
    data: bytes

    __slots__ = ("array", "data")

    def __init__(self, array: np.ndarray, data: bytes) -> None:
        self.array, self.data = array, data


def make(
    array: np.ndarray, box: Sequence[int], element_strides: Sequence[int], swizzle: str, nan: bool
) -> EmulatedTensorMap:
    """The tensor map of an array; dimensions as NumPy has them, the slowest first."""
    record = np.zeros((), LAYOUT)
    rank = array.ndim
    record["magic"], record["address"] = MAGIC, array.__array_interface__["data"][0]
    record["kind"], record["rank"] = KINDS[array.dtype], rank
    for field, values in (
        ("shape", array.shape), ("strides", array.strides[:-1]), ("box", box), ("element_strides", element_strides)
    ):  # fmt: skip
        record[field][: len(values)] = values[::-1]
    record["swizzle"], record["nan"] = SWIZZLES[swizzle], nan
    return EmulatedTensorMap(array, record.tobytes())
