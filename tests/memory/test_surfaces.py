"""Surfaces of arrays, which kernels write, textures read, and copies fill and empty."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck

RANDOM = np.random.default_rng(3)


def back(surface: Any, stream: Any) -> np.ndarray:
    """What a surface holds, after what the stream has to do."""
    out = np.zeros(surface.shape, surface.dtype)
    ck.memory.copy(out, surface, stream)
    stream.sync()
    return out


SHAPES = [("1D", (7,), False), ("2D", (5, 7), False), ("3D", (3, 5, 7), False),
          ("1DLayered", (3, 7), True), ("2DLayered", (3, 5, 7), True), ("Cubemap", (6, 4, 4), True)]  # fmt: skip
PLACES = {
    "1D": "4 * x", "2D": "4 * x, y", "3D": "4 * x, y, z", "1DLayered": "4 * x, z", "2DLayered": "4 * x, y, z",
    "Cubemap": "4 * x, y, z",
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "layered"), SHAPES)
def test_kernels_read_and_write(stream: Any, xp: Any, name: str, shape: tuple[int, ...], layered: bool) -> None:
    kernel = ck.Kernel(f"""__global__ void f(cudaSurfaceObject_t s, int* out) {{
        int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
        int value;
        surf{name}read(&value, s, {PLACES[name]});
        out[(z * blockDim.y + y) * blockDim.x + x] = value;
        surf{name}write(value + 100, s, {PLACES[name]});
    }}""")
    values = RANDOM.integers(-1000, 1000, shape, dtype=np.int32)
    surface, out = ck.surface(xp.asarray(values), layered=layered), xp.zeros(shape, "i4")
    block = (shape[-1], 1, shape[0]) if name == "1DLayered" else shape[::-1]
    for turn in range(2):
        kernel(stream, ck.config(1, block), surface, out)
        np.testing.assert_array_equal(to_host(out), values + 100 * turn)
    np.testing.assert_array_equal(back(surface, stream), values + 200)
    assert (surface.shape, surface.dtype, surface.layered) == (shape, np.dtype("i4"), layered)


@pytest.mark.parametrize(
    ("dtype", "channels", "kind"), [("u1", 4, "uchar4"), ("f4", 2, "float2"), ("u2", 1, "unsigned short")]
)
def test_elements_of_several_channels(stream: Any, xp: Any, dtype: str, channels: Any, kind: str) -> None:
    shape = (4, 6, channels) if channels > 1 else (4, 6)
    values = RANDOM.integers(0, 200, shape).astype(dtype)
    kernel = ck.Kernel(f"""__global__ void f(cudaSurfaceObject_t s, cudaSurfaceObject_t to) {{
        int x = threadIdx.x * sizeof({kind}), y = threadIdx.y;
        surf2Dwrite(surf2Dread<{kind}>(s, x, 3 - y), to, x, y);
    }}""")
    surface, target = (ck.surface(xp.asarray(each), channels=channels) for each in (values, np.zeros_like(values)))
    kernel(stream, ck.config(1, (6, 4)), surface, target)
    np.testing.assert_array_equal(back(target, stream), values[::-1])


def test_outside(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""__global__ void f(cudaSurfaceObject_t s, int* out) {
        int x = threadIdx.x - 1;
        out[threadIdx.x] = surf1Dread<int>(s, 4 * x, cudaBoundaryModeClamp);
        out[6 + threadIdx.x] = surf1Dread<int>(s, 4 * x, cudaBoundaryModeZero);
        __syncthreads();
        surf1Dwrite(7, s, 4 * (x + 3), cudaBoundaryModeZero);
    }""")
    surface, out = ck.surface(xp.arange(1, 5, dtype="i4")), xp.zeros(12, "i4")
    kernel(stream, ck.config(1, 6), surface, out)
    assert to_host(out).tolist() == [1, 1, 2, 3, 4, 4, 0, 1, 2, 3, 4, 0]
    assert back(surface, stream).tolist() == [1, 2, 7, 7]


@pytest.mark.emulator
def test_what_lies_outside_stops_the_kernel(stream: Any) -> None:
    kernel = ck.Kernel("__global__ void f(cudaSurfaceObject_t s, int x) { surf1Dwrite(1, s, x); }")
    with pytest.raises(ck.EmulationError, match=r"4 bytes at \(16,\) are outside the surface of 16 bytes"):
        kernel(stream, ck.config(1, 1), ck.surface(np.zeros(4, "i4")), 16)


def test_a_texture_reads_what_a_surface_was_written(stream: Any, xp: Any) -> None:
    write = ck.Kernel("""__global__ void write(cudaSurfaceObject_t s, float by) {
        surf2Dwrite(by * (threadIdx.x + 10 * threadIdx.y), s, 4 * threadIdx.x, threadIdx.y);
    }""")
    read = ck.Kernel("""__global__ void read(cudaTextureObject_t t, float* out) {
        out[threadIdx.y * 7 + threadIdx.x] = tex2D<float>(t, threadIdx.x + 0.5f, threadIdx.y + 0.5f);
    }""")
    other, block = another(stream), ck.config(1, (7, 5))
    surface = ck.surface(xp.zeros((5, 7), "f4"))
    texture, out = ck.texture(surface, filter="linear"), xp.zeros((5, 7), "f4")
    expected = np.add.outer(10 * np.arange(5), np.arange(7))
    for by in range(1, 5):
        write((stream, other)[by % 2], block, surface, float(by))
        read((stream, other)[1 - by % 2], block, texture, out)
        np.testing.assert_array_equal(ck.to_host(out, stream), by * expected)
    other.sync()


def test_a_write_is_a_write_of_its_array(stream: Any, xp: Any) -> None:
    write = ck.Kernel("__global__ void write(cudaSurfaceObject_t s, int by) { surf1Dwrite(by, s, 4 * threadIdx.x); }")
    other, surface = another(stream), ck.surface(xp.zeros(8, "i4"))
    with ck.hazards.trace() as report:
        write(stream, ck.config(1, 8), surface, 1)
        write(other, ck.config(1, 8), surface, 2)
    second = [each for each in report.dependencies if each.second.stream != each.first.stream]
    assert any(each.kind == "write after write" and each.second.work == "write" for each in second)
    assert not report.missing
    if isinstance(stream, ck.emulator.EmulatedStream):
        with ck.hazards.manual(), pytest.raises(ck.EmulationError, match=r"race: write on .* writes .* of the surface"):
            write(stream, ck.config(1, 8), surface, 2)
    assert back(surface, other).tolist() == [2] * 8


@pytest.mark.parametrize(("shape", "layered"), [((5, 7), False), ((3, 5, 7), False), ((3, 7), True)])
def test_copies(stream: Any, xp: Any, shape: tuple[int, ...], layered: bool) -> None:
    surface, second = (ck.surface(xp.zeros(shape, "f4"), layered=layered) for _ in range(2))
    values = RANDOM.standard_normal(shape).astype("f4")
    ck.memory.copy(surface, values[..., ::-1], stream)
    ck.memory.copy(second, surface, stream)
    on_device = xp.zeros((*shape[:-1], 2 * shape[-1]), "f4")
    ck.memory.copy(on_device[..., ::2], second, stream)
    np.testing.assert_array_equal(ck.to_host(on_device, stream)[..., ::2], values[..., ::-1])
    ck.memory.copy(second, on_device[..., 1::2], stream)
    assert not back(second, stream).any()
    with pytest.raises(ck.ArgumentError, match=r"copy: target has shape .* and dtype float32, source \(2,\)"):
        ck.memory.copy(surface, np.zeros(2, "f4"), stream)


@pytest.mark.parametrize(
    ("array", "options", "why"),
    [
        ([1.0], {}, "NumPy or a CuPy array, got list"),
        (np.zeros(3), {}, "float32, got float64"),
        (np.zeros(3, "?"), {}, "float32, got bool"),
        (np.zeros(3, ">i4"), {}, "float32, got >i4"),
        (SimpleNamespace(shape=(3,)), {}, "NumPy or a CuPy array, got SimpleNamespace"),
        (SimpleNamespace(dtype=np.dtype("f4")), {}, "NumPy or a CuPy array, got SimpleNamespace"),
        (SimpleNamespace(dtype=np.dtype("f4"), shape=(3,)), {}, "NumPy or a CuPy array, got SimpleNamespace"),
        (np.zeros(3, "f4"), {"channels": 3}, "a texel has 1, 2 or 4 channels"),
        (np.zeros((2, 2, 2, 2), "f4"), {"layered": True}, "a layered surface cannot have 3 dimensions"),
        (np.zeros(0, "f4"), {}, "a surface needs texels"),
        (np.zeros((3, 3), "f4"), {"channels": 2}, "last axis has 2 elements"),
        (np.zeros((2, 2, 2, 2), "f4"), {}, "cannot have 4 dimensions"),
        (np.zeros(3, "f4"), {"layered": True}, "a layered surface cannot have 0 dimensions"),
        (np.ma.zeros(3, "f4"), {}, "masked"),
    ],
)
def test_surfaces_that_cannot_be(array: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=why):
        ck.surface(array, **options)


def test_a_texture_of_a_surface_is_of_array_memory(xp: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="of array memory, not linear"):
        ck.texture(ck.surface(xp.zeros(4, "f4")), memory="linear")
