"""Arrays that tile kernels take whole: the right specialization for each way in which they lie, and what is refused."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.tiles import needs_compiler, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import nvrtc
from cudakit.jit.signature.reader import parse
from cudakit.types.tensors import TensorLayout, layout_of, packer, passed_strides

HEAD = "#include <cuda_fp16.h>\n#include <cudakit/tensor.cuh>\nnamespace ct = cuda::tiles;\n"
MM = f"""{HEAD}
template <typename T, int BM, int BN, int BK>
__tile_global__ void mm(cudakit::tensor<const T, 2> a,  // (m, k),
                        cudakit::tensor<const T, 2> b,  /* (k, n) */
                        cudakit::tensor<float, 2> c) {{
    int row = ct::bid().y, column = ct::bid().x;
    auto sum = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>();
    for (auto k : ct::irange(0, (a.extent(1) + BK - 1) / BK))
        sum = ct::mma(view<BM, BK>(a).load_masked(row, k), view<BK, BN>(b).load_masked(k, column), sum);
    view<BM, BN>(c).store_masked(sum, row, column);
}}
"""
#: Of any rank; `what` says what is done with each element.
MOVE = f"""{HEAD}
template <int N, typename T, int RANK>
__tile_global__ void move(cudakit::tensor<const T, RANK> x, cudakit::tensor<T, RANK> y, T add) {{
    if constexpr (RANK == 1)
        view<N>(y).store_masked(view<N>(x).load_masked(ct::bid().x) + add, ct::bid().x);
    else if constexpr (RANK == 2)
        view<N, N>(y).store_masked(view<N, N>(x).load_masked(ct::bid().x, ct::bid().y) + add, ct::bid().x, ct::bid().y);
    else
        view<1, N, N>(y).store_masked(view<1, N, N>(x).load_masked(ct::bid().z, ct::bid().x, ct::bid().y) + add,
                                      ct::bid().z, ct::bid().x, ct::bid().y);
}}
"""


@pytest.fixture(autouse=True)
def _tiles(request: pytest.FixtureRequest) -> None:
    if "host" not in request.node.name:
        needs_tiles()


def aligned(xp: Any, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Any:
    """Zeros that begin `offset` elements behind a multiple of 16 bytes."""
    size, dtype = int(np.prod(shape)), np.dtype(dtype)
    flat = xp.zeros(size + 64, dtype)
    address = flat.data.ptr if hasattr(flat.data, "ptr") else flat.ctypes.data
    begin = -address % 16 // dtype.itemsize + offset
    return flat[begin : begin + size].reshape(shape)


def ways(xp: Any, values: np.ndarray) -> dict[str, Any]:
    """The same values, lying in memory in each way that there is."""
    m, n = values.shape
    turned, sliced, spaced = aligned(xp, (n, m), values.dtype).T, aligned(xp, (m, n + 8), values.dtype)[:, :n], None
    spaced = aligned(xp, (m, 2 * n), values.dtype)[:, ::2]
    found = {
        "plain": aligned(xp, (m, n), values.dtype),
        "turned": turned,
        "sliced": sliced,
        "spaced": spaced,
        "odd": aligned(xp, (m, n), values.dtype, 1),
    }
    for each in found.values():
        each[...] = xp.asarray(values)
    return found


@pytest.fixture
def mm() -> Any:
    return ck.Kernel(MM)["BM":32, "BN":32, "BK":32]


# ── what is found in the text, and how arrays lie ──


def test_heads_are_found_on_the_host() -> None:
    text = """
namespace n { template <class T> __tile_global__ void k(int a, cudakit::tensor<const T, 2> x /* , */, float s); }
template <class T> __tile_global__ void n::k(int a, cudakit::tensor<const T, 2> y, float s) { if (a) { y; } }
__tile_global__ void plain(float* x) {}
__global__ void threads(tensor<float, 2> x) {}
"""
    declared = parse(text)
    kernel, *others = declared.kernels
    assert [each.heads for each in others] == [(), ()]
    parts = {text[start:end] for head in kernel.heads for _, start, end in head.parameters}
    assert parts == {"cudakit::tensor<const T, 2> x", "cudakit::tensor<const T, 2> y"}
    assert [text[head.body :][:10] if head.body >= 0 else "" for head in kernel.heads] == [" if (a) { ", ""]
    assert declared == type(declared).from_json(declared.to_json())


@pytest.mark.parametrize(
    ("shape", "strides", "address", "expected"),
    [
        ((8, 16), (16, 1), 0, TensorLayout(1, 16, True)),
        ((8, 16), (16, 1), 2, TensorLayout(1)),
        ((8, 15), (16, 1), 0, TensorLayout(1, 16, False)),
        ((8, 15), (15, 1), 0, TensorLayout(1)),
        ((16, 8), (1, 16), 0, TensorLayout(0, 16, True)),
        ((16, 16), (1, 16), 0, TensorLayout(0, 16, True)),
        ((8, 16), (32, 2), 0, TensorLayout()),
        ((0, 16), (16, 1), 0, TensorLayout()),
        ((1, 16), (3, 1), 0, TensorLayout(1, 16, True)),
        ((16, 1), (1, 7), 0, TensorLayout(0, 16, True)),
        ((8, 16), (0, 1), 0, TensorLayout(1)),
        ((8, 16), (8, 1), 0, TensorLayout(1)),
        ((4, 8, 16), (16, 64, 1), 0, TensorLayout(2, 16, True)),
        ((4, 8, 16), (128, 1, 8), 0, TensorLayout(1, 16, True)),
        ((5,), (1,), 0, TensorLayout(0, 16, False)),
        ((1 << 16, 1 << 16), (1 << 16, 1), 0, TensorLayout(1, 16, True)),
        ((1, 1 << 30), (1 << 40, 1), 0, TensorLayout(1, 16, True)),
        ((1, 1 << 16, 1 << 16), (7, 1 << 16, 1), 0, TensorLayout(2, 16, True)),
        ((2, 1 << 16, 1 << 16), (1 << 32, 1 << 16, 1), 0, TensorLayout(2, 16, True, wide=True)),
    ],
)
def test_layouts_on_the_host(
    shape: tuple[int, ...], strides: tuple[int, ...], address: int, expected: TensorLayout
) -> None:
    found = layout_of(shape, strides, address, 2)
    assert found == expected
    packed = packer(len(shape), found)(address, *shape, *passed_strides(shape, strides, 2))
    assert len(packed) == found.size(len(shape))
    numbers = [
        int.from_bytes(packed[offset : offset + size], "little")
        for offset, size in zip(found.offsets(len(shape)), found.sizes(len(shape)), strict=True)
    ]
    assert numbers[: 1 + len(shape)] == [address, *shape]
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        passed = numbers[1 + len(shape) + axis]
        assert passed == stride or extent < 2 or 0 in shape
        assert axis == found.unit or found.align == 1 or passed * 2 % 16 == 0 < passed


# ── values ──


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("shape", [(33, 20, 7), *slow((64, 48, 32), (1, 1, 1), (40, 1, 40))])
def test_products_of_all_ways(stream: Any, xp: Any, mm: Any, shape: tuple[int, int, int], alone: bool) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 4, size).astype(np.float16) for size in ((m, k), (k, n)))
    want = a.astype("f4") @ b.astype("f4")
    ways_of_a, ways_of_b, ways_of_c = ways(xp, a), ways(xp, b), ways(xp, np.zeros((m, n), "f4"))
    pairs = itertools.zip_longest(ways_of_a, ways_of_b, ways_of_c)
    chosen = list(pairs)  # all ways together
    if alone:  # each way beside plain ones
        chosen = [*((name, "plain", "plain") for name in ways_of_a), *(("plain", name, name) for name in ways_of_b)]
    for _ in range(2):
        for left, right, out in chosen:
            ways_of_c[out][...] = -1
            mm(stream, ck.cover((m, n), tile=(32, 32)), ways_of_a[left], ways_of_b[right], ways_of_c[out])
            np.testing.assert_array_equal(to_host(ways_of_c[out]), want, err_msg=f"{left} {right} {out}")


@in_tiers(
    "shape, dtype",
    [(100,), (20, 30), (3, 20, 17)],
    ["f4", "f8", "f2", "i4", "i8", "u1"],
    strength=None,
    quick=lambda shape, dtype: dtype == "f4" or (shape == (20, 30) and dtype in ("f2", "i4")),
)
def test_ranks_and_types_are_deduced(stream: Any, xp: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = xp.arange(np.prod(shape)).astype(dtype).reshape(shape)
    y = xp.zeros(shape[::-1], dtype).transpose()
    grid = (-(-shape[-2 if len(shape) > 1 else 0] // 16), -(-shape[-1] // 16) if len(shape) > 1 else 1, 3)
    move = ck.Kernel(MOVE)["N":16]
    for _ in range(2):
        move(stream, ck.config(grid[:1] if len(shape) == 1 else grid[: len(shape)]), x, y, 2)
        np.testing.assert_array_equal(to_host(y), to_host(x) + np.dtype(dtype).type(2))


# ── what is frozen ──


def test_one_after_the_other(stream: Any, xp: Any) -> None:
    """Arrays of one shape and dtype that lie in other ways: each finds its own code, in calls that are frozen."""
    values = np.arange(256, dtype="f4").reshape(16, 16)
    move, y = ck.Kernel(MOVE)["N":16], xp.zeros((16, 16), "f4")
    given = list(ways(xp, values).values())
    for k in range(20):
        x = given[k % len(given)]
        move(stream, ck.config((1, 1)), x, y, float(k))
        np.testing.assert_array_equal(to_host(y), values + k)
    # Of other tests' instances, none has a y that lies so.
    pairs = [[each.layout for each in ready.parameters[:2]] for ready in move._calls.unit.instances("move")]
    layouts = {of_x for of_x, of_y in pairs if of_y == TensorLayout(1, 16, True)}
    assert len(layouts) == len(given) - 1  # of slices too rows and pitches are multiples of 16 bytes


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")  # from NumPy 2.5 on
def test_the_same_object_lies_in_another_way(stream: Any, xp: Any) -> None:
    x, y = aligned(xp, (8, 32), "f4"), xp.zeros(256, "f4")
    x[...] = xp.arange(256, dtype="f4").reshape(8, 32)
    move = ck.Kernel(MOVE)["N":32]
    for shape in ((8, 32), (32, 8), (8, 32), (128, 2)):
        x.shape = y.shape = shape
        move(stream, ck.config(tuple(-(-extent // 32) for extent in shape)), x, y, 1.0)
        np.testing.assert_array_equal(to_host(y).reshape(-1), np.arange(256) + 1)


@pytest.mark.slow
def test_plans_graphs_and_pickles(stream: Any, xp: Any) -> None:
    move = pickle.loads(pickle.dumps(ck.Kernel(MOVE)["N":16]))
    values = np.arange(256, dtype="f4").reshape(16, 16)
    found, y = ways(xp, values), xp.zeros((16, 16), "f4")
    plans = [move.plan(stream, ck.config((1, 1)), x, y, 3.0) for x in found.values()]
    for plan in plans:
        y[...] = 0
        plan()
        stream.sync()
        np.testing.assert_array_equal(to_host(y), values + 3)
    for x in found.values():
        with ck.capture(stream) as graph:
            move(stream, ck.config((1, 1)), x, y, 4.0)
            move(stream, ck.config((1, 1)), y, y, 4.0)
        graph.launch(stream)
        stream.sync()
        np.testing.assert_array_equal(to_host(y), values + 8)


def test_other_arrays_in_a_graph(stream: Any, xp: Any) -> None:
    """Those that lie in the same way take the place of those that were captured; others are refused."""
    move = ck.Kernel(MOVE)["N":16]
    values = np.arange(256, dtype="f4").reshape(16, 16)
    for name, x in ways(xp, values).items():
        other, y = ways(xp, values + 5)[name], xp.zeros((16, 16), "f4")
        with ck.capture(stream, x=x, by=np.float32(1)) as graph:
            move(stream, ck.config((1, 1)), x, y, graph["by"])
        for given, by, want in ((x, 1.0, 1), (other, 2.0, 7)):
            graph(stream, x=given, by=by)
            stream.sync()
            np.testing.assert_array_equal(to_host(y), values + want, err_msg=name)
        if name == "plain":
            for wrong in (ways(xp, values)["odd"], ways(xp, values)["turned"]):
                with pytest.raises(ck.ArgumentError, match="graph: x was captured"):
                    graph(stream, x=wrong)


def test_reads_and_writes_are_known(stream: Any, xp: Any) -> None:
    move, other = ck.Kernel(MOVE)["N":16], another(stream)
    x, y = xp.zeros((16, 16), "f4").T, xp.zeros((16, 16), "f4")
    with ck.hazards.trace() as report:
        move(stream, ck.config((1, 1)), x, y, 1.0)
        move(other, ck.config((1, 1)), x, y.T, 1.0)
    stream.sync()
    other.sync()
    found = [each for each in report.dependencies if each.second.parameter == "y"]
    # A GPU may have done the first by then.
    assert {each.kind for each in found} == {"write after write"}
    assert {each.status for each in found} <= {"put in", "implied"}
    assert not [each for each in report.dependencies if each.second.parameter == "x"]


def test_streams_are_ordered(stream: Any, xp: Any) -> None:
    move, other = ck.Kernel(MOVE)["N":16], another(stream)
    x, y = xp.zeros((16, 16), "f4"), xp.zeros((16, 16), "f4").T
    for _ in range(4):
        move(stream, ck.config((1, 1)), x, y, 1.0)
        move(other, ck.config((1, 1)), y, x, 1.0)
    other.sync()
    assert (to_host(x) == 8).all()


def test_kept_and_compiled_ahead(stream: Any, xp: Any, tmp_path: Path) -> None:
    needs_compiler()
    path = tmp_path / "k.cu"
    path.write_text(MOVE)
    move = ck.Kernel.from_file(path, options=ck.CompileOptions(cache=tmp_path / "cache"))["N":16]
    made = move.specialization(("f4", 2), ("f4", 2), "f4", arch="sm_90", target="tileir")
    assert made.name_expression == "move<16, float, 2>"
    assert made.parameters is not None
    assert made.parameters[0].layout == TensorLayout(1, 16, True)
    turned = move.specialization(aligned(np, (32, 16), "f4").T, ("f4", 2), "f4", arch="sm_90").parameters
    assert turned is not None
    assert [each.layout for each in turned] == [TensorLayout(0, 16, True), TensorLayout(1, 16, True), None]
    x, y = xp.ones((4, 16), "f4"), xp.zeros((4, 16), "f4")
    for k in (move, ck.Kernel.from_file(path, options=ck.CompileOptions(cache=tmp_path / "cache"))["N":16]):
        for given in (x, x[:, ::-1][:, ::-1], y.T.copy().T):
            k(stream, ck.config((1, 1)), given, y, 1.0)
    texts = {made.text, move.specialization(("f4", 1), ("f4", 1), "f4", arch="sm_90").text}
    assert len(texts) == 2
    assert {text.count("\n") for text in texts} == {made.text.count("\n")}


def test_compiled_elsewhere(stream: Any, xp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    options = [ck.CompileOptions(cache=tmp_path / name) for name in ("here", "there")]
    here, there = (ck.Kernel(MOVE, options=each)["N":16] for each in options)
    x, y = xp.ones((16, 16), "f4"), xp.zeros((16, 16), "f4")
    here(stream, ck.config((1, 1)), x, y, 1.0)
    here(stream, ck.config((1, 1)), x.T, y, 1.0)
    assert cache_at(str(tmp_path / "here")).export_to(tmp_path / "kernels") == (2, [])
    cache_at(str(tmp_path / "there")).import_from(tmp_path / "kernels")

    def compile(request: nvrtc.Request) -> Any:
        raise ck.CompileError("there is no compiler here")

    monkeypatch.setattr(nvrtc.Request, "compile", compile)
    for given in (x, x.T):
        there(stream, ck.config((1, 1)), given, y, 2.0)
        assert (to_host(y) == 3).all()
    with pytest.raises(ck.CompileError, match="no compiler"):
        there(stream, ck.config((1, 1)), x[:, 1:], y[:, 1:], 2.0)


@pytest.mark.slow
def test_prewarmed_together(stream: Any, xp: Any, tmp_path: Path) -> None:
    needs_compiler()
    options = ck.CompileOptions(cache=tmp_path)
    kernels = [ck.Kernel(MOVE, options=options)["N":16, "T":dtype, "RANK":2] for dtype in ("float", "int", "__half")]
    ck.prewarm(kernels)
    misses = cache_at(str(tmp_path)).info().misses
    kernels[0](stream, ck.config((1, 1)), xp.ones((16, 16), "f4"), xp.ones((16, 16), "f4"), 2.0)
    assert cache_at(str(tmp_path)).info().misses == misses


@pytest.mark.slow
def test_module_and_overloads(stream: Any, xp: Any) -> None:
    text = f"""{HEAD}
template <typename T> __tile__ auto all(T value) {{ return ct::full<ct::tile<T, ct::shape<16>>>(value); }}
__tile_global__ void fill(cudakit::tensor<float, 1> x) {{ view<16>(x).store_masked(all(1.0f), ct::bid().x); }}
__tile_global__ void fill(cudakit::tensor<int, 1> x, int n) {{ view<16>(x).store_masked(all(n), ct::bid().x); }}
__global__ void threads(float* x) {{ x[threadIdx.x] += 1; }}
__tile_global__ void
twice(
    cudakit::tensor<float, 1>
        x
) {{ view<16>(x).store_masked(view<16>(x).load_masked(ct::bid().x) * 2.0f, ct::bid().x); }}
"""
    module = ck.Module(text)
    x, n = xp.zeros(40, "f4"), xp.zeros(40, "i4")
    for each in (x[::2], x):
        module["fill"](stream, ck.cover(each.size, tile=16), each)
        module["twice"](stream, ck.cover(each.size, tile=16), each)
        module["fill"](stream, ck.cover(20, tile=16), n[::2], 7)
        assert (to_host(each) == 2).all()
    module["threads"](stream, ck.config(1, 40), x)
    assert (to_host(x) == 3).all()
    assert (to_host(n) == [7, 0] * 20).all()


# ── what is refused ──


def test_what_is_refused(stream: Any, xp: Any, mm: Any) -> None:
    grid = ck.cover((32, 32), tile=(32, 32))
    half, c = xp.zeros((32, 32), np.float16), xp.zeros((32, 32), "f4")
    mm(stream, grid, half, half, c)
    for given, message in (
        ((half, half.astype("f4"), c), r"template argument T is __half from a .* but float from b"),
        ((half, half[0], c), r"parameter b \(cudakit::tensor<const __half, 2>\) takes 2 dimensions, got"),
        ((half, half, c[0]), r"parameter c .* takes 2 dimensions"),
        ((half, half, half), r"parameter c .* takes elements of float32"),
        ((half, half[::-1], c), r"parameter b .*its stride along axis 0 is -32, and a tile kernel takes no reversed"),
        ((half, 3, c), r"parameter b .* takes an array, got 3"),
        ((half, None, c), r"parameter b .* takes an array, got None"),
        ((half, half), r"takes 3 arguments"),
    ):
        with pytest.raises((ck.ArgumentError, ck.TemplateError), match=message):
            mm(stream, grid, *given)
    row = half[:1]
    broad = xp.broadcast_to(row, (32, 32))
    mm(stream, grid, half, broad, c)
    if xp is np:
        with pytest.raises(ck.ArgumentError, match=r"c .* may be written, .* read-only"):
            mm(stream, grid, half, half, np.broadcast_to(c[:1], (32, 32)))
    wide = xp.lib.stride_tricks.as_strided(c, (32, 32), (0, 4))
    with pytest.raises(ck.ArgumentError, match="it may be written, and its stride along axis 0 is 0"):
        mm(stream, grid, half, half, wide)


def test_nothing_is_read_of_empty_arrays(stream: Any, xp: Any, mm: Any) -> None:
    c = xp.ones((32, 32), "f4")
    mm(stream, ck.config((1, 1)), xp.zeros((32, 0), np.float16), xp.zeros((0, 32), np.float16), c)
    assert (to_host(c) == 0).all()
    mm(stream, ck.cover((0, 32), tile=(32, 32)), xp.zeros((0, 5), np.float16), xp.zeros((5, 32), np.float16), c[:0])


def test_own_promises(stream: Any, xp: Any) -> None:
    needs_compiler()
    text = f"""{HEAD}using namespace ct::literals;
__tile_global__ void k(int n, cudakit::tensor<const float, 2> x, cudakit::tensor<float, 1> y, int m) {{
    int columns = ct::assume_divisible(x.extent(1), 64_ic);
    m = ct::assume_divisible(m, 4_ic);
    y.data()[0] = columns + m;
}}"""
    k, x, y = ck.Kernel(text), xp.zeros((4, 128), "f4"), xp.zeros(1, "f4")
    k(stream, ck.config(1), 1, x, y, 8)
    assert to_host(y)[0] == 136
    for _ in range(2):
        with pytest.raises(ck.ArgumentError, match=r"parameter x .* extent along axis 1 is 60: .* a multiple of 64"):
            k(stream, ck.config(1), 1, x[:, :60], y, 8)
        with pytest.raises(ck.ArgumentError, match=r"parameter m \(int\) is 6: .* a multiple of 4"):
            k(stream, ck.config(1), 1, x, y, 6)
        k(stream, ck.config(1), 1, x[:, :64], y, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__global__ void k(cudakit::tensor<float, 1> x) {}", r"is for tile kernels; take cudakit::strided<T, RANK>"),
        ("using A = cudakit::tensor<float, 1>;\n__tile_global__ void k(A x) {}", "no alias, macro, #if or pack"),
        ("struct S {};\n__tile_global__ void k(cudakit::tensor<S, 1> x) {}", "needs a number type"),
        ("__tile_global__ void k(cudakit::tensor<float, 1>& x) {}", "is a reference"),
    ],
)
def test_what_is_no_array_parameter(stream: Any, xp: Any, text: str, message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        ck.Kernel(HEAD + text)(stream, ck.config(1), xp.zeros(4, "f4"))


def test_heads_that_conditions_decide_are_hinted_at(stream: Any, xp: Any) -> None:
    needs_compiler()
    heads = (
        "#ifdef NO\n__tile_global__ void k(int x)\n#else\n__tile_global__ void k(cudakit::tensor<float, 1> x)\n#endif"
    )
    with pytest.raises(ck.CompileError, match="hint: cudakit::tensor must stand in the kernel's head"):
        ck.Kernel(f"{HEAD}{heads}\n{{}}")(stream, ck.config(1), xp.zeros(4, "f4"))


def test_errors_stay_at_their_lines() -> None:
    needs_compiler()
    text = MM.replace("cudakit::tensor<const T, 2> a,", "cudakit::tensor<const T,\n2>\na\n,")
    lines = text.splitlines()
    wrong = ck.Kernel(text.replace("store_masked(sum", "store_masked(total"))
    line = next(k for k, text in enumerate(lines, 1) if "store_masked(sum" in text)
    with pytest.raises(ck.CompileError, match=rf":{line}: error: identifier \"total\" is undefined"):
        wrong["__half", 32, 32, 32].compile(arch="sm_90", target="tileir")


def test_errors_show_the_head_as_it_is_written() -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError, match=r"hint: .* needs #include <cudakit/tensor.cuh>") as caught:
        ck.Kernel(MM.replace("#include <cudakit/tensor.cuh>", ""))["__half", 32, 32, 32].compile(
            arch="sm_90", target="tileir"
        )
    text = MM.replace("2> c) {", "2> c) { int b = 3;")
    with pytest.raises(ck.CompileError) as told:
        ck.Kernel(text)["__half", 32, 32, 32].compile(arch="sm_90", target="tileir")
    for error in (caught, told):
        assert "cudakit_b" not in str(error.value)
        assert "cudakit::tensor<float, 2> c) {" in str(error.value)


# ── machine code ──


@pytest.mark.slow
def test_explain(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    mm = ck.Kernel(MM, options=ck.CompileOptions(cache=tmp_path))["__half", 128, 128, 64]
    found = mm.explain(arch="sm_90")
    assert found.arrays[2] == (
        "c: elements side by side along axis 1, address and pitches multiples of 16 bytes, as are its rows"
    )
    assert str(found).count("side by side") == 3
    slow = mm.explain(aligned(np, (64, 128), "f2")[:, ::2], "f2", "f4", arch="sm_90")
    assert slow.arrays[0] == "a: elements side by side along no axis"
    assert "without TMA" in str(slow)
    lines = MM.splitlines()
    told = {(lines[each.line - 1].split("(")[0].split()[0], each.what.split("[")[0].strip()) for each in found.remarks}
    assert told == {
        ("sum", "TMA Load instruction"),
        ("sum", "Tensor-core SM90"),
        ("view<BM,", "TMA Store instruction"),
    }
