"""C++'s scalar types by code, and random Python objects given for them: right, convertible and wrong."""

from __future__ import annotations

import ctypes
import decimal
import enum
import fractions
import random
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from support.fuzz.judge import Given

#: NumPy's dtypes by code.
DTYPES: Final = {
    "bool": np.dtype("?"),
    **{code: np.dtype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")},
    **{code: np.dtype(code) for code in ("f2", "f4", "f8", "c8", "c16")},
    "bf2": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
CODES: Final = {dtype: code for code, dtype in DTYPES.items()}

#: C++ spellings by code, and what must be included for some.
SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("bool",),
    "i1": ("signed char", "char", "char signed", "int8_t", "std::int8_t"),
    "u1": ("unsigned char", "uint8_t", "std::uint8_t", "unsigned  char"),
    "i2": ("short", "short int", "signed short", "int16_t", "int short signed"),
    "u2": ("unsigned short", "uint16_t", "short unsigned int"),
    "i4": ("int", "signed", "signed int", "int32_t", "std::int32_t", "int signed"),
    "u4": ("unsigned", "unsigned int", "uint32_t", "int unsigned"),
    "i8": ("long long", "long", "long int", "int64_t", "long long int", "ptrdiff_t", "long signed int long"),
    "u8": ("unsigned long long", "size_t", "unsigned long", "uint64_t", "std::size_t", "long unsigned int"),
    "f4": ("float",),
    "f8": ("double",),
    "f2": ("__half", "half"),
    "bf2": ("__nv_bfloat16",),
    "e4m3": ("__nv_fp8_e4m3",),
    "e5m2": ("__nv_fp8_e5m2",),
    "c8": ("cuda::std::complex<float>",),
    "c16": ("cuda::std::complex<double>",),
}
HEADERS: Final = {
    "f2": "cuda_fp16.h",
    "bf2": "cuda_bf16.h",
    "e4m3": "cuda_fp8.h",
    "e5m2": "cuda_fp8.h",
    "c8": "cuda/std/complex",
    "c16": "cuda/std/complex",
}
#: How often a type is taken: those that need no header, which compile quickly, most.
WEIGHTS: Final = {code: 0.15 if code in HEADERS else 3 for code in SPELLINGS}

#: Numbers at which a conversion can go wrong.
_INTEGERS: Final = [
    *(
        sign * (2**bits + step)
        for bits in (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 127)
        for step in (-1, 0, 1)
        for sign in (1, -1)
    ),
    2**24 + 1,
    2**60 + 2**36 + 1,
    2**60 + 2**36 - 1,
    2**53 + 3,
    -(2**60) - 2**36 - 1,
    16777217 * 2**20 + 1,
    10**30,
    65519,
    65520,
    2**127 * 2 - 2**103,
    10**400,
]
_REALS: Final = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1 / 3,
    2.5,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e39,
    -1e39,
    1e308,
    5e-324,
    1e-45,
    7e-46,
    2.0**-149,
    2.0**-150,
    2.0**-150 * 1.0000001,
    3.4028235677973366e38,
    3.4028235677973362e38,
    65504.0,
    65519.99,
    65520.0,
    6e-8,
    2.98e-8,
    1 + 2**-11,
    1 + 2**-11 + 2**-40,
    1 + 2**-8 + 2**-40,
    1 + 2**-9 + 2**-33,
    1.00390625,
    1 + 2**-24,
    1 + 2**-24 + 2**-50,
    448.0,
    464.0,
    57344.0,
    61440.0,
    255.0,
    256.0,
    2147483648.0,
    4294967296.0,
    9.223372036854775807e18,
]


class Color(enum.IntEnum):
    RED = 1
    BLUE = 200
    FAR = 2**40


class Flags(enum.IntFlag):
    A = 1
    B = 128


class Plain(enum.Enum):
    ONE = 1


class OwnInt(int):
    pass


class OwnFloat(float):
    pass


class Index:
    def __index__(self) -> int:
        return 3


class Real:
    def __float__(self) -> float:
        return 2.5


class Value(NamedTuple):
    """A Python object, and the number that it is; None for what is no number to C++."""

    value: Any
    given: Given | None


def of_python(value: Any) -> Value:
    """A number of Python's or NumPy's, as the judge reads it."""
    if isinstance(value, bool | np.bool_):
        return Value(value, Given("bool", bytes([bool(value)])))
    if isinstance(value, np.longdouble):
        return Value(value, Given("f16", value.tobytes()))
    if isinstance(value, np.clongdouble | np.datetime64 | np.timedelta64):
        return Value(value, None)
    if isinstance(value, np.generic) and value.dtype in CODES:
        return Value(value, Given(CODES[value.dtype], value.tobytes()))
    if isinstance(value, np.integer):
        return Value(value, Given("integer", str(int(value)).encode()))
    if isinstance(value, int):
        return Value(value, Given("integer", str(int(value)).encode()))
    if isinstance(value, float):
        return Value(value, Given("f8", np.float64(value).tobytes()))
    if isinstance(value, complex):
        return Value(value, Given("c16", np.complex128(value).tobytes()))
    return Value(value, None)


def right(random: random.Random, code: str) -> Value:
    """A value that a type holds, in a Python type that one would use for it."""
    dtype = DTYPES[code]
    if dtype.kind == "b":
        return of_python(random.choice([True, False, np.True_, np.False_]))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        number = random.choice([0, 1, 5, int(info.max), int(info.min), random.randint(int(info.min), int(info.max))])
        return of_python(random.choice([number, dtype.type(number), number]))
    if dtype.kind == "c":
        number = complex(random.uniform(-9, 9), random.uniform(-9, 9))
        return of_python(random.choice([number, dtype.type(number), number.real]))
    real = random.choice([0.0, 1.0, -2.5, random.uniform(-100, 100), random.uniform(-1, 1)])
    return of_python(random.choice([real, dtype.type(real), int(real), real]))


def any_number(random: random.Random) -> Value:
    """A number of any type, often at an edge."""
    kind = random.randrange(8)
    if kind == 0:
        return of_python(random.choice(_INTEGERS))
    if kind == 1:
        return of_python(random.choice(_REALS))
    if kind == 2:
        return of_python(
            random.choice(
                [
                    True,
                    False,
                    np.True_,
                    Color.BLUE,
                    Color.FAR,
                    Flags.A | Flags.B,
                    OwnInt(7),
                    OwnFloat(0.1),
                    3 + 0j,
                    1e39j,
                    complex("nan"),
                ]
            )
        )
    if kind == 3:
        return _bits(random)
    if kind == 4:
        return of_python(np.longdouble(random.choice(_REALS)) + np.longdouble(2) ** -62)
    if kind == 5:
        return _of_ctypes(random) if random.random() < 0.6 else _of_float(random)
    code = random.choice(list(DTYPES))
    dtype = DTYPES[code]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return of_python(dtype.type(random.choice([int(info.max), int(info.min), 1])))
    with np.errstate(all="ignore"):
        return of_python(dtype.type(random.choice(_REALS)))


def _bits(random: random.Random) -> Value:
    """A number of random bits: subnormal ones, NaNs with payloads."""
    code = random.choice([code for code in DTYPES if code != "bool"])
    dtype = DTYPES[code]
    data = random.randbytes(dtype.itemsize)
    if dtype.kind not in "iu" and random.random() < 0.5:
        data = (
            data[:-2]
            + random.choice([b"\x80\x7f", b"\xc0\x7f", b"\xf0\x7f", b"\xf8\xff", b"\x00\x00"])[-dtype.itemsize :]
            if dtype.itemsize > 1
            else data
        )
    return of_python(np.frombuffer(data[: dtype.itemsize].ljust(dtype.itemsize, b"\1"), dtype)[0])


def _of_float(random: random.Random) -> Value:
    """What `float` reads: it goes by way of a double."""
    third, tenth = fractions.Fraction(1, 3), decimal.Decimal("0.1")
    others = [decimal.Decimal("NaN"), decimal.Decimal("Infinity"), Index(), Real(), np.zeros((), "f4"), np.array(3)]
    value = random.choice([third, tenth, *others])
    return Value(value, Given("f8", np.float64(float(value)).tobytes()))


_CTYPES: Final = {
    ctypes.c_int8: "i1",
    ctypes.c_uint8: "u1",
    ctypes.c_int16: "i2",
    ctypes.c_uint16: "u2",
    ctypes.c_int32: "i4",
    ctypes.c_uint32: "u4",
    ctypes.c_int64: "i8",
    ctypes.c_uint64: "u8",
    ctypes.c_float: "f4",
    ctypes.c_double: "f8",
    ctypes.c_bool: "bool",
    ctypes.c_longdouble: "f16",
}


def _of_ctypes(random: random.Random) -> Value:
    kind = random.choice(list(_CTYPES))
    value = kind(random.choice([0, 1, 77, 300, -1]))
    return Value(value, Given(_CTYPES[kind], bytes(value)))


def wrong(random: random.Random) -> Value:
    """Something that is no number to C++."""
    return Value(
        random.choice(
            [
                None,
                "2.5",
                "1",
                b"1",
                "",
                [1],
                (1,),
                {},
                {1},
                object(),
                Plain.ONE,
                print,
                np.array(["1"]),
                np.array([1.0, 2.0]),
                np.datetime64("2020-01-01"),
                np.timedelta64(3, "s"),
                np.str_("1"),
                np.bytes_(b"1"),
                range(3),
                slice(3),
                ...,
                NotImplemented,
                int,
                np.float32,
                np.dtype("f4"),
                np.array(None),
                np.ma.masked,
                np.clongdouble(1),
                ctypes.c_char(b"a"),
                ctypes.c_wchar("a"),
                ctypes.c_char_p(b"a"),
                ctypes.py_object(3),
                ctypes.c_void_p(4),
                memoryview(b"12345678"),
                bytearray(8),
                np.void(b"12345678"),
                float,
                decimal.Decimal,
                iter([1]),
                np.zeros(1, "i4"),
                np.float32,
                type(None),
                lambda: 1,
                (),
                [],
                (1, 2),
                (1, 2, 3),
                [1.0, 2.0, 3.0, 4.0],
            ]
        ),
        None,
    )
