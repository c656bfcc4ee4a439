"""Products of matrices by warpgroups, against NumPy; and the calls that other kernels keep."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers, slow
from support.tolerance import bound

import cudakit as ck
from cudakit.arrays.place import array_place, device_limits
from cudakit.ops import matmul_tiles, matmul_warpgroups
from cudakit.ops.epilogue import activation_of
from cudakit.ops.matmul_warpgroups import TABLE, Choice, Tile

F2, F4 = np.dtype("f2"), np.dtype("f4")
BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]
#: A tile with the fewest registers and bytes, and fewer stages than tiles along k.
SMALL = Tile(1, 128, 2, 1.0)


@pytest.fixture(autouse=True)
def _is_chosen(request: pytest.FixtureRequest, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have warpgroups make every product that they support, whatever its size."""
    if device_limits(getattr(stream, "arch", 0)).compute_capability != (9, 0):
        pytest.skip("wgmma is of compute capability 9.0")
    if "own_choice" not in request.node.name:
        monkeypatch.setattr(matmul_warpgroups, "is_faster", lambda *_: True)
        use(monkeypatch, SMALL)


def use(monkeypatch: pytest.MonkeyPatch, tile: Tile) -> None:
    monkeypatch.setattr(matmul_warpgroups, "choose", lambda *_: Choice(tile, "a test's"))


def numbers(xp: Any, *shape: int, dtype: np.dtype = F2, seed: int = 0) -> Any:
    """Numbers that begin at a multiple of 16 bytes, and so do their rows, which may be longer."""
    run = 16 // dtype.itemsize
    pitch = -(-shape[-1] // run) * run
    whole = xp.zeros((int(np.prod(shape[:-1])) * pitch + run,), f"u{dtype.itemsize}")
    address = whole.data.ptr if xp is not np else whole.ctypes.data
    begin = -address % 16 // dtype.itemsize
    rows = whole[begin:][: whole.size - run].reshape(*shape[:-1], pitch)[..., : shape[-1]].view(dtype)
    random = np.random.default_rng(seed)
    values = random.integers(-128, 128, shape) if dtype.kind == "i" else random.standard_normal(shape)
    bits = f"u{dtype.itemsize}"
    rows.view(bits)[...] = xp.asarray(values.astype(dtype).view(bits))
    return rows


def in_tf32(x: np.ndarray) -> np.ndarray:
    """The numbers with 11 bits that are nearest, even ones where two are as near."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(fraction * 2**11), exponent - 11)


def check(a: Any, b: Any, stream: Any, by: str = "wgmma", want: Any = None, **named: Any) -> Any:
    precision = named.get("precision")
    lines = vars(ck.ops.matmul)["explain"](a, b, by="threads", precision=precision, stream=stream)
    assert [name for name in ("wgmma", "mma.sync") if name in lines] == [by], lines
    # As bits: CuPy has no kernels for fp8.
    left, right = (to_host(x.view(f"u{x.dtype.itemsize}")).view(x.dtype).astype(float) for x in (a, b))
    if precision:
        left, right = in_tf32(left), in_tf32(right)
    exact = left @ right if want is None else want(left @ right)
    for _ in range(2):
        got = ck.ops.matmul(a, b, by="threads", stream=stream, **named)
    off = np.abs(to_host(got).astype(float) - exact)
    scale = np.abs(left) @ np.abs(right)
    allowed = 2 * bound(F4, left.shape[-1], scale) + bound(got.dtype, 1, np.abs(exact) + scale / 4)
    assert got.shape == exact.shape
    assert (off <= allowed).all(), float((off - allowed).max())
    return got


@pytest.mark.parametrize(
    "shape", [(70, 136, 200), *slow((8, 8, 8), (64, 128, 64), (65, 129, 72), (200, 8, 65), (3, 300, 8))]
)
def test_shapes(stream: Any, xp: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    assert check(numbers(xp, m, k), numbers(xp, k, n, seed=1), stream).dtype == F2


def laid(xp: Any, m: int, n: int, k: int, turned: str, dtype: np.dtype) -> tuple[Any, Any]:
    """A and B, each of which lies by rows ("n") or by columns ("t")."""
    a = numbers(xp, k, m, dtype=dtype).T if turned[0] == "t" else numbers(xp, m, k, dtype=dtype)
    b = numbers(xp, n, k, dtype=dtype, seed=1).T if turned[1] == "t" else numbers(xp, k, n, dtype=dtype, seed=1)
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "turned"),
    [
        (tile, turned)
        for tile in TABLE["half, A along k"]
        for turned in ("nn", "nt", "tn", "tt")[: 2 if tile.is_turned else 4]
    ],
    ids=str,
)
def test_tiles_and_layouts(stream: Any, xp: Any, monkeypatch: Any, tile: Tile, turned: str) -> None:
    use(monkeypatch, tile)
    check(*laid(xp, tile.m + 9, tile.n + 5, 64 * tile.stages + 70, turned, F2), stream)


@in_tiers("tile,turned", TABLE["TF32"], ["nn", "nt", "tt"], strength=1, quick=lambda *_: False)
def test_tiles_and_layouts_of_tf32(stream: Any, xp: Any, monkeypatch: Any, tile: Tile, turned: str) -> None:
    use(monkeypatch, tile)
    lines, others = tile.m + 9, tile.n + 5
    m, n = (others, lines) if turned == "nn" else (lines, others)
    a, b = laid(xp, m, n, 32 * tile.stages + 70, turned, F4)
    bias, residual = numbers(xp, 1, n, dtype=F4, seed=2)[0], numbers(xp, m, n, dtype=F4, seed=3)[:, :n].copy()
    host = [to_host(x).astype(float) for x in (bias, residual)]
    more = {"bias": bias, "residual": residual, "activation": "relu"}
    check(a, b, stream, want=lambda x: np.maximum(x + host[0], 0) + host[1], precision="tf32", **more)


@pytest.mark.slow
@pytest.mark.parametrize("turned", ["nn", "nt", "tt"])
def test_batches_and_parts_of_tf32(stream: Any, xp: Any, monkeypatch: Any, turned: str) -> None:
    use(monkeypatch, SMALL._replace(stages=4, split=2))
    a, b = laid(xp, 70, 136, 200, turned, F4)
    check(a, b, stream, precision="tf32")
    a, b = numbers(xp, 2, 40, 72, dtype=F4), numbers(xp, 2, 72, 132, dtype=F4, seed=1)
    for right in (b, b[0], b[:1]):
        check(a, right, stream, precision="tf32", dtype="f2")


@pytest.mark.slow
def test_tf32_that_lies_along_k_in_neither_operand_is_left_to_mma_sync(stream: Any, xp: Any) -> None:
    check(*laid(xp, 72, 80, 96, "tn", F4), stream, by="mma.sync", precision="tf32")


@in_tiers("dtype,tile", FP8, TABLE["fp8"], strength=1, quick=lambda *_: False)
def test_fp8(stream: Any, xp: Any, monkeypatch: Any, dtype: np.dtype, tile: Tile) -> None:
    use(monkeypatch, tile)
    m, n, k = tile.m + 9, tile.n + 5, 128 * tile.stages + 70
    operands = laid(xp, m, n, k, "nt", dtype)
    check(*operands, stream, dtype="f4", scale=0.5, want=lambda x: 0.5 * x)
    check(*operands, stream, dtype="f2")


@pytest.mark.slow
def test_a_block_makes_several_tiles(stream: Any, xp: Any, monkeypatch: Any) -> None:
    ordinary = matmul_warpgroups.product

    def of_two_blocks(*arguments: Any) -> Any:
        launch = ordinary(*arguments)
        return launch._replace(config=ck.config(2, launch.config.block, launch.config.shared_bytes))

    monkeypatch.setattr(matmul_warpgroups, "product", of_two_blocks)
    check(numbers(xp, 330, 200), numbers(xp, 200, 260, seed=1), stream)
    check(numbers(xp, 2, 130, 72), numbers(xp, 2, 72, 130, seed=1), stream)


@pytest.mark.slow
@pytest.mark.parametrize("split", [2, 3, 4, 8])
@pytest.mark.parametrize("k", [510, 640])
def test_splits_of_k(stream: Any, xp: Any, monkeypatch: Any, split: int, k: int) -> None:
    use(monkeypatch, SMALL._replace(stages=4, split=split))
    a, b, bias = numbers(xp, 2, 70, k), numbers(xp, 2, k, 136, seed=1), numbers(xp, 1, 136)[0]
    got = check(a, b, stream, want=lambda x: x + to_host(bias).astype(float), bias=bias)
    again = ck.ops.matmul(a, b, by="threads", bias=bias, stream=stream)
    assert (to_host(got).view(np.uint16) == to_host(again).view(np.uint16)).all()


@pytest.mark.slow
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("made", ["i1", "i4", "f2", "f4"])
def test_int8(stream: Any, xp: Any, monkeypatch: Any, made: str, split: int) -> None:
    use(monkeypatch, SMALL._replace(stages=4, split=split))
    dtype = np.dtype("i1")
    a, b = numbers(xp, 70, 1101, dtype=dtype), numbers(xp, 130, 1101, dtype=dtype, seed=1).T
    # A sum that has 25 bits.
    a[3], b[:, 5] = 127, 127
    exact = to_host(a).astype("i8") @ to_host(b).astype("i8")
    named = {"scale": 2.0**-16, "bias": numbers(xp, 1, 130)[0]} if made == "f2" else {}
    assert "wgmma of int8" in vars(ck.ops.matmul)["explain"](a, b, by="threads", stream=stream)
    got = ck.ops.matmul(a, b, by="threads", dtype=made, stream=stream, **named)
    if made == "f2":
        expected = (exact * 2.0**-16 + to_host(named["bias"]).astype(float)).astype("f2")
        np.testing.assert_allclose(to_host(got).astype(float), expected.astype(float), rtol=1e-3, atol=1e-3)
    else:
        np.testing.assert_array_equal(to_host(got), exact.astype(made))


@pytest.mark.slow
def test_int8_that_does_not_lie_along_k_is_left_to_mma_sync(stream: Any, xp: Any) -> None:
    dtype = np.dtype("i1")
    a, b = numbers(xp, 80, 80, dtype=dtype), numbers(xp, 80, 80, dtype=dtype, seed=1)
    for left, right in ((a, b), (a.T, b.T), (a.T, b), (numbers(xp, 80, 72, dtype=dtype)[:, :70], b[:70].T[:, :70].T)):
        lines = vars(ck.ops.matmul)["explain"](left, right, by="threads", stream=stream)
        assert "mma.sync of int8" in lines, lines


@pytest.mark.slow
def test_batches(stream: Any, xp: Any) -> None:
    a, b = numbers(xp, 2, 3, 40, 72), numbers(xp, 2, 3, 72, 24, seed=1)
    for left, right in ((a, b), (a[:, 1], b[:, 1]), (a, b[0, 0]), (a[0, 0], b), (a[0], b[0, 1:2]), (a[:1], b[1:])):
        check(left, right, stream)
    check(a, numbers(xp, 2, 3, 24, 72).swapaxes(-1, -2), stream)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F2, BF16], ids=str)
@pytest.mark.parametrize("made", [F2, BF16, F4], ids=str)
def test_dtypes(stream: Any, xp: Any, dtype: np.dtype, made: np.dtype) -> None:
    if xp is not np and BF16 in (dtype, made):
        pytest.skip("CuPy has no such arrays")
    got = check(numbers(xp, 70, 72, dtype=dtype), numbers(xp, 72, 131, dtype=dtype, seed=1), stream, dtype=made)
    assert got.dtype == made


@pytest.mark.slow
@pytest.mark.parametrize("n", [96, 131])
@pytest.mark.parametrize("tile", [SMALL, Tile(1, 144, 2, 1.0)], ids=str)
def test_epilogue(stream: Any, xp: Any, monkeypatch: Any, n: int, tile: Tile) -> None:
    use(monkeypatch, tile)
    a, b, bias, residual = numbers(xp, 70, 64), numbers(xp, 64, n), numbers(xp, 1, n)[0], numbers(xp, 70, n, seed=2)
    named = {"bias": bias, "residual": residual, "scale": 0.25}
    host = [to_host(x).astype(float) for x in (bias, residual)]
    check(a, b, stream, want=lambda x: np.maximum(0.25 * x + host[0], 0) + host[1], activation="relu", **named)
    check(a, b, stream, want=lambda x: np.abs(0.25 * x + host[0]) + host[1], activation="fabsf(x)", **named)
    check(numbers(xp, 2, 150, 64), numbers(xp, 2, 64, n, seed=1), stream, dtype="f4")


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("dtype", [F2, F4], ids=str)
def test_checks_find_nothing(monkeypatch: pytest.MonkeyPatch, split: int, dtype: np.dtype) -> None:
    use(monkeypatch, SMALL._replace(split=split))
    a, b = numbers(np, 200, 200, dtype=dtype), numbers(np, 200, 160, dtype=dtype, seed=1)
    check(a, b, ck.emulator.stream(check="raise"), precision="tf32" if dtype == F4 else None)


@pytest.mark.slow
def test_calls_that_other_kernels_keep(stream: Any, xp: Any) -> None:
    a, b = numbers(xp, 72, 80), numbers(xp, 80, 72, seed=1)
    whole = numbers(xp, 72, 96)
    for left, right in (
        (whole[:, 1:81], b),  # begins at no multiple of 16 bytes
        (xp.asarray(to_host(whole))[:, :84].copy()[:, :80], b),  # rows of 168 bytes
        (a[::-1], b),
        (a[:, ::-1], b),
        (numbers(xp, 72, 160)[:, ::2], b),
        (xp.broadcast_to(a[:1], a.shape), b),
        (xp.broadcast_to(a[:, :1], a.shape), b),
        (numbers(xp, 2, 1, 72, 80), numbers(xp, 1, 3, 80, 72)),
    ):
        check(left, right, stream, by="mma.sync")


@pytest.mark.slow
def test_graphs_replace_named_matrices(stream: Any, xp: Any) -> None:
    a, other, b = numbers(xp, 70, 136), numbers(xp, 70, 136, seed=2), numbers(xp, 136, 200, seed=1)
    out = xp.zeros((70, 200), F2)
    with ck.capture(stream, a=a) as graph:
        ck.ops.matmul(a, b, by="threads", out=out, stream=stream)
    for matrix in (a, other):
        graph(stream, a=matrix)
        stream.sync()
        np.testing.assert_allclose(to_host(out), to_host(matrix) @ to_host(b), atol=0.1)
    with ck.capture(stream) as graph:
        ck.ops.matmul(a, b, by="threads", out=out, stream=stream)
    assert "warpgroup_matmul" in str(graph.nodes)
    graph.launch(stream)
    stream.sync()
    np.testing.assert_allclose(to_host(out), to_host(a) @ to_host(b), atol=0.1)


def test_the_own_choice_of_the_emulator_is_mma_sync() -> None:
    assert not matmul_warpgroups.is_faster(1, 8192, 8192, 8192, "sm_90")


def test_own_choice_of_small_products(monkeypatch: Any) -> None:
    monkeypatch.setattr(matmul_warpgroups, "busy_blocks", lambda _: 132)
    assert matmul_warpgroups.is_faster(1, 128, 128, 128, 0)
    assert not matmul_warpgroups.is_faster(1, 63, 8192, 8192, 0)
    assert not matmul_warpgroups.is_faster(1, 64, 64, 64, 0)


@pytest.mark.parametrize("row", ["TF32, rows of B", "TF32", "fp8", "fp8, 16 bits", "half"])
def test_own_choice_beside_tile_kernels(monkeypatch: Any, row: str) -> None:
    """What was the faster on an H200 is taken, where the difference was more than a fiftieth."""
    card = device_limits("sm_90")._replace(multiprocessors=132)
    for module in (matmul_warpgroups, matmul_tiles):
        monkeypatch.setattr(module, "device_limits", lambda _: card)
    for name in ("cudakit.ops.matmul_warpgroups.busy_blocks", "cudakit.arrays.place.busy_blocks"):
        monkeypatch.setattr(name, lambda _: 132)
    place = array_place("matmul", ck.emulator.stream(), ("a", np.zeros(1)))[0]._replace(device=1000)
    dtype, precision = (F4, "tf32") if row.startswith("TF32") else (F2 if row == "half" else FP8[0], None)
    faster = {"TF32, rows of B": (4096, 8192), "TF32": (), "fp8": (8192,), "fp8, 16 bits": (2048, 8192)}.get(
        row, (1536, 3072)
    )
    more = {"fp8, 16 bits": (), "half": (1536, 3072, 4096)}.get(row, (4096,))
    for size in (1024, 2048, 8192, *more):
        a = np.lib.stride_tricks.as_strided(
            numbers(np, 1, 16, dtype=dtype), (size, size), (size * dtype.itemsize, dtype.itemsize)
        )
        b = a if row in ("TF32, rows of B", "half") else a.T
        time = matmul_tiles.choose.__wrapped__(row.partition(", 16")[0], 1, size, size, size, 1000).time
        result = F2 if row.endswith("16 bits") else F4
        activation = activation_of("matmul", None, F4)
        taken = matmul_warpgroups.by_warpgroups(place, a, b, result, activation, [None, None], None, precision, time)
        assert (taken is not None) == (size in faster), size


def test_own_choice_of_tiles(monkeypatch: Any) -> None:
    monkeypatch.setattr(matmul_warpgroups, "busy_blocks", lambda _: 132)
    names = {
        size: matmul_warpgroups.choose("half", 1, size, size, size // 64, "H200")[0]
        for size in (512, 1024, 1536, 2048, 3072)
    }
    table = TABLE["half"]
    split = Tile(1, 64, 8, 0.5, split=2)
    assert names == {512: split._replace(split=1), 1024: table[4], 1536: table[2], 2048: table[0], 3072: table[1]}
    for size, tile in ((512, names[512]), (1536, Tile(2, 144, 6, 0.83)), (2048, names[2048]), (3072, names[3072])):
        assert matmul_warpgroups.choose("half, A along k", 1, size, size, size // 64, "H200")[0] == tile
    # 12 tiles of 128 columns of C and 11 of 144 rows of it.
    assert "1 rounds on 132" in matmul_warpgroups.choose("half, A along k", 1, 1580, 1536, 24, "H200")[1]
    assert matmul_warpgroups.choose("half, A along k", 1, 1536, 1580, 24, "H200")[0] != Tile(2, 144, 6, 0.83)
    assert matmul_warpgroups.choose("half", 1, 64, 4096, 64, "H200")[0] == split
    assert matmul_warpgroups.choose("half", 1, 128, 4096, 64, "H200")[0] == Tile(2, 64, 8, 0.76, split=2)
    assert matmul_warpgroups.choose("half", 1, 64, 4096, 1, "H200")[0].split == 1
