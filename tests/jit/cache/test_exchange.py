"""Compiled kernels from one machine on another without a compiler: what is given out, and what is taken in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.forks import completed_in_a_fork
from support.tiles import HEAD, why_no_assembler

import cudakit as ck
from cudakit import cli
from cudakit.jit.bundle.file import CODE, BundleFile, write
from cudakit.jit.bundle.used import InUse
from cudakit.jit.cache.cache import Cache, cache_at
from cudakit.jit.cache.stages import bundled_code_of
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.portable import base_of

SCALE = "template <typename T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }"
ARCH = "sm_90"


def kernel(folder: Path, text: str = SCALE, **options: Any) -> Any:
    return ck.Kernel(text, options=ck.CompileOptions(cache=folder, **options))


def made(one: Any, given: str = "float") -> Compiled:
    compiled: Compiled = one[given].compile(arch=ARCH, target="cubin")
    return compiled


@pytest.fixture
def here(tmp_path: Path) -> Cache:
    """A cache in which one kernel is compiled."""
    made(kernel(tmp_path / "here"))
    return cache_at(str(tmp_path / "here"))


@pytest.fixture
def file(here: Cache, tmp_path: Path) -> Path:
    path = tmp_path / "kernels.ckb"
    assert here.export_to(path) == (1, [])
    return path


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    asked: list[str] = []

    def compile(request: nvrtc.Request) -> Compiled:
        asked.append(request.label)
        raise ck.CompileError("there is no compiler here")

    monkeypatch.setattr(nvrtc.Request, "compile", compile)
    return asked  # type: ignore[return-value]


def test_what_is_taken_in_is_used(here: Cache, file: Path, tmp_path: Path, no_compiler: list[str]) -> None:
    there = tmp_path / "there"
    with pytest.raises(ck.CompileError, match="no compiler"):
        made(kernel(there))
    assert cache_at(str(there)).import_from(file) == 1
    assert made(kernel(there)) == made(kernel(tmp_path / "here"))
    ck.prewarm([kernel(there)["float"]], archs=[ARCH])
    assert len(no_compiler) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda there: made(kernel(there), "double"),
        lambda there: made(kernel(there, SCALE.replace("*=", "+="))),
        lambda there: made(kernel(there, fast_math=True)),
        lambda there: made(kernel(there, defines={"N": 1})),
        lambda there: kernel(there)["float"].compile(arch="sm_80", target="cubin"),
        lambda there: kernel(there)["float"].compile(arch=ARCH, target="ptx"),
        lambda there: made(kernel(there, link=["__device__ int other() { return 1; }"])),
        lambda there: made(kernel(there, include_paths=[there])),  # where a header may lie
    ],
)
def test_nothing_else_passes_for_it(other: Any, file: Path, tmp_path: Path, no_compiler: list[str]) -> None:
    there = tmp_path / "there"
    cache_at(str(there)).import_from(file)
    with pytest.raises(ck.CompileError, match="no compiler"):
        other(there)


def test_headers_travel_by_name(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Code of a header holds where the header is the same, wherever it lies, and where there is none."""
    text = '#include "mine.h"\n__global__ void twice(float* x) { x[0] *= BY; }'
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.h").write_text("#define BY 2\n")

    def of(folder: str) -> Compiled:
        one = kernel(tmp_path / folder / "cache", text, include_paths=[tmp_path / folder])
        compiled: Compiled = one.compile(arch=ARCH, target="cubin")
        return compiled

    of("a")
    request.getfixturevalue("no_compiler")
    assert cache_at(str(tmp_path / "a" / "cache")).export_to(tmp_path / "k.ckb") == (1, [])
    cache_at(str(tmp_path / "b" / "cache")).import_from(tmp_path / "k.ckb")
    assert of("b").code == of("a").code
    (tmp_path / "b" / "mine.h").write_text("#define BY 3\n")
    with pytest.raises(ck.CompileError, match="no compiler"):
        of("b")
    (tmp_path / "b" / "mine.h").unlink()
    assert of("b").code == of("a").code


def test_a_header_of_this_machine_alone_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "mine.h").write_text("#define BY 2\n")
    text = f'#include "{tmp_path}/far/mine.h"\n__global__ void twice(float* x) {{ x[0] *= BY; }}'
    kernel(tmp_path / "cache", text).compile(arch=ARCH, target="cubin")
    count, alone = cache_at(str(tmp_path / "cache")).export_to(tmp_path / "out.ckb")
    assert (count, len(alone)) == (0, 1)
    assert "twice" in alone[0]


SHADOWED = """{}
#ifdef PROBE
#define V 2
#else
#define V 1
#endif
__global__ void k(int* p) {{ *p = V; }}"""


@pytest.mark.parametrize(
    ("include", "header"),
    [
        ('#include "cuda_fp16.h"', "cuda_fp16.h"),
        pytest.param("%:include <math_constants.h>", "math_constants.h", marks=pytest.mark.slow),
        pytest.param("#include <cuda_fp16.h>", "vector_types.h", marks=pytest.mark.slow),  # of a header of CUDA's
        ("#include <cudakit/pack.cuh>", "cudakit/detail.cuh"),  # of a header of cudakit's
        pytest.param("#if __has_\\\ninclude(<mine.h>)\n#endif", "mine.h", marks=pytest.mark.slow),
    ],
)
def test_a_header_that_shadows_another_there(
    include: str, header: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Code is not taken from elsewhere if a header of this machine may have a say, however it is included."""

    def of(folder: str) -> Compiled:
        options = ck.CompileOptions(cache=tmp_path / folder / "cache")
        one = ck.Kernel.from_file(tmp_path / folder / "k.cu", options=options)
        compiled: Compiled = one.compile(arch=ARCH, target="cubin")
        return compiled

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(SHADOWED.format(include))
    of("a")
    assert cache_at(str(tmp_path / "a" / "cache")).export_to(tmp_path / "k.ckb") == (1, [])
    cache_at(str(tmp_path / "b" / "cache")).import_from(tmp_path / "k.ckb")
    request.getfixturevalue("no_compiler")
    of("b")
    (tmp_path / "b" / header).parent.mkdir(exist_ok=True)
    (tmp_path / "b" / header).write_text("#define PROBE 1\n")
    with pytest.raises(ck.CompileError, match="no compiler"):
        of("b")


@pytest.mark.parametrize("field", ["include_path", "pre_include"])
def test_options_that_name_headers_there(field: str, tmp_path: Path) -> None:
    one = kernel(tmp_path, extra={field: [str(tmp_path)]})
    assert base_of(one["float"].specialization(arch=ARCH, target="cubin")) is None
    assert base_of(kernel(tmp_path)["float"].specialization(arch=ARCH, target="cubin")) is not None


def test_layouts_are_compared_before_they_pass(tmp_path: Path) -> None:
    text = "struct P { float a; int b; }; __global__ void k(P p, float* x) { x[0] = p.a; }"
    right = np.dtype([("a", "f4"), ("b", "i4")])
    kernel(tmp_path / "a", text).compile(right, np.float32, arch=ARCH, target="cubin")
    cache_at(str(tmp_path / "a")).export_to(tmp_path / "k.ckb")
    cache_at(str(tmp_path / "b")).import_from(tmp_path / "k.ckb")
    swapped = np.dtype([("b", "i4"), ("a", "f4")])
    with pytest.raises(ck.CompileError):
        kernel(tmp_path / "b", text).compile(swapped, np.float32, arch=ARCH, target="cubin")


def test_only_what_is_named(tmp_path: Path) -> None:
    for given in ("float", "double"):
        made(kernel(tmp_path / "cache"), given)
    cache = cache_at(str(tmp_path / "cache"))
    assert cache.export_to(tmp_path / "out.ckb", "double")[0] == 1
    assert cache.export_to(tmp_path / "out.ckb", "nothing")[0] == 0


def test_clearing_forgets_them(file: Path, tmp_path: Path, no_compiler: list[str]) -> None:
    cache = cache_at(str(tmp_path / "there"))
    cache.import_from(file)
    made(kernel(tmp_path / "there"))
    cache.clear()
    with pytest.raises(ck.CompileError, match="no compiler"):
        made(kernel(tmp_path / "there"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: b"hello", "no bundle"),
        (lambda data: b"hello, this is a text", "no bundle"),
    ],
)
def test_damage_is_refused_whole(change: Any, message: str, file: Path, tmp_path: Path) -> None:
    file.write_bytes(change(file.read_bytes()))
    cache = cache_at(str(tmp_path / "there"))
    with pytest.raises(ck.ArgumentError, match=message):
        cache.import_from(file)
    assert cache.imported() is None


def test_imports_add_up(here: Cache, file: Path, tmp_path: Path, no_compiler: list[str]) -> None:
    cache, empty = cache_at(str(tmp_path / "there")), cache_at(str(tmp_path / "empty"))
    assert empty.export_to(tmp_path / "none.ckb") == (0, [])
    assert (cache.import_from(file), cache.import_from(tmp_path / "none.ckb")) == (1, 0)
    made(kernel(tmp_path / "there"))


def test_what_was_imported_is_opened_only_for_what_other_bundles_lack(file: Path, tmp_path: Path) -> None:
    opened: list[str] = []

    def imported() -> BundleFile:
        opened.append("imported")
        return BundleFile(file)

    entry = next(entry for entry in BundleFile(file) if entry.category == CODE)
    nearest = InUse((BundleFile(file),), True, imported)
    assert next(nearest.entries(CODE, entry.key))[1] == entry
    assert opened == []
    write(tmp_path / "none.ckb", [], {})
    lacking = InUse((BundleFile(tmp_path / "none.ckb"),), True, imported)
    assert next(lacking.entries(CODE, entry.key))[1] == entry
    assert opened == ["imported"]


def test_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: str, act: Callable[[], int]) -> str:
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / folder))
        done = completed_in_a_fork(act, 120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(*words: str) -> Callable[[], int]:
        return lambda: cli.main(["cache", *words, str(tmp_path / "k.ckb")])

    def compile_alone() -> int:
        monkeypatch.setattr(nvrtc.Request, "compile", None)
        return compile_it()

    def compile_it() -> int:
        print(ck.Kernel(SCALE)["float"].compile(arch="sm_90", target="cubin"))
        return 0

    run("a", compile_it)
    assert run("a", command("export")) == f"Wrote 1 kernel to {tmp_path / 'k.ckb'}.\n"
    assert run("b", command("import")) == "Imported 1 kernel.\n"
    assert "scale<float>" in run("b", compile_alone)


def test_texts_of_one_tile_ir(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    text = f"{HEAD}template <typename T> __tile_global__ void scale(T* x) {{ x[0] = 1; }}\n"
    texts = [text, text + "// more"]
    for each in texts:
        made(kernel(tmp_path / "here", each))
    assert cache_at(str(tmp_path / "here")).export_to(tmp_path / "kernels.ckb")[1] == []
    there = cache_at(str(tmp_path / "there"))
    there.import_from(tmp_path / "kernels.ckb")
    assert there.imported() is not None
    assert all(bundled_code_of(kernel(tmp_path / "there", each)["float"].specialization(arch=ARCH)) for each in texts)


def test_what_two_compilers_made_goes_once(here: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "compiler_identity", lambda: "another")
        made(kernel(tmp_path / "here"))
    assert here.info().entries == 2
    with warnings.catch_warnings(action="error"):
        assert here.export_to(tmp_path / "kernels.ckb") == (1, [])
