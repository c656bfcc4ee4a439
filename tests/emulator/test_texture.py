"""Textures and surfaces: lookups by what a scalar reading of the programming guide's formulas gives."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.resources.texture import SurfaceObject, sample

RANDOM = np.random.default_rng(7)
SIZES = {1: (13,), 2: (5, 7), 3: (3, 4, 5)}


def place(i: int, size: int, mode: str) -> int | None:
    """The texel that an address mode puts at `i`; None for the border."""
    if 0 <= i < size:
        return i
    if mode == "border":
        return None
    if mode == "clamp":
        return 0 if i < 0 else size - 1
    if mode == "wrap":
        return i % size
    period = i % (2 * size)
    return period if period < size else 2 * size - 1 - period


def texel(texels: np.ndarray, where: tuple[int, ...], modes: tuple[str, ...]) -> Any:
    """Texel at (x, y, z) of an array whose axes are (z, y, x)."""
    places = [place(i, size, mode) for i, size, mode in zip(where, texels.shape[::-1], modes, strict=True)]
    return 0 if None in places else texels[tuple(places[::-1])]  # type: ignore[index]


def lookup(texels: np.ndarray, at: np.ndarray, filter: str, modes: tuple[str, ...], normalized: bool) -> float:
    """The guide's formulas, one coordinate tuple at a time."""
    u = [float(c) * (size if normalized else 1) for c, size in zip(at, texels.shape[::-1], strict=True)]
    if filter == "point":
        return float(texel(texels, tuple(int(np.floor(c)) for c in u), modes))
    # A clamped coordinate lies on its last texel, and has no part in a next one.
    sizes = texels.shape[::-1]
    u = [min(max(c, 0.5), n - 0.5) if mode == "clamp" else c for c, n, mode in zip(u, sizes, modes, strict=True)]
    low = [int(np.floor(c - 0.5)) for c in u]
    weights = parts([int(np.floor((c - 0.5 - i) * 256 + 0.5)) for c, i in zip(u, low, strict=True)])
    total = 0.0
    for corner in itertools.product((0, 1), repeat=len(u)):
        place = tuple(i + s for i, s in zip(low, corner, strict=True))
        total += weights[corner] / 256 * float(texel(texels, place, modes))
    return total


def parts(fractions: list[int]) -> dict[tuple[int, ...], int]:
    """Weights of corners in 256ths, by what an H200 gives for textures with one texel that is 1 and zeros else.

    In two dimensions the weight of the corner at (1, 1) is the product of the fractions, halves up, and the others are
    what is left. In three, 256 is parted by z, each part by x, halves to the upper x, and each of those by y: there a
    half goes to the upper part at the upper x, to the lower part at the lower x.
    """

    def four(f: int, g: int) -> dict[tuple[int, int], int]:
        both = (2 * f * g + 256) // 512
        return {(0, 0): 256 - f - g + both, (1, 0): f - both, (0, 1): g - both, (1, 1): both}

    if len(fractions) == 1:
        return {(0,): 256 - fractions[0], (1,): fractions[0]}
    if len(fractions) == 2:
        return dict(four(*fractions).items())
    x, y, z = fractions
    found: dict[tuple[int, ...], int] = {}
    for k, deep in enumerate((256 - z, z)):
        right = (2 * deep * x + 256) // 512
        for i, weight in enumerate((deep - right, right)):
            upper = (2 * weight * y + (256 if i else 255)) // 512
            found[i, 0, k], found[i, 1, k] = weight - upper, upper
    return found


def fetch(rank: int, kind: str = "float", layered: bool = False) -> ck.Kernel:
    """A kernel that looks up one texel a thread."""
    where = ", ".join(f"at[{rank} * i + {axis}]" for axis in range(rank))
    name = f"tex{rank}D{'Layered' * layered}"
    return ck.Kernel(f"""
        __global__ void fetch(cudaTextureObject_t t, const float* at, const int* layer, {kind}* out) {{
            int i = threadIdx.x;
            out[i] = {name}<{kind}>(t, {where}{", layer[i]" * layered});
        }}""")


Look: TypeAlias = Callable[..., np.ndarray]


@pytest.fixture
def look(stream: Any, xp: Any) -> Look:
    """Lookups in a texture of `texels` made with `options`, by a kernel of `fetch`."""

    def look(
        kernel: ck.Kernel, texels: np.ndarray, at: np.ndarray, dtype: str = "f4", width: int = 1, **options: Any
    ) -> np.ndarray:
        texture = ck.texture(xp.asarray(texels), **options)
        out, layer = xp.zeros((len(at), width), dtype), xp.zeros(len(at), "i4")
        kernel(stream, ck.config(1, len(at)), texture, xp.asarray(at.astype("f4")), layer, out)
        return to_host(out) if width > 1 else to_host(out)[:, 0]

    return look


def run(kernel: ck.Kernel, texture: Any, at: np.ndarray, dtype: str = "f4", layer: Any = None) -> np.ndarray:
    """Lookups on the emulator, in a texture that only it has."""
    out = np.zeros(len(at), dtype)
    layer = np.zeros(len(at), "i4") if layer is None else layer
    kernel(emulator.stream(), ck.config(1, len(at)), texture, at.astype("f4"), layer, out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("filter", ["point", "linear"])
@pytest.mark.parametrize(
    ("address", "normalized"), [("clamp", False), ("border", False), ("clamp", True), ("wrap", True), ("mirror", True)]
)
def test_lookups(look: Look, rank: int, filter: Any, address: Any, normalized: bool) -> None:
    texels = RANDOM.standard_normal(SIZES[rank]).astype("f4")
    span = np.array(texels.shape[::-1])
    at = RANDOM.uniform(-1.5, 2.5, (200, rank)) * (1 if normalized else span)
    at[:20] = (RANDOM.integers(-1, 6, (20, rank)) + 0.5) / (span if normalized else 1)
    at = at.astype("f4")
    # The hardware has coordinates in fixed point: a weight that lies half way between two of 1/256 may go either way.
    half_way = np.abs(at.astype("f8") * (span if normalized else 1) * 256 % 1 - 0.5) < 1e-2
    at = at[~half_way.any(1)]
    expected = [lookup(texels, row, filter, (address,) * rank, normalized) for row in at]
    # The reference sums exactly. The hardware cuts each texel to 28 bits below the highest of the largest one and
    # rounds to 24 bits; in three dimensions it cuts a little more, in a way that is not known: far below 10⁻⁶ of 1.
    got = look(fetch(rank), texels, at, filter=filter, address=address, normalized=normalized)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.emulator
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("filter", ["point", "linear"])
@pytest.mark.parametrize("address", ["clamp", "border", "wrap", "mirror"])
def test_the_sampler_follows_the_formulas(rank: int, filter: Any, address: Any) -> None:
    drawn = np.random.default_rng(rank)
    texels = drawn.standard_normal(SIZES[rank]).astype("f4")
    at = drawn.uniform(-1.5, 2.5, (60, rank)).astype("f4")
    half_way = np.abs(at.astype("f8") * texels.shape[::-1] * 256 % 1 - 0.5) < 1e-2
    at = at[~half_way.any(1)]
    texture = ck.texture(texels, filter=filter, address=address, normalized=True)
    layer, offsets = np.zeros(len(at), "u4"), [np.zeros(len(at), "i4")] * rank
    got = sample(texture, layer, [*at.T], offsets)
    expected = [lookup(texels, row, filter, (address,) * rank, True) for row in at]
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.emulator
@pytest.mark.parametrize("filter", ["point", "linear"])
@pytest.mark.parametrize("address", ["clamp", "border", "wrap", "mirror"])
def test_infinite_coordinates_are_the_largest_floats(filter: Any, address: Any) -> None:
    texture = ck.texture(np.arange(5, dtype="f4"), filter=filter, address=address, normalized=True)
    largest = np.finfo("f4").max
    at = np.array([np.inf, -np.inf, np.nan, largest, -largest, 0], "f4")
    infinite, finite = sample(texture, np.zeros(6, "u4"), [at], [np.zeros(6, "i4")]).reshape(2, 3)
    np.testing.assert_array_equal(infinite, finite)


@pytest.mark.emulator
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_fractions_of_a_range_are_held_to_it(dtype: str) -> None:
    bounds = np.iinfo(dtype)
    texels = np.array([bounds.min, bounds.min + 1, 0, 1, bounds.max], dtype)
    texture = ck.texture(texels, read="normalized")
    found = sample(texture, np.zeros(5, "u4"), [np.arange(5, dtype="f4") + np.float32(0.5)], [np.zeros(5, "i4")])
    assert found.dtype == np.float32
    assert found[:, 0].tolist() == np.maximum(texels / float(bounds.max), -1).astype("f4").tolist()


def test_address_modes_by_axis(look: Look) -> None:
    texels = np.arange(35, dtype="f4").reshape(5, 7)
    at = np.array([[-1, 2], [3, -9], [3, 99], [7, 0]]) + 0.5
    got = look(fetch(2), texels, at, address=("border", "clamp"))
    assert got.tolist() == [0, 3, 31, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "kind"), [("u1", "unsigned char"), ("i1", "signed char"), ("u2", "unsigned short"),
                         ("i2", "short"), ("i4", "int"), ("u4", "unsigned")])  # fmt: skip
def test_integer_texels(look: Look, dtype: str, kind: str) -> None:
    bounds = np.iinfo(dtype)
    texels = RANDOM.integers(bounds.min, bounds.max, (6, 9), dtype=dtype, endpoint=True)
    at = RANDOM.uniform(0, 6, (100, 2)).astype("f4")
    expected = texels[at[:, 1].astype(int), at[:, 0].astype(int)]
    np.testing.assert_array_equal(look(fetch(2, kind), texels, at, dtype), expected)
    if texels.itemsize < 4:
        got = look(fetch(2), texels, at, read="normalized")
        expected = np.maximum(expected / float(bounds.max), -1)
        # One division of float64 rounded to float32, both sides.
        np.testing.assert_array_equal(got, expected.astype("f4"))


def test_normalized_texels_are_filtered(look: Look) -> None:
    texels = np.array([0, 255, 255, 0], "u1")
    got = look(fetch(1), texels, np.array([[1.0], [1.25], [2.0]]), filter="linear", read="normalized")
    # The sum is rounded to 16 bits, halves up, before it becomes a float.
    assert got.tolist() == [np.float32(n / 65535) for n in (32768, 49151, 65535)]


def test_weights_have_eight_fractional_bits(look: Look) -> None:
    at = 0.5 + np.array([1 / 256, 1 / 1024, 3 / 1024, 0.9999])[:, None]
    got = look(fetch(1), np.array([0, 1], "f4"), at, filter="linear")
    assert got.tolist() == [1 / 256, 0, 1 / 256, 1]


def test_half_precision_texels(look: Look) -> None:
    texels = RANDOM.standard_normal(8).astype("f2")
    got = look(fetch(1), texels, np.arange(8)[:, None] + 0.5)
    np.testing.assert_array_equal(got, texels.astype("f4"))


@pytest.mark.parametrize("channels", [2, 4])
def test_channels(look: Look, channels: int) -> None:
    texels = RANDOM.standard_normal((4, 6, channels)).astype("f4")
    at = np.stack(np.meshgrid(np.arange(6), np.arange(4)), -1).reshape(-1, 2) + 0.5
    got = look(fetch(2, f"float{channels}"), texels, at, width=channels, channels=channels)
    np.testing.assert_array_equal(got, texels.reshape(-1, channels))
    octets = RANDOM.integers(0, 255, (4, 6, 4), dtype="u1", endpoint=True)
    got = look(fetch(2, "uchar4"), octets, at, "u1", 4, channels=4)
    np.testing.assert_array_equal(got, octets.reshape(-1, 4))


def test_channels_that_texels_lack(look: Look) -> None:
    got = look(fetch(1, "float4"), np.array([7, 8], "f4"), np.array([[1.5]]), width=4)
    assert got.tolist() == [[8, 0, 0, 0]]
    got = look(fetch(1, "int2"), np.array([7, 8], "i4"), np.array([[1.5]]), "i4", 2)
    assert got.tolist() == [[8, 0]]


@pytest.mark.parametrize("rank", [1, 2])
def test_layers(rank: int) -> None:
    texels = RANDOM.standard_normal((3, *SIZES[rank])).astype("f4")
    at = RANDOM.uniform(0, 5, (60, rank)).astype("f4")
    layer = RANDOM.integers(0, 3, 60).astype("i4")
    got = run(fetch(rank, layered=True), ck.texture(texels, layered=True, filter="linear"), at, layer=layer)
    expected = [lookup(texels[n], row, "linear", ("clamp",) * rank, False) for n, row in zip(layer, at, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_cube_maps() -> None:
    texels = np.arange(6 * 4 * 4, dtype="f4").reshape(6, 4, 4)
    kernel = ck.Kernel("""__global__ void f(cudaTextureObject_t t, const float3* d, float* out) {
        float3 v = d[threadIdx.x];
        out[threadIdx.x] = texCubemap<float>(t, v.x, v.y, v.z);
    }""")
    ways = np.array([[2, 0, 0], [-2, 0, 0], [0, 3, 0], [0, -3, 0], [0, 0, 1], [0, 0, -1], [2, -1.9, -1.9]], "f4")
    out = np.zeros(7, "f4")
    kernel(emulator.stream(), ck.config(1, 7), ck.texture(texels, layered=True, normalized=True), ways, out)
    # Axis by axis the middle of faces 0 to 5; then the lower right corner of face 0, seen from within.
    assert out.tolist() == [*(16.0 * np.arange(6) + 10), 15.0]


def test_linear_memory_is_read_in_place(stream: Any, xp: Any, look: Look) -> None:
    kernel = ck.Kernel("""__global__ void f(cudaTextureObject_t t, float* out) {
        out[threadIdx.x] = tex1Dfetch<float>(t, (int)threadIdx.x - 1);
    }""")
    texels = xp.arange(1, 5, dtype="f4")
    linear, out = ck.texture(texels, memory="linear"), xp.zeros(6, "f4")
    kernel(stream, ck.config(1, 6), linear, out)
    assert to_host(out).tolist() == [0, 1, 2, 3, 4, 0]
    texels[:] = 9
    kernel(stream, ck.config(1, 6), linear, out)
    assert to_host(out).tolist() == [0, 9, 9, 9, 9, 0]
    pitched = np.arange(96, dtype="f4").reshape(3, 32)
    at = np.array([[1.0, 1.0], [99.0, 9.0]])
    assert look(fetch(2), pitched, at, memory="linear", filter="linear").tolist() == [16.5, 95.0]


def test_an_array_is_copied(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""__global__ void f(cudaTextureObject_t t, float* out) {
        out[threadIdx.x] = tex1D<float>(t, threadIdx.x - 0.5f);
    }""")
    texels, out = xp.arange(1, 5, dtype="f4"), xp.zeros(6, "f4")
    texture = ck.texture(texels)
    texels[:] = 9
    kernel(stream, ck.config(1, 6), texture, out)
    assert to_host(out).tolist() == [1, 1, 2, 3, 4, 4]


def test_levels_gradients_gathers_and_queries(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""__global__ void f(cudaTextureObject_t t, float* out, unsigned* sizes) {
        out[0] = tex2DLod<float>(t, 1.5f, 2.5f, 3.f);
        out[1] = tex2DGrad<float>(t, 1.5f, 2.5f, make_float2(1, 2), make_float2(3, 4));
        float4 g = tex2Dgather<float4>(t, 2.f, 3.f, 0);
        out[2] = g.x; out[3] = g.y; out[4] = g.z; out[5] = g.w;
        bool resident = false;
        out[6] = tex2D<float>(t, 0.5f, 0.5f, &resident) + resident;
        asm("tex.2d.v4.f32.f32 {%0, _, _, _}, [%1, {%2, %2}], {%3, %4};"
            : "=f"(out[7]) : "l"(t), "f"(1.5f), "r"(2), "r"(-1));
        asm("txq.width.b32 %0, [%1];" : "=r"(sizes[0]) : "l"(t));
        asm("txq.height.b32 %0, [%1];" : "=r"(sizes[1]) : "l"(t));
        asm("txq.depth.b32 %0, [%1];" : "=r"(sizes[2]) : "l"(t));
    }""")
    texels = np.arange(35, dtype="f4").reshape(5, 7)
    out, sizes = xp.zeros(8, "f4"), xp.zeros(3, "u4")
    kernel(stream, ck.config(1, 1), ck.texture(xp.asarray(texels)), out, sizes)
    assert to_host(out).tolist() == [15, 15, texels[3, 1], texels[3, 2], texels[2, 2], texels[2, 1], 1, texels[0, 3]]
    assert to_host(sizes).tolist() == [7, 5, 0]


def test_textures_by_number_in_memory() -> None:
    kernel = ck.Kernel("""__global__ void f(const unsigned long long* t, float* out) {
        out[threadIdx.x] = tex1D<float>(t[threadIdx.x % 2], 0.5f);
    }""")
    two = [ck.texture(np.array([value], "f4")) for value in (3, 4)]
    out = np.zeros(6, "f4")
    kernel(emulator.stream(), ck.config(1, 6), np.array([t.handle for t in two], "u8"), out)
    assert out.tolist() == [3, 4] * 3


def test_a_wrong_or_freed_texture_is_named() -> None:
    texture = ck.texture(np.zeros(3, "f4"))
    number, at = texture.handle, np.zeros((1, 1))
    with pytest.raises(ck.EmulationError, match=r"tex.1d.*0x7.* is no texture of the emulator; make one"):
        run(fetch(1), np.uint64(0x7000000000000123), at)
    del texture
    gc.collect()
    with pytest.raises(ck.EmulationError, match="was freed: keep the Python object"):
        run(fetch(1), np.uint64(number), at)


@pytest.mark.parametrize(
    ("made", "kernel", "why"),
    [
        ((np.zeros(3, "u1"), {}), fetch(1), "gives integers, and the kernel reads f32.*read='normalized'"),
        ((np.zeros(3, "f4"), {}), fetch(1, "int"), "gives floats, and the kernel reads s32"),
        ((np.zeros((3, 3), "f4"), {}), fetch(1), "2 dimensions, and the kernel reads 1"),
        ((np.zeros(3, "f4"), {"memory": "linear"}), fetch(1), "read it by tex1Dfetch"),
    ],
)
def test_a_texture_read_as_another_is_named(made: Any, kernel: ck.Kernel, why: str) -> None:
    texture = ck.texture(made[0], **made[1])
    with pytest.raises(ck.EmulationError, match=why):
        run(kernel, texture, np.zeros((1, 1)), "i4" if "reads s32" in why else "f4")


@pytest.mark.parametrize(
    ("array", "options", "why"),
    [
        ([1.0], {}, "NumPy or a CuPy array, got list"),
        (np.zeros(3), {}, "float32, got float64"),
        (np.zeros(0, "f4"), {}, "needs texels"),
        (np.zeros((3, 3), "f4"), {"channels": 2}, "last axis has 2 elements"),
        (np.zeros((3, 3), "f4"), {"channels": 3}, "1, 2 or 4 channels"),
        (np.zeros((2, 2, 2, 2), "f4"), {}, "cannot have 4 dimensions"),
        (np.zeros(3, "f4"), {"address": "wrap"}, "needs normalized=True"),
        (np.zeros(3, "f4"), {"address": "around"}, "address is one of"),
        (np.zeros(3, "f4"), {"address": ("clamp", "clamp")}, "names 2 axes"),
        (np.zeros(3, "f4"), {"filter": "cubic"}, "point or linear"),
        (np.zeros(3, "i4"), {"filter": "linear"}, "linear filtering gives floats"),
        (np.zeros(3, "f4"), {"read": "normalized"}, "takes 8 and 16-bit integers"),
        (np.zeros(3, "f4"), {"memory": "linear", "filter": "linear"}, "read by tex1Dfetch"),
        (np.zeros((4, 4), "f4").T[1:], {"memory": "linear"}, "contiguous"),
    ],
)
def test_textures_that_cannot_be(array: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=why):
        ck.texture(array, **options)


def test_a_host_texture_is_refused_by_a_gpu() -> None:
    from cudakit.types.arguments import describe

    with pytest.raises(ck.ArgumentError, match="is the emulator's and this stream is a GPU's"):
        describe(ck.texture(np.zeros(3, "f4")))


def test_a_device_texture_is_refused_by_the_emulator() -> None:
    class TextureObject:
        ptr = 1

    with pytest.raises(ck.ArgumentError, match="is of device memory and this stream is the emulator's"):
        run(fetch(1), TextureObject(), np.zeros((1, 1)))


# ── surfaces ──


def surface(array: np.ndarray, layered: bool = False) -> SurfaceObject:
    rank = array.ndim - layered
    layers = array.shape[0] if layered else 1
    return SurfaceObject(array.reshape(layers, *(1,) * (3 - rank), *array.shape[layered:], 1), rank, array.shape)


def test_surfaces_are_read_and_written() -> None:
    kernel = ck.Kernel("""__global__ void f(cudaSurfaceObject_t s, cudaSurfaceObject_t l, int* out) {
        int x = threadIdx.x, y = threadIdx.y;
        int value = surf2Dread<int>(s, 4 * x, y);
        out[7 * y + x] = value;
        surf2Dwrite(value + 100, s, 4 * (6 - x), y);
        surf2DLayeredwrite((unsigned char)(x + 1), l, x, y, 1);
    }""")
    image, layers, out = np.arange(35, dtype="i4").reshape(5, 7), np.zeros((2, 5, 7), "u1"), np.zeros((5, 7), "i4")
    before = image.copy()
    kernel(emulator.stream(), ck.config(1, (7, 5)), surface(image), surface(layers, True), out)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(image, before[:, ::-1] + 100)
    np.testing.assert_array_equal(layers, [np.zeros((5, 7)), np.broadcast_to(np.arange(1, 8), (5, 7))])


def test_surface_boundaries() -> None:
    kernel = ck.Kernel("""__global__ void f(cudaSurfaceObject_t s, int* out) {
        int x = threadIdx.x - 1;
        out[threadIdx.x] = surf1Dread<int>(s, 4 * x, cudaBoundaryModeClamp);
        out[6 + threadIdx.x] = surf1Dread<int>(s, 4 * x, cudaBoundaryModeZero);
        surf1Dwrite(7, s, 4 * (x + 3), cudaBoundaryModeZero);
    }""")
    row, out = np.arange(1, 5, dtype="i4"), np.zeros(12, "i4")
    kernel(emulator.stream(), ck.config(1, 6), surface(row), out)
    assert out.tolist() == [1, 1, 2, 3, 4, 4, 0, 1, 2, 3, 4, 0]
    assert row.tolist() == [1, 2, 7, 7]
    octets = ck.Kernel("__global__ void f(cudaSurfaceObject_t s) { surf1Dwrite((char)1, s, 5 + threadIdx.x); }")
    with pytest.raises(ck.EmulationError, match=r"1 bytes at \(6,\) are outside"):
        octets(emulator.stream(), ck.config(1, 2), surface(np.zeros(6, "i1")))
    trap = ck.Kernel("__global__ void f(cudaSurfaceObject_t s, int x) { surf1Dwrite(1, s, x); }")
    with pytest.raises(ck.EmulationError, match=r"sust.*4 bytes at \(16,\) are outside the surface of 16 bytes"):
        trap(emulator.stream(), ck.config(1, 1), surface(row), 16)
    with pytest.raises(ck.EmulationError, match="not aligned to 4 bytes"):
        trap(emulator.stream(), ck.config(1, 1), surface(row), 2)


def test_surface_reductions_and_queries() -> None:
    kernel = ck.Kernel("""__global__ void f(cudaSurfaceObject_t s, unsigned* out) {
        int x = 4 * (threadIdx.x % 3), y = 1;
        asm volatile("sured.b.add.2d.u32.trap [%0, {%1, %2}], %3;" :: "l"(s), "r"(x), "r"(y), "r"(threadIdx.x));
        asm("suq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(s));
        asm("suq.height.b32 %0, [%1];" : "=r"(out[1]) : "l"(s));
        asm("suq.depth.b32 %0, [%1];" : "=r"(out[2]) : "l"(s));
    }""")
    image, out = np.zeros((2, 3), "u4"), np.zeros(3, "u4")
    kernel(emulator.stream(), ck.config(1, 9), surface(image), out)
    assert image.tolist() == [[0, 0, 0], [9, 12, 15]]
    assert out.tolist() == [3, 2, 0]
