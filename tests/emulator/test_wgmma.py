"""wgmma on the emulator: every layout that a matrix descriptor can name, and a product by two warpgroups."""

from __future__ import annotations

import numpy as np
import pytest
from support.emulated import place, run
from support.fragments import BITS, RANDOM, A, by_lane, from_registers, hardware_bound, make, to_registers, value

import cudakit as ck

MODES = {0: 0, 128: 1, 64: 2, 32: 3}


def image(bits: np.ndarray, kind: str, swizzle: int, k_major: bool, leading: int, stride: int, step: int) -> np.ndarray:
    """Bytes of shared memory that hold a matrix (rows, depth) as the matrix-descriptor layouts of the PTX ISA say.

    With swizzled rows of k, the matrix is the part of a wider one that begins 32 · step bytes into its rows.
    """
    size = BITS[kind] // 8
    memory = np.zeros(16384, np.uint8)
    for (row, k), element in np.ndenumerate(bits):
        line, along = (row, k * size + 32 * step) if k_major else (k, row * size)
        if swizzle:
            # Eight lines of `swizzle` bytes; the chunks of 16 bytes in a line change places by the line's number.
            chunk = along % swizzle // 16 ^ line % 8 * swizzle // 128
            place = line % 8 * swizzle + chunk * 16 + along % 16
            place += line // 8 * stride + along // swizzle * leading
        else:
            by_line, by_chunk = (stride, leading) if k_major else (leading, stride)
            place = line % 8 * 16 + along % 16 + line // 8 * by_line + along // 16 * by_chunk
        memory[place : place + size] = np.array([element], f"u{size}").view(np.uint8)
    return memory


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    found = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[swizzle] << 62
    return found - 2**64 if found >= 2**63 else found


def sm_90a(text: str) -> str:
    """PTX of a kernel for the architecture that has wgmma."""
    ptx = ck.Kernel(text)[()].ptx(arch="sm_90a")
    return ptx[ptx.index(".version") :]


def wgmma_kernel(kind: str, d: str, n: int, tail: str, a_registers: int) -> str:
    count = n // 2 * BITS[d] // 32
    letter, c_type = ("f", "float") if d == "f32" else ("r", "unsigned")
    a = "{" + ", ".join(f"%{count + 3 + i}" for i in range(4)) + "}" if a_registers else f"%{count}"
    held = "".join(f', "r"(a[threadIdx.x * 4 + {i}])' for i in range(4)) if a_registers else ""
    depth, operation = 256 // BITS[kind], ".and.popc" if kind == "b1" else ""
    return f"""extern "C" __global__ void k(const uint4* in, {c_type}* c, const unsigned* a, unsigned long long from,
                                            unsigned long long of, long long keeps) {{
        __shared__ __align__(1024) uint4 tile[2048];
        for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = in[i];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        unsigned long long base = __cvta_generic_to_shared(tile) >> 4;
        {c_type} d[{count}];
        for (int i = 0; i < {count}; i++) d[i] = c[threadIdx.x * {count} + i];
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;"
            "wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{d}.{kind}.{kind}{operation}"
            "{{{", ".join(f"%{i}" for i in range(count))}}}, {a}, %{count + 1}, p{tail}; }}"
            : {", ".join(f'"+{letter}"(d[{i}])' for i in range(count))}
            : "l"(from + base), "l"(of + base), "r"((int)keeps){held});
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (int i = 0; i < {count}; i++) c[threadIdx.x * {count} + i] = d[i];
    }}"""


def d_place(lane: int, i: int) -> tuple[int, int]:
    """Row in a warp's 16, and column, of an element of D."""
    return lane >> 2 if i // 2 % 2 == 0 else (lane >> 2) + 8, i // 4 * 8 + lane % 4 * 2 + i % 2


@pytest.mark.slow
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "d", "n", "majors", "signs"),
    [
        ("f16", "f32", 64, "kk", (1, 1)),
        ("f16", "f32", 32, "mk", (-1, 1)),
        ("f16", "f16", 128, "kn", (1, -1)),
        ("bf16", "f32", 64, "mn", (1, 1)),
        ("bf16", "f32", 8, "rn", (1, 1)),
        ("tf32", "f32", 24, "kk", (-1, -1)),
        ("tf32", "f32", 16, "rk", (1, 1)),
        ("e4m3", "f32", 32, "kk", (1, 1)),
        ("e5m2", "f32", 16, "rk", (1, 1)),
        ("s8", "s32", 48, "kk", None),
        ("u8", "s32", 16, "rk", None),
    ],
)
def test_wgmma(kind: str, d: str, n: int, majors: str, signs: tuple[int, int] | None, swizzle: int) -> None:
    depth, size = 256 // BITS[kind], BITS[kind] // 8
    (x, x_bits), (y, y_bits), (z, z_bits) = make(kind, (64, depth)), make(kind, (n, depth)), make(d, (64, n))
    memory, descriptors = [], []
    for bits, major in ((x_bits, majors[0]), (y_bits, majors[1])):
        k_major, line = major == "k", swizzle or 16
        # The atoms of eight lines, in the order that is not the usual one, with nothing between them.
        step = int(RANDOM.integers(0, swizzle // 32)) if k_major and swizzle else 0
        across = -(-(depth * size if k_major else bits.shape[0] * size) // line)
        down = -(-(bits.shape[0] if k_major else depth) // 8)
        near, far = 8 * line, 8 * line * (1 if k_major and swizzle else across)
        if swizzle:
            leading, stride = near, far
        else:
            leading, stride = (near, far) if k_major else (far, near)
        assert down * far <= 16384
        memory.append(image(bits, kind, swizzle, k_major, leading, stride, step))
        descriptors.append(descriptor(16384 * (len(memory) - 1) + 32 * step, leading, stride, swizzle))
    transposed = [int(major in "mn") for major in majors]
    tail = "" if signs is None else f", {signs[0]}, {signs[1]}"
    if BITS[kind] == 16:
        tail += f", {transposed[1]}" if majors[0] == "r" else f", {transposed[0]}, {transposed[1]}"
    count_d = n // 2 * BITS[d] // 32
    held = [
        to_registers(x_bits[16 * warp : 16 * warp + 16], by_lane(A[str(BITS[kind])][f"m16n8k{depth}"]), 4, kind)
        for warp in range(4)
    ]

    text = sm_90a(wgmma_kernel(kind, d, n, tail, majors[0] == "r"))
    for keeps in (0, 1):
        given = [to_registers(z_bits[16 * w : 16 * w + 16], d_place, count_d, d) for w in range(4)]
        c = np.stack(given)
        run(text, np.concatenate(memory), c, np.stack(held), *descriptors, keeps, block=128)
        got = np.concatenate([value(from_registers(c[w], d_place, (16, n), d), d) for w in range(4)])
        sign = signs[0] * signs[1] if signs else 1
        want = sign * (x @ y.T) + keeps * z
        if place.is_gpu and kind in ("e4m3", "e5m2"):
            # sm_90 keeps 13 bits behind the point of the largest term, where they are of 8 bits.
            assert (np.abs(got - want) <= hardware_bound(x, y.T, keeps * z, 13)).all()
            continue
        np.testing.assert_array_equal(got, want.astype(np.float32) if d == "f32" else want)


def test_single_bits() -> None:
    n = 16
    (x, x_bits), (y, y_bits), (z, z_bits) = make("b1", (64, 256)), make("b1", (n, 256)), make("s32", (64, n))
    packed = [np.packbits(bits.astype(bool), axis=1, bitorder="little") for bits in (x_bits, y_bits)]
    memory = np.concatenate([image(bits, "u8", 32, True, 0, 256, 0) for bits in packed])
    c = np.stack([to_registers(z_bits[16 * warp : 16 * warp + 16], d_place, n // 2, "s32") for warp in range(4)])
    descriptors = [descriptor(start, 0, 256, 32) for start in (0, 16384)]
    run(sm_90a(wgmma_kernel("b1", "s32", n, "", 0)), memory, c, np.zeros(512, np.uint32), *descriptors, 1, block=128)
    got = np.concatenate([value(from_registers(c[warp], d_place, (16, n), "s32"), "s32") for warp in range(4)])
    np.testing.assert_array_equal(got, x @ y.T + z)


def test_product_by_two_warpgroups_with_swizzle() -> None:
    m, n, depth = 256, 128, 192
    x, y = RANDOM.standard_normal((m, depth)).astype(np.float16), RANDOM.standard_normal((n, depth)).astype(np.float16)
    out = np.zeros((m, n), np.float32)
    count = 32
    text = f"""extern "C" __global__ void product(const uint4* a, const uint4* b, float* c) {{
        // 128 rows of A and 64 columns of B, 128 bytes along k: 8 chunks in a row, swizzled. One warpgroup only loads.
        __shared__ __align__(1024) uint4 as[128 * 8], bs[64 * 8];
        int row = blockIdx.x / 2 * 128, column = blockIdx.x % 2 * 64, group = threadIdx.x / 128;
        float d[{count}];
        for (int k = 0; k < 3; k++) {{
            for (int i = threadIdx.x; i < 1024; i += 384) as[i ^ i / 8 % 8] = a[(row + i / 8) * 24 + k * 8 + i % 8];
            for (int i = threadIdx.x; i < 512; i += 384) bs[i ^ i / 8 % 8] = b[(column + i / 8) * 24 + k * 8 + i % 8];
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncthreads();
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int step = 0; step < 4 && group < 2; step++) {{
                auto at = [&](void* start) {{
                    unsigned long long address = __cvta_generic_to_shared(start) + 32 * step;
                    return address >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
                }};
                asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;"
                    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{", ".join(f"%{i}" for i in range(count))}}},"
                    "%{count}, %{count + 1}, p, 1, 1, 0, 0; }}"
                    : {", ".join(f'"+f"(d[{i}])' for i in range(count))}
                    : "l"(at(as + group * 512)), "l"(at(bs)), "r"(k + step));
            }}
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            __syncthreads();
        }}
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int i = 0; i < {count} && group < 2; i++)
            c[(row + warp * 16 + lane / 4 + i / 2 % 2 * 8) * 128 + column + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    }}"""
    run(sm_90a(text), x, y, out, grid=4, block=384)
    wide = x.astype(np.float64), y.astype(np.float64)
    # Each of twelve instructions rounds to float32.
    bound = 12 * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1]).T)
    assert (np.abs(out - wide[0] @ wide[1].T) <= bound).all()


FENCED = 'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;"'


def short_wgmma(guard: str, start: str = "0ull") -> str:
    return f"""extern "C" __global__ void k(float* out) {{
        __shared__ __align__(1024) int tile[4096];
        tile[threadIdx.x] = 0; float d[4] = {{}}; __syncthreads();
        if ({guard}) {FENCED} : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "l"({start} | __cvta_generic_to_shared(tile) >> 4 | 1ull << 62 | 64ull << 32));
        out[threadIdx.x] = d[0]; }}"""


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("text", "block", "what"),
    [
        (short_wgmma("true"), 96, "warpgroup"),
        (short_wgmma("threadIdx.x >= 32"), 128, "deadlock"),
        (short_wgmma("true", "(unsigned long long)threadIdx.x / 32 << 6"), 128, "not the same for all 128"),
        (short_wgmma("true", "0x3fffull"), 128, "outside its"),
        (short_wgmma("true", "1ull << 49"), 128, "base offset"),
    ],
)
def test_wgmma_that_cannot_be(text: str, block: int, what: str) -> None:
    with pytest.raises(ck.EmulationError, match=f"wgmma.*{what}"):
        run(sm_90a(text), np.zeros(128, np.float32), block=block)
