"""C++ types of variables as NumPy's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.emulator.debug.dwarf import Entry
from cudakit.emulator.debug.scope import Type, of_entry, of_shared


def base(encoding: int, size: int) -> Entry:
    return Entry("base", {"encoding": encoding, "size": size})


INT, FLOAT = base(5, 4), base(4, 4)
PART = Entry(
    "struct",
    {"name": "Part", "size": 12},
    [
        Entry("member", {"name": "x", "type": FLOAT}),
        Entry("member", {"name": "n", "type": INT, "offset": 8}),
        Entry("function", {"name": "f", "type": INT}),
    ],
)


@pytest.mark.parametrize(
    ("encoding", "size", "dtype"),
    [
        (2, 1, "?"),
        (4, 4, "f4"),
        (4, 8, "f8"),
        (4, 2, "f2"),
        (5, 8, "i8"),
        (5, 1, "i1"),
        (6, 1, "i1"),
        (7, 4, "u4"),
        (8, 1, "u1"),
    ],
)
def test_numbers(encoding: int, size: int, dtype: str) -> None:
    assert of_entry(base(encoding, size)) == Type(np.dtype(dtype))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        base(5, 16),
        base(3, 8),
        Entry("base", {"encoding": 5}),
        Entry("base", {"size": 1}),
        Entry("same"),
        Entry("array", {"type": None}, [Entry("extent", {"count": 3})]),
        Entry("struct", {"name": "Empty", "size": 1}),
        Entry("struct", {"size": 4}, [Entry("member", {"name": "x", "type": base(5, 16)})]),
        Entry("struct", {"size": 2}, [Entry("member", {"name": "x", "type": INT})]),
        Entry("struct", {"size": 8}, [Entry("member", {"name": "x", "type": INT, "offset": "register"})]),
        Entry("function"),
    ],
)
def test_what_numpy_has_no_type_for(entry: Entry | None) -> None:
    assert of_entry(entry) is None


def test_other_types() -> None:
    assert of_entry(Entry("same", {"type": Entry("same", {"type": INT})})) == Type(np.dtype("i4"))
    assert of_entry(Entry("pointer", {"type": PART})) == Type(np.dtype("u8"), PART)
    assert of_entry(Entry("pointer")) == Type(np.dtype("u8"), None)
    assert of_entry(Entry("enum")) == Type(np.dtype("i4"))
    assert of_entry(Entry("enum", {"size": 2})) == Type(np.dtype("i2"))
    assert of_entry(Entry("struct", {"name": "__half", "size": 2})) == Type(np.dtype("f2"))
    assert of_entry(Entry("struct", {"name": "__nv_bfloat16", "size": 2})) == Type(np.dtype(ml_dtypes.bfloat16))
    assert of_entry(Entry("struct", {"name": "__nv_fp8_e5m2", "size": 1})) == Type(np.dtype(ml_dtypes.float8_e5m2))


def test_arrays() -> None:
    extents = [Entry("extent", {"count": 2}), Entry("function"), Entry("extent", {"last": 4})]
    assert of_entry(Entry("array", {"type": INT}, extents)) == Type(np.dtype(("i4", (2, 5))))
    pointers = Entry("array", {"type": Entry("pointer", {"type": PART})}, [Entry("extent", {"count": 3})])
    assert of_entry(pointers) == Type(np.dtype(("u8", (3,))), PART)
    assert of_entry(Entry("array", {"type": INT}, [Entry("extent")])) == Type(np.dtype(("i4", (0,))))


def test_structs() -> None:
    fields = {"names": ["x", "n"], "formats": ["f4", "i4"], "offsets": [0, 8], "itemsize": 12}
    assert of_entry(PART) == Type(np.dtype(fields))  # type: ignore[call-overload]
    derived = Entry(
        "struct", {"size": 16}, [Entry("member", {"type": PART}), Entry("member", {"type": INT, "offset": 12})]
    )
    found = of_entry(derived)
    assert found is not None
    assert found.dtype.names == ("base0", "base1")
    assert [found.dtype.fields[name][1] for name in found.dtype.names] == [0, 12]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "size", "dtype", "shape"),
    [
        ("__shared__ float tile[64];", 256, "f4", (64,)),
        ("__shared__ float tile[4][8];", 128, "f4", (4, 8)),
        ("__shared__ float tile;", 4, "f4", ()),
        ("__shared__ float tile;", 8, "f4", (2,)),
        ("__shared__ T tile[B + 1];", 72, "f8", (9,)),
        ("__shared__ T tile[2 * B][N];", 16 * 8 * 3, "f8", (16, 3)),
        ("__shared__ float tile[N][4];", 48, "f4", (3, 4)),
        ("__shared__ float tile[N][M];", 48, "f4", (12,)),
        ("__shared__ float tile[N][5];", 48, "f4", (12,)),
        ("__shared__ float tile[64];", 128, "f4", (32,)),
        ("__shared__ const volatile int other[3], tile[2];", 8, "i4", (2,)),
        ("__shared__ __align__(16) int tile[2];", 8, "i4", (2,)),
        ("__shared__ alignas(16) int tile[2];", 8, "i4", (2,)),
        ("__shared__ struct Part tile[2];", 24, "V12", (2,)),
        ("// __shared__ int tile[2];\n__shared__ float tile[2];", 8, "f4", (2,)),
        ("/* __shared__ int\n tile[2]; */ __shared__ float tile[2];", 8, "f4", (2,)),
        ("__shared__ int others[2]; __shared__ float tile[2];", 8, "f4", (2,)),
        ("__shared__ double tile[2];", 12, "u1", (12,)),
        ("__shared__ Unknown<int> tile[2];", 8, "u1", (8,)),
        ("__shared__ int other[2];", 8, "u1", (8,)),
        ("__shared__ Wide tile[2];", 8, "u1", (8,)),
    ],
)
def test_shared_variables(text: str, size: int, dtype: str, shape: tuple[int, ...]) -> None:
    meant: dict[str, Any] = {"T": "double", "B": "8"}
    structs = {"Part": PART, "Wide": Entry("struct", {"size": 16})}
    found = of_shared(text, "tile", size, meant, structs)
    assert (found.base.str[1:], found.shape) == (dtype, shape)
