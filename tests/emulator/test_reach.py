"""Memory that a kernel comes to by pointers which its arguments hold, and by those that leave a view for its base."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator

pytestmark = pytest.mark.emulator

VIEW = np.dtype([("data", "u8"), ("n", "i4")], align=True)
#: Never an argument, and made before any test: no array of an earlier launch had its addresses.
NO_ARGUMENT = np.zeros(100_000, "f4")
KERNELS = """
struct View { float* data; int n; };
struct Node { Node* next; long long value; };
__device__ float* kept;
__global__ void by_value(View v) { if (threadIdx.x < v.n) v.data[threadIdx.x] *= 2; }
__global__ void in_memory(const View* v) { View w = v[blockIdx.x]; if (threadIdx.x < w.n) w.data[threadIdx.x] *= 2; }
__global__ void rows(float** rows) { rows[blockIdx.x][threadIdx.x] += 1; }
__global__ void number(unsigned long long x) { ((float*)x)[threadIdx.x] += 1; }
__global__ void add_up(const Node* node, long long* sum) { for (; node; node = node->next) *sum += node->value; }
__global__ void keep(View v, float* out) { if (v.data) kept = v.data; else out[threadIdx.x] = kept[threadIdx.x]; }
__global__ void before(const float* x, float* y) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }
__global__ void make(View v, View* made) { made->data = v.data; made->n = v.n; }
"""


@pytest.fixture
def stream() -> Any:
    return emulator.stream()


def kernel(name: str) -> ck.Kernel:
    return ck.Kernel(KERNELS, name)


def address_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def ramp(stream: Any, size: int = 32) -> np.ndarray:
    made: np.ndarray = ck.to_device(np.arange(size, dtype="f4"), stream)
    return made


def test_a_struct_holds_a_pointer(stream: Any) -> None:
    x = ramp(stream)
    view = np.array([(address_of(x), 32)], VIEW)
    kernel("by_value")(stream, ck.config(1, 32), view[0])
    kernel("in_memory")(stream, ck.config(1, 32), view)
    np.testing.assert_array_equal(x, np.arange(32) * 4)


@pytest.mark.parametrize("kind", ["device", "managed", "pinned"])
def test_an_array_holds_pointers(stream: Any, kind: Any) -> None:
    """Each to an array of its own; and one into the middle of one."""
    arrays = [ck.empty(16, np.float32, kind, stream) for _ in range(300)]
    for number, array in enumerate(arrays):
        array[:] = number
    addresses = [address_of(array) for array in arrays[:-1]] + [address_of(arrays[-1]) + 32]
    kernel("rows")(stream, ck.config(300, 8), ck.to_device(np.array(addresses, "u8"), stream))
    for number, array in enumerate(arrays):
        changed = slice(0, 8) if number < 299 else slice(8, 16)
        expected = np.full(16, number, "f4")
        expected[changed] += 1
        np.testing.assert_array_equal(array, expected)


def test_a_number_and_a_variable_are_pointers(stream: Any) -> None:
    x, out = ramp(stream), np.zeros(32, "f4")
    kernel("number")(stream, ck.config(1, 32), address_of(x))
    np.testing.assert_array_equal(x, np.arange(1, 33))
    kept, keep = np.array([(address_of(x), 32), (0, 0)], VIEW), kernel("keep")
    keep(stream, ck.config(1, 1), kept[0], out)
    keep(stream, ck.config(1, 32), kept[1], out)
    np.testing.assert_array_equal(out, x)


def test_code_holds_an_address(stream: Any) -> None:
    x, out = ramp(stream), ck.to_device(np.zeros(32, "f4"), stream)
    text = "__global__ void f(float* out) { out[threadIdx.x] = ((float*)ADDRESS)[threadIdx.x]; }"
    f = ck.Kernel(text, options=ck.CompileOptions(defines={"ADDRESS": f"{address_of(x)}ull"}))
    f(stream, ck.config(1, 32), out)
    np.testing.assert_array_equal(out, np.arange(32))


def test_a_list_is_walked_from_array_to_array(stream: Any) -> None:
    nodes = [ck.empty(2, np.int64, "device", stream) for _ in range(50)]
    for number, node in enumerate(nodes):
        node[:] = address_of(nodes[number + 1]) if number < 49 else 0, number
    total = np.zeros(1, "i8")
    kernel("add_up")(stream, ck.config(1, 1), nodes[0].view("u1"), total)
    assert total[0] == sum(range(50))


def test_a_pointer_that_a_kernel_wrote(stream: Any) -> None:
    x, made = ramp(stream), np.zeros(1, VIEW)
    kernel("make")(stream, ck.config(1, 1), np.array([(address_of(x), 32)], VIEW)[0], made)
    kernel("in_memory")(stream, ck.config(1, 32), made)
    np.testing.assert_array_equal(x, np.arange(32) * 2)


def test_a_view_is_left_for_its_base(stream: Any) -> None:
    x, y = np.arange(33, dtype="f4"), np.zeros(32, "f4")
    kernel("before")(stream, ck.config(1, 32), x[1:], y)
    np.testing.assert_array_equal(y, x[:32])
    with pytest.raises(
        ck.EmulationError, match="the nearest is x with 33 elements: element -1 is before the beginning"
    ):
        kernel("before")(stream, ck.config(1, 32), x, y)


def test_what_a_view_may_not_write_it_may_not_write_beside_itself(stream: Any) -> None:
    x = np.zeros(33, "f4")
    part = x[:32]
    part.flags.writeable = False
    write = ck.Kernel("__global__ void f(const float* x) { ((float*)x)[32] = 1; }")
    with pytest.raises(ck.EmulationError, match="the memory that x is a part of is read-only"):
        write(stream, ck.config(1, 1), part)


def test_the_end_of_what_a_pointer_leads_to(stream: Any) -> None:
    x = ramp(stream)
    view = np.array([(address_of(x), 40)], VIEW)
    message = r"the nearest is the float32 array of shape \(32,\) that a pointer leads to.* element 32 is past the end"
    with pytest.raises(ck.EmulationError, match=message):
        kernel("by_value")(stream, ck.config(1, 40), view[0])


def test_an_argument_s_neighbour_is_outside_of_it(stream: Any) -> None:
    """Only what a pointer names is reached: an index that runs into another array is an error as before."""
    arrays = sorted((ramp(stream) for _ in range(40)), key=address_of)
    steps = {(address_of(b) - address_of(a)) // 4: a for a, b in itertools.pairwise(arrays)}
    step, first = min(steps.items())[0], steps[min(steps)]
    far = ck.Kernel("__global__ void f(float* x, int i) { x[i] = 1; }")
    with pytest.raises(ck.EmulationError, match=f"the nearest is x with 32 elements: element {step} is past the end"):
        far(stream, ck.config(1, 1), first, int(step))


def test_an_array_that_is_gone_is_reached_no_more(stream: Any) -> None:
    x = ramp(stream, 100_000)
    view = np.array([(address_of(x), 32)], VIEW)
    kernel("by_value")(stream, ck.config(1, 32), view[0])
    del x
    with pytest.raises(ck.EmulationError, match=r"no longer exists|in no allocation|outside"):
        kernel("by_value")(stream, ck.config(1, 32), view[0])


def test_memory_that_is_reached_as_an_argument_only_is_named() -> None:
    view = np.array([(address_of(NO_ARGUMENT), 32)], VIEW)
    with pytest.raises(ck.EmulationError, match=r"outside every array of the call\. A pointer in memory .* ck\.empty"):
        kernel("by_value")(emulator.stream(), ck.config(1, 32), view[0])


def test_a_race_is_found_where_pointers_lead(stream: Any) -> None:
    other, x = emulator.stream(), ramp(stream)
    view = np.array([(address_of(x), 32)], VIEW)
    stream.sync()
    kernel("by_value")(stream, ck.config(1, 32), view[0])
    with pytest.raises(ck.EmulationError, match="that a pointer leads to"):
        kernel("by_value")(other, ck.config(1, 32), view[0])


@pytest.mark.parametrize("space", ["__device__", "__constant__"])
@pytest.mark.parametrize("count", [1, 3, 4, 16, 33])
def test_nothing_beside_a_variable_is_in_reach(space: str, count: int) -> None:
    kernel = ck.Kernel(f"{space} int c[{count}] = {{9}}; __global__ void k(int* y, int i) {{ *y = c[i]; }}")
    stream, y = ck.emulator.stream(), np.zeros(1, "i4")
    kernel(stream, ck.config(1, 1), y, 0)
    assert int(y[0]) == 9
    for index in (-1, count, count + 1):
        with pytest.raises(ck.EmulationError, match=r"variable c|outside"):
            kernel(stream, ck.config(1, 1), y, index)
