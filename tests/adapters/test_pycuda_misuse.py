"""Mistakes in programs written for PyCUDA: each gives an error that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudakit.adapters.pycuda import compiler, driver, gpuarray

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
SOURCE = """
__global__ void add(float *x, float v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += v;
}
__global__ void fill(float *x) { x[threadIdx.x] = 1; }
struct Pair { int a; float b; };
__global__ void pair(float *x, Pair p) { x[0] = p.a * p.b; }
"""
ONE, TEN = np.float32(1), np.int32(10)
SHAPE = {"block": (32, 1, 1), "grid": (1, 1)}


@pytest.fixture(scope="module")
def add() -> Any:
    driver.init()
    return compiler.SourceModule(SOURCE).get_function("add")


@pytest.fixture(scope="module")
def pair() -> Any:
    return compiler.SourceModule(SOURCE).get_function("pair")


@pytest.fixture
def x() -> Any:
    return gpuarray.zeros(10, np.float32)


def freed() -> Any:
    memory = driver.mem_alloc(40)
    memory.free()
    return memory


#: Name, arguments of `add`, keyword arguments, exception, and what its message has.
CALLS: list[tuple[str, Callable[[Any], tuple[Any, ...]], dict[str, Any], type[Exception], str]] = [
    ("a Python float", lambda x: (x, 1.0, TEN), SHAPE, TypeError, "parameter v .*numpy.float32"),
    ("a Python int", lambda x: (x, ONE, 10), SHAPE, TypeError, "parameter n .*numpy.int32"),
    ("a float for an int", lambda x: (x, ONE, np.float32(10)), SHAPE, TypeError, "parameter n .*int"),
    ("an int of 8 bytes for an int", lambda x: (x, ONE, np.int64(10)), SHAPE, TypeError, "parameter n .*int"),
    ("a double for a float", lambda x: (x, np.float64(1), TEN), SHAPE, TypeError, "parameter v .*float"),
    ("too few arguments", lambda x: (x, ONE), SHAPE, TypeError, r"add takes 3 arguments .*n\), got 2"),
    ("too many arguments", lambda x: (x, ONE, TEN, TEN), SHAPE, TypeError, "add takes 3 arguments .*got 4"),
    ("no block", lambda x: (x, ONE, TEN), {"grid": (1, 1)}, ValueError, "block"),
    ("a block of no threads", lambda x: (x, ONE, TEN), {"block": (0, 1, 1)}, driver.LogicError, "block"),
    ("a grid of no blocks", lambda x: (x, ONE, TEN), {**SHAPE, "grid": (0, 1)}, driver.LogicError, "grid"),
    ("a negative grid", lambda x: (x, ONE, TEN), {**SHAPE, "grid": (-1, 1)}, driver.LogicError, "grid"),
    ("a block as one number", lambda x: (x, ONE, TEN), {"block": 32}, TypeError, "block.*tuple"),
    ("a grid of floats", lambda x: (x, ONE, TEN), {**SHAPE, "grid": (10 / 5, 1)}, TypeError, "grid.*float|ints"),
    ("a block of four", lambda x: (x, ONE, TEN), {"block": (1, 1, 1, 1)}, driver.LogicError, "block"),
    ("a large block", lambda x: (x, ONE, TEN), {"block": (2048, 1, 1)}, driver.LogicError, "1024"),
    ("a misspelt keyword", lambda x: (x, ONE, TEN), {**SHAPE, "shard": 4}, ValueError, "shard"),
    ("much shared memory", lambda x: (x, ONE, TEN), {**SHAPE, "shared": 10**7}, driver.LogicError, "shared"),
    ("negative shared memory", lambda x: (x, ONE, TEN), {**SHAPE, "shared": -4}, driver.LogicError, "shared"),
    ("another stream", lambda x: (x, ONE, TEN), {**SHAPE, "stream": 7}, TypeError, "stream"),
    ("a list", lambda x: ([1.0, 2.0], ONE, TEN), SHAPE, TypeError, "parameter x .*In"),
    ("a host array", lambda x: (np.zeros(10, np.float32), ONE, TEN), SHAPE, TypeError, "parameter x .*InOut"),
    ("a host array of doubles", lambda x: (driver.InOut(np.zeros(10)), ONE, TEN), SHAPE, TypeError, "float64.*astype"),
    ("a list in In", lambda x: (driver.In([1.0]), ONE, TEN), SHAPE, TypeError, r"In takes a NumPy array, got \[1.0\]"),
    ("an array of another dtype", lambda x: (gpuarray.zeros(10, np.float64), ONE, TEN), SHAPE, TypeError, "float64"),
    ("freed memory", lambda x: (freed(), ONE, TEN), SHAPE, driver.LogicError, "freed"),
    ("an address of freed memory", lambda x: (np.intp(int(freed())), ONE, TEN), SHAPE, driver.LogicError, "freed"),
    ("an address as an int", lambda x: (int(x.gpudata), ONE, TEN), SHAPE, TypeError, "numpy.uintp"),
    ("an address of 4 bytes", lambda x: (np.int32(64), ONE, TEN), SHAPE, TypeError, "8 bytes"),
    ("a string", lambda x: ("x", ONE, TEN), SHAPE, TypeError, "parameter x"),
]


#: Only the emulator knows that no memory is there: on a GPU repeated prepared calls pass addresses on.
ON_EMULATOR = ("an address of freed memory", "freed memory of a prepared call")


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "text"),
    [pytest.param(*call, id=name, marks=pytest.mark.emulator if name in ON_EMULATOR else ()) for name, *call in CALLS],
)
def test_a_wrong_call_says_what_is_wrong(
    add: Any, x: Any, arguments: Any, keywords: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        add(*arguments(x), **keywords)
    add(x, ONE, TEN, **SHAPE)
    assert (x.get() == 1).all()


def read_only(n: int = 10) -> Any:
    array = np.zeros(n, np.float32)
    array.flags.writeable = False
    return array


def freed_when_prepared(x: Any) -> None:
    fill = compiler.SourceModule(SOURCE).get_function("fill")
    fill.prepare("P")
    memory = driver.mem_alloc(128)
    fill.prepared_call((1, 1), (32, 1, 1), memory)
    memory.free()
    fill.prepared_call((1, 1), (32, 1, 1), memory)


#: Name, action, exception, and what its message has.
ACTIONS: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("memory freed twice", lambda x: freed().free(), driver.LogicError, "free"),
    ("a copy from freed memory", lambda x: driver.memcpy_dtoh(np.zeros(10), freed()), driver.LogicError, "freed"),
    ("a copy to freed memory", lambda x: driver.memcpy_htod(freed(), np.zeros(5)), driver.LogicError, "freed"),
    ("a copy past the end", lambda x: driver.memcpy_htod(x.gpudata, np.zeros(6)), driver.LogicError, "48 bytes"),
    ("a copy of every second", lambda x: driver.memcpy_htod(x.gpudata, np.zeros(9)[::2]), ValueError, "contiguous"),
    ("a list as source", lambda x: driver.memcpy_htod(x.gpudata, [1.0]), TypeError, "NumPy array"),
    ("a read-only destination", lambda x: driver.memcpy_dtoh(read_only(), x.gpudata), Exception, "read-only"),
    ("swapped arguments", lambda x: driver.memcpy_htod(np.zeros(10), x.gpudata), TypeError, "memcpy_htod|device mem"),
    ("memory of no bytes", lambda x: driver.mem_alloc(0), driver.LogicError, "0"),
    ("memory of a negative size", lambda x: driver.mem_alloc(-4), driver.Error, "-4"),
    ("memory of a float's size", lambda x: driver.mem_alloc(4.0), TypeError, "float"),
    ("too much memory", lambda x: driver.mem_alloc(1 << 50), driver.MemoryError, "memory"),
    ("an array of another size", lambda x: x.set(np.zeros(11, np.float32)), ValueError, "11"),
    ("an array of another dtype", lambda x: x.set(np.zeros(10)), (TypeError, ValueError), "dtype|float64"),
    ("a wrong result array", lambda x: x.get(np.zeros(3, np.float32)), (TypeError, ValueError), "10 elements"),
    (
        "shapes that differ",
        lambda x: x + gpuarray.zeros(4, np.float32),
        NotImplementedError,
        "10.* and .*4.* differ",
    ),
    ("a host array in arithmetic", lambda x: x + np.ones(10, np.float32), TypeError, "to_gpu"),
    ("a list in to_gpu", lambda x: gpuarray.to_gpu([1, 2]), (TypeError, AttributeError), "list|array"),
    ("objects", lambda x: gpuarray.to_gpu(np.array([None, 1])), (TypeError, ValueError), "object"),
    ("an array of objects", lambda x: gpuarray.zeros(3, object), TypeError, "Python objects"),
    ("a conversion to objects", lambda x: x.astype(object), TypeError, "Python objects"),
    ("a view as objects", lambda x: x.view(object), TypeError, "Python objects"),
    ("host memory of objects", lambda x: driver.pagelocked_empty(3, object), TypeError, "Python objects"),
    ("a copy to objects", lambda x: driver.from_device(x.gpudata, 3, object), TypeError, "references|object"),
    ("freed memory of a prepared call", freed_when_prepared, driver.LogicError, "freed"),
    ("an index beyond", lambda x: x[10], IndexError, "10"),
    ("a slice by a list", lambda x: x[[1, 2]], (TypeError, IndexError, NotImplementedError), "list|take|index"),
    ("a shape that does not fit", lambda x: x.reshape(3, 4), ValueError, "reshape|size|shape"),
    ("a truth value", lambda x: bool(x), ValueError, "truth"),
    ("a missing function", lambda x: compiler.SourceModule(SOURCE).get_function("fil"), driver.LogicError, "fill"),
    ("a missing global", lambda x: compiler.SourceModule(SOURCE).get_global("v"), driver.LogicError, "v"),
    ("an option that is none", lambda x: compiler.SourceModule(SOURCE, options=["--no-such"]), Exception, "no-such"),
    ("a device beyond", lambda x: driver.Device(99), driver.LogicError, "99"),
    ("an event not recorded", lambda x: driver.Event().time_till(driver.Event()), driver.LogicError, "record"),
    ("a name of PyCUDA that is not here", lambda x: driver.no_such_name, AttributeError, "no_such_name"),
]


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        pytest.param(*rest, id=name, marks=pytest.mark.emulator if name in ON_EMULATOR else ())
        for name, *rest in ACTIONS
    ],
)
def test_a_mistake_says_what_is_wrong(x: Any, action: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        action(x)
    assert not x.get().any()
