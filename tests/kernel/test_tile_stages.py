"""Tile kernels in every stage: sources, brackets, plans, graphs, streams, pipelines, processes, the cache."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host
from support.tiles import HEAD, VIEW, needs_compiler, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.cli import main
from cudakit.jit.cache.cache import Cache, cache_at
from cudakit.jit.load.image import DeviceImage

#: y = factor * x + y, in tiles; the factor is a number of the elements' type, or an int.
SCALE = f"""{HEAD}{VIEW}
template <typename T, int TILE = 64>
__tile_global__ void scale(const T* __restrict__ x, T* __restrict__ y, T factor, int n) {{
    int i = ct::bid().x;
    auto to = tiles_of<TILE>(y, n);
    to.store_masked(tiles_of<TILE>(x, n).load_masked(i) * factor + to.load_masked(i), i);
}}
"""
THREADS = """
__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
"""
N = 200
GRID = ck.cover(N, tile=64)


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


@pytest.fixture
def x(xp: Any) -> Any:
    return xp.arange(N, dtype=xp.float32)


@pytest.fixture
def y(xp: Any) -> Any:
    return xp.zeros(N, xp.float32)


# ── sources ──


@pytest.mark.slow
def test_from_a_file_with_a_header_of_its_own(stream: Any, x: Any, y: Any, tmp_path: Path) -> None:
    needs_compiler()
    (tmp_path / "views.cuh").write_text(HEAD + VIEW)
    source = tmp_path / "scale.cu"
    source.write_text('#include "views.cuh"\n' + SCALE.removeprefix(HEAD + VIEW))
    ck.Kernel.from_file(source)(stream, GRID, x, y, 2.0, N)
    assert (to_host(y) == 2 * np.arange(N)).all()
    (tmp_path / "views.cuh").write_text(HEAD + VIEW.replace("{n}}, ct", "{n - 4}}, ct"))
    ck.Kernel.from_file(source)(stream, GRID, x, y, 2.0, N)
    assert to_host(y)[[195, 196]].tolist() == [4 * 195, 2 * 196]
    source.write_text(source.read_text().replace("* factor", "* factor * (T)10"))
    y[...] = 0
    ck.Kernel.from_file(source)(stream, GRID, x, y, 2.0, N)
    assert to_host(y)[[195, 196]].tolist() == [20 * 195, 0]


def test_namespaces_overloads_and_several_of_one_source(stream: Any, x: Any, y: Any, xp: Any) -> None:
    text = f"""{HEAD}
namespace a {{
namespace b {{
__tile_global__ void put(float* y, int value) {{ y[ct::bid().x] = value; }}
}}
__tile_global__ void put(float* y) {{ y[ct::bid().x] = -1; }}
}}
__tile_global__ void fill(float* y, float value) {{ y[ct::bid().x] = value; }}
__tile_global__ void fill(int* y, int value) {{ y[ct::bid().x] = value + 1; }}
"""
    module = ck.Module(text)
    whole = xp.zeros(3, xp.int32)
    module["a::b::put"](stream, ck.config(1), y, 7)
    assert to_host(y)[:2].tolist() == [7, 0]
    module["a::put"](stream, ck.config(2), y)
    assert to_host(y)[:3].tolist() == [-1, -1, 0]
    module["fill"](stream, ck.config(3), y, 2.5)
    module["fill"](stream, ck.config(3), whole, 2)
    assert (to_host(y)[:4].tolist(), to_host(whole).tolist()) == ([2.5, 2.5, 2.5, 0], [3, 3, 3])


def test_threads_and_tiles_of_one_source(stream: Any, x: Any, y: Any) -> None:
    module = ck.Module(SCALE + THREADS)
    module["add"](stream, ck.cover(N), x, y, N)
    module["scale"](stream, GRID, x, y, 2.0, N)
    module["add"](stream, ck.cover(N), x, y, N)
    assert (to_host(y) == 4 * np.arange(N)).all()


@pytest.mark.slow
def test_brackets_and_defaults(stream: Any, x: Any, y: Any, xp: Any) -> None:
    scale = ck.Kernel(SCALE)
    for kernel, tile in (
        (scale, 64),
        (scale[np.float32], 64),
        (scale["float"], 64),
        (scale["T" : np.float32, "TILE":32], 32),
        (scale["TILE":128], 128),
        (scale[np.float32, 16], 16),
        (scale[np.float32][16], 16),
    ):
        y[...] = 0
        kernel(stream, ck.cover(N, tile=tile), x, y, 3, N)
        assert (to_host(y) == 3 * np.arange(N)).all()
    wide = xp.arange(N)
    scale(stream, GRID, wide, wide, 1, N)
    assert (to_host(wide) == 2 * np.arange(N)).all()
    with pytest.raises(ck.TemplateError, match="from y"):
        scale(stream, GRID, x, wide, 3, N)
    with pytest.raises(ck.TemplateError, match="TILES"):
        scale["TILES":3]


def counting(tile: tuple[int, ...]) -> str:
    """Tile kernel that adds 1 to each element of an array, which it covers with tiles."""
    rank = len(tile)
    names = "abc"[:rank]
    parameters = "".join(f", int {name}" for name in names)
    blocks = ["(int)ct::bid().x", "(int)ct::bid().y", "(int)ct::bid().z"][:rank][::-1]
    return f"""
__tile_global__ void count{rank}(int* __restrict__ p{parameters}) {{
    ct::tensor_span all{{p, ct::extents{{{", ".join(names)}}}}};
    ct::partition_view to{{all, ct::shape<{", ".join(map(str, tile))}>{{}}}};
    to.store_masked(to.load_masked({", ".join(blocks)}) + 1, {", ".join(blocks)});
}}"""


TILES = [(8,), (8, 8), (4, 8, 8)]
COUNT = HEAD + "".join(counting(tile) for tile in TILES)


@pytest.mark.parametrize("shape", [(37,), (9, 21), (5, 9, 21)])
def test_tiles_cover_a_shape_of_any_rank(stream: Any, xp: Any, shape: tuple[int, ...]) -> None:
    rank, p = len(shape), xp.zeros(shape, xp.int32)
    ck.Kernel(COUNT, f"count{rank}")(stream, ck.cover(shape, tile=TILES[rank - 1]), p, *shape)
    assert (to_host(p) == 1).all()


def test_keywords_and_their_defaults(stream: Any, y: Any) -> None:
    put = ck.Kernel(HEAD + "__tile_global__ void put(float* y, float value = 4, int at = 1) { y[at] = value; }")
    put(stream, ck.config(1), y)
    put(stream, ck.config(1), y, at=2)
    put(stream, ck.config(1), value=5.0, y=y, at=3)
    assert to_host(y)[:5].tolist() == [0, 4, 4, 5, 0]


def test_a_grid_of_nothing_launches_nothing(stream: Any, x: Any, y: Any) -> None:
    for config in (ck.config(0), ck.cover(0, tile=64), ck.cover((0, 3), tile=(8, 8))):
        ck.Kernel(SCALE)(stream, config, x, y, 1.0, N)
    assert not to_host(y).any()


# ── plans, graphs, streams, pipelines ──


def test_plans_and_kernels_are_pickled(stream: Any, x: Any, y: Any) -> None:
    scale = pickle.loads(pickle.dumps(ck.Kernel(SCALE)["TILE":32]))
    plan = scale.plan(stream, ck.cover(N, tile=32), x, y, 2.0, N)
    for _ in range(3):
        plan()
    stream.sync()
    assert (to_host(y) == 6 * np.arange(N)).all()
    module = pickle.loads(pickle.dumps(ck.Module(SCALE + THREADS)))
    module["scale<float, 64>"](stream, GRID, x, y, -6.0, N)
    assert not to_host(y).any()


def test_a_graph_of_both_kinds_with_other_numbers(stream: Any, x: Any, y: Any) -> None:
    module = ck.Module(SCALE + THREADS)
    module.prepare("scale<float, 64>", "add")
    with ck.capture(stream, factor=2.0) as graph:
        module["scale<float, 64>"](stream, GRID, x, y, graph["factor"], N)
        module["add"](stream, ck.cover(N), x, y, N)
    graph(stream)
    graph(stream, factor=10.0)
    stream.sync()
    assert (to_host(y) == 14 * np.arange(N)).all()


def test_what_a_graph_is_given_keeps_the_promises(stream: Any, xp: Any, y: Any) -> None:
    kept = ck.Kernel(f"""{HEAD}
__tile_global__ void kept(float* __restrict__ p, int n) {{
    p = ct::assume_aligned(p, 16_ic);
    n = ct::assume_divisible(n, 8_ic);
    p[0] += n;
}}""")
    with ck.capture(stream, n=8, p=y) as graph:
        kept(stream, ck.config(1), graph["p"], graph["n"])
    graph(stream, n=16)
    with pytest.raises(ck.ArgumentError, match=r"n \(int\) is 9: .* a multiple of 8"):
        graph(stream, n=9)
    with pytest.raises(ck.ArgumentError, match="at a multiple of 16 bytes, which kernels may rely on"):
        graph(stream, p=xp.zeros(N + 1, xp.float32)[1:])
    graph(stream, n=24)
    stream.sync()
    assert to_host(y)[0] == 40


@pytest.mark.gpu
def test_a_graph_builder_records_them(stream: Any, x: Any, y: Any) -> None:
    scale = ck.Kernel(SCALE)
    scale(stream, GRID, x, y, 1.0, N)
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    for _ in range(2):
        scale(builder, GRID, x, y, 1.0, N)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert (to_host(y) == 3 * np.arange(N)).all()


def test_streams_are_ordered_by_what_tiles_write(stream: Any, x: Any, y: Any, xp: Any) -> None:
    other, module = another(stream), ck.Module(SCALE + THREADS)
    total = xp.zeros(N, xp.float32)
    for _ in range(5):
        module["scale"](stream, GRID, x, y, 1.0, N)
        module["add"](other, ck.cover(N), y, total, N)
    other.sync()
    stream.sync()
    assert (to_host(total) == 15 * np.arange(N)).all()


def test_hazards_of_tiles_are_reported(stream: Any, x: Any, y: Any, xp: Any) -> None:
    other, module = another(stream), ck.Module(SCALE + THREADS)
    total = xp.zeros(N, xp.float32)
    with ck.hazards.trace() as found:
        module["scale"](stream, GRID, x, y, 1.0, N)
        module["add"](other, ck.cover(N), y, total, N)
        module["scale"](stream, GRID, x, y, 1.0, N)
    other.sync()
    stream.sync()
    told = {(each.first.work, each.second.work) for each in found.dependencies}
    assert {("scale<float>", "add"), ("add", "scale<float>")} <= told
    assert not found.missing


def test_a_stage_of_a_pipeline(stream: Any, xp: Any) -> None:
    scale = ck.Kernel(SCALE)

    def stage(item: Any, on: Any) -> Any:
        made = xp.zeros_like(item)
        scale(on, GRID, item, made, 3.0, N)
        return made

    items = [np.full(N, number, np.float32) for number in range(7)]
    results = list(ck.Pipeline([stage, stage], stream=stream)(items))
    assert [float(each[-1]) for each in results] == [9.0 * number for number in range(7)]


def test_host_arrays(stream: Any) -> None:
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    ck.Kernel(SCALE)(stream, GRID, ck.In(x), ck.InOut(y), 2.0, N)
    stream.sync()
    assert (y == 2 * x).all()


def test_a_trace_names_them(stream: Any, x: Any, y: Any) -> None:
    with ck.trace() as trace:
        ck.Kernel(SCALE)(stream, GRID, x, y, 2.0, N)
    assert "scale<float>" in str(trace)


# ── compile, cache, processes ──


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["80", "86", "87", "88", "89", "90", "100", "103", "107", "110", "120", "121"])
def test_every_arch(arch: str) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    scale = ck.Kernel(SCALE)["float", 64]
    made = scale.compile(arch=f"sm_{arch}", target="cubin")
    assert made.code.startswith(b"\x7fELF")
    assert "scale<float, 64>" in made.lowered


@pytest.mark.parametrize("target", ["cubin", "tileir"])
def test_no_arch_below_80(target: Any) -> None:
    with pytest.raises(ck.CompileError, match="tile kernels are for sm_80 and later, not for sm_75"):
        ck.Kernel(SCALE)["float", 64].compile(arch="sm_75", target=target)


def test_targets_that_tiles_have_not() -> None:
    for target in ("ptx", "object", "ltoir"):
        with pytest.raises(ck.CompileError, match=f"a tile kernel has no {target}"):
            ck.Kernel(SCALE)["float", 64].compile(arch="sm_90", target=target)  # type: ignore[arg-type]


def test_what_there_is_of_one_that_was_launched(stream: Any, x: Any, y: Any) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    scale = ck.Kernel(SCALE)
    scale(stream, GRID, x, y, 2.0, N)
    for wrong in (scale.ptx, lambda: scale["float", 64].ptx(), lambda: scale["float", 64].compile(target="ptx")):
        with pytest.raises(ck.CompileError, match="a tile kernel has no ptx"):
            wrong()
    assert scale.explain().registers > 0
    assert ("the emulator" if isinstance(x, np.ndarray) else "a GPU") in scale._repr_html_()
    assert scale["float", 64].compile(target="tileir").code.startswith(b"\x7fTileIR")


@pytest.mark.slow
def test_prewarmed(tmp_path: Path, stream: Any, x: Any, y: Any) -> None:
    needs_compiler()
    kernels = [ck.Kernel(SCALE, options=ck.CompileOptions(cache=tmp_path))["float", size] for size in (64, 128)]
    ck.prewarm(kernels)
    cache = Cache(tmp_path, 2**30)
    assert {entry.label.rpartition(": ")[2] for entry in cache.entries()} >= {"scale<float, 64>", "scale<float, 128>"}
    kernels[0](stream, GRID, x, y, 2.0, N)
    assert (to_host(y) == 2 * np.arange(N)).all()


@pytest.mark.slow
def test_prewarmed_for_several_archs(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    kernels = [ck.Kernel(SCALE, options=ck.CompileOptions(cache=tmp_path))["float", size] for size in (64, 128)]
    ck.prewarm(kernels, archs=["sm_80", "sm_90"])
    before = cache_at(str(tmp_path)).info().misses
    for kernel in kernels:
        for arch in ("sm_80", "sm_90"):
            assert kernel.compile(arch=arch, target="cubin").target == "cubin"
    assert cache_at(str(tmp_path)).info().misses == before
    with pytest.raises(ck.CompileError, match="sm_80 and later"):
        ck.prewarm(kernels, archs=["sm_75"])


@pytest.mark.slow
def test_prepared_ones_of_a_module_are_loaded_each_with_its_kind(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    module = ck.Module(SCALE + THREADS, options=ck.CompileOptions(cache=tmp_path))
    names = ("scale<float, 64>", "add", "scale<float, 128>")
    module.prepare(*names, arch="sm_90")
    image, before = DeviceImage(), cache_at(str(tmp_path)).info().misses
    scale, add, other = (module[name].specialization(arch="sm_90") for name in names)
    image.ahead, image.forget = (scale, add, other), lambda: None
    for wanted in (add, scale, other):
        assert image.code(wanted)[0].members == (wanted,)
    assert cache_at(str(tmp_path)).info().misses == before


PROGRAM = """
import sys, numpy as np, cudakit as ck
from pathlib import Path
scale = ck.Kernel(Path(sys.argv[1]).read_text(), options=ck.CompileOptions(cache=sys.argv[2]))
x, y = np.ones(200, "f4"), np.zeros(200, "f4")
scale(ck.emulator.stream(), ck.cover(200, tile=64), x, y, 2.0, 200)
assert (y == 2).all()
from cudakit.jit.cache.cache import cache_at
print(cache_at(sys.argv[2]).info().misses)
"""


def run(tmp_path: Path, cache: Path, text: str = SCALE) -> subprocess.Popen[str]:
    program, source = tmp_path / "program.py", tmp_path / "scale.txt"
    program.write_text(textwrap.dedent(PROGRAM))
    source.write_text(text)
    command = [sys.executable, str(program), str(source), str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.emulator
def test_two_processes_compile_once(tmp_path: Path) -> None:
    needs_compiler()
    running = [run(tmp_path, tmp_path / "cache") for _ in range(2)]
    told = [process.communicate() for process in running]
    assert all(process.returncode == 0 for process in running), told
    assert sorted(int(output) for output, _ in told) == [0, 1]


@pytest.mark.slow
@pytest.mark.emulator
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    needs_compiler()
    cache = tmp_path / "cache"
    cache.write_text("a file stands there")
    output, errors = run(tmp_path, cache).communicate()
    assert output.strip() == "1", errors
    assert "CacheWarning" in errors


def test_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    source, file = tmp_path / "scale.cu", tmp_path / "kernels.bin"
    source.write_text(SCALE)

    def told(*words: str, folder: str = "cache") -> str:
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / folder))
        assert main(words) == 0
        return capsys.readouterr().out

    explain = ("cache", "explain", str(source), "--args", "float,64", "--arch", "sm_90")
    assert "miss: " in told(*explain)
    ck.Kernel.from_file(source)["float", 64].compile(arch="sm_90", target="cubin")
    assert f"hit: {source}: scale<float, 64> is in the cache, " in told(*explain)
    assert [line.split()[-5:-3] for line in told("cache", "list").splitlines()[1:]] == [["KiB", "sm_90"]] * 2
    assert "Wrote 2 kernels" in told("cache", "export", str(file))
    assert "Imported 2 kernels" in told("cache", "import", str(file), folder="other")
    assert "scale<float, 64> is in the cache, imported." in told(*explain, folder="other")
    told("cache", "clear", "scale")
    assert "miss: " in told(*explain)
