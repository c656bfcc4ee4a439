"""Small parts of the compile stage: disassemblers, drivers, the assembler's words, options, and settings."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache import prewarm, settings
from cudakit.jit.compile import assemble, binary, tile_bytecode
from cudakit.jit.compile.assemble import Explained, Remark
from cudakit.jit.compile.tile_ir import Function, Operation, Tile, TileModule
from cudakit.jit.load import load
from cudakit.jit.signature.host_code import device_part
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.deduce import hashable
from cudakit.jit.specialise.options import CompileOptions

pytestmark = pytest.mark.emulator


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Where disassemblers are: on the path, or, with a plus, among the wheels."""
    where: dict[str, str | None] = {}
    monkeypatch.setattr("shutil.which", where.get)
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda tool: where.get(f"+{tool}"), raising=False)
    return where


def test_whichever_disassembler_is_here(tools: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    done = SimpleNamespace(returncode=0, stdout="the code", stderr=" no cubin \n")

    def run(command: list[str], **given: Any) -> Any:
        assert given == {"capture_output": True, "text": True, "check": False}
        ran.append((command[:-1], Path(command[-1]).name, Path(command[-1]).read_bytes()))
        return done

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ck.LaunchError, match="no disassembler found; pip install nvidia-cuda-nvdisasm, or put"):
        binary.disassemble(b"cubin")
    for known, command in (
        ({"cuobjdump": "/bin/cuobjdump"}, ["/bin/cuobjdump", "--dump-sass"]),
        ({"+nvdisasm": "/wheel/nvdisasm"}, ["/wheel/nvdisasm", "-c"]),
        ({"nvdisasm": "/bin/nvdisasm"}, ["/bin/nvdisasm", "-c"]),
    ):
        tools.update(known)
        assert binary.disassemble(b"cubin") == "the code"
        assert ran[-1] == (command, "kernel.cubin", b"cubin")
    done.returncode = 1
    with pytest.raises(ck.LaunchError, match=r"^nvdisasm failed: no cubin$"):
        binary.disassemble(b"cubin")


def test_the_drivers_cuda_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, wanted in (((0, 13020), (13, 2)), ((0, 12090), (12, 9)), ((0, 13000), (13, 0)), ((3, 13000), (0, 0))):
        load.driver_version.cache_clear()
        monkeypatch.setattr("cuda.bindings.driver.cuDriverGetVersion", lambda answer=answer: answer)
        assert load.driver_version() == wanted
    load.driver_version.cache_clear()


def test_what_a_driver_is_given_of_a_tile_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wanted(SimpleNamespace):
        def _replace(self, target: str) -> Any:
            return Wanted(target=target, options=self.options)

    bundled: list[Any] = [None]
    monkeypatch.setattr(load, "bundled_code_of", lambda wanted: bundled[0])
    options = SimpleNamespace(cache=None)

    def target(is_here: bool, version: tuple[int, int], asked: str = "cubin") -> str:
        monkeypatch.setattr(assemble, "is_here", lambda: is_here)
        monkeypatch.setattr(load, "driver_version", lambda: version)
        wanted: Any = Wanted(target=asked, options=options)
        return load.loadable(wanted).target

    assert target(True, (13, 5)) == "cubin"
    assert target(False, (13, 5)) == target(False, (14, 0)) == "tileir"
    assert target(False, (13, 4)) == "cubin"
    assert target(False, (13, 5), "ptx") == "ptx"
    bundled[0] = "code"
    assert target(False, (13, 5)) == "cubin"


def test_what_became_of_a_kernel() -> None:
    plain = Explained("k<int>", 40, 0, 128)
    assert str(plain) == "k<int>: 40 registers a thread, no spills, 128 bytes of shared memory a block"
    assert plain.advice == ()
    loads = Remark("a.cu", 3, "Global-memory Load"), Remark("a.cu", 5, "TMA Load")
    spilled = Explained("k", 255, 16, 0, loads, ("x: rows",))
    lines = str(spilled).splitlines()
    assert "16 bytes of stack" in lines[0]
    assert lines[1:4] == ["x: rows", "a.cu:3: Global-memory Load", "a.cu:5: TMA Load"]
    assert [line.split(":")[1].split()[0] for line in lines[4:]] == ["registers", "without"]
    assert Explained("k", 255, 16, 0).advice == ()
    assert Explained("k", 255, 0, 0, loads[1:]).advice == ()


def test_lines_of_a_text_are_told_as_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble.elf, "resources", lambda code, symbol: (40, 0, len(symbol)))
    monkeypatch.setattr(assemble, "line_of_text", lambda source: (10, "app.py"))
    log = "<kernel text>(3): remark: TMA Load\nother.cuh(5): remark: Global-memory Load\nno remark\n"
    compiled: Any = SimpleNamespace(code=b"", lowered={"k<int>": "_Z1k"}, log=log)
    found = assemble.explained(compiled, "k<int>", Source("", "<kernel text>"))
    assert found[:4] == ("k<int>", 40, 0, 4)
    assert found.remarks == (Remark("app.py", 13, "TMA Load"), Remark("other.cuh", 5, "Global-memory Load"))
    bare = assemble.explained(compiled, "k<int>")
    assert bare.remarks == (Remark("<kernel text>", 3, "TMA Load"), Remark("other.cuh", 5, "Global-memory Load"))


SPEC: Any = SimpleNamespace(
    title="k<int>",
    arch="sm_90",
    source=SimpleNamespace(text="text"),
    name_expression="k<int>",
    requested=[("k<int>", "")],
)


def test_an_assembler_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def operation(*shapes: tuple[int, ...]) -> Operation:
        return Operation("negf", (), tuple(Tile(shape, "f32") for shape in shapes), (), {}, {}, (), None)

    function = Function("k", (), {}, [operation((64, 64), (8,)), operation((128, 32), (4, 4, 256))], 0)
    module = TileModule((13, 5))
    module.functions["k"] = function
    monkeypatch.setattr(tile_bytecode, "read", lambda code: module)
    monkeypatch.setattr(assemble, "PATIENCE", 0.05)
    own: Any = SimpleNamespace(code=b"")
    with pytest.raises(ck.CompileError, match=r"k<int>: the tile assembler did not end in 0.05 s; .*,") as told:
        assemble._run(SPEC, own, [sys.executable, "-c", "import time; time.sleep(60)"])
    assert told.value.source == "text"
    monkeypatch.setattr(assemble, "PATIENCE", 60)
    assert assemble._run(SPEC, own, [sys.executable, "-c", "print(1); raise SystemExit(3)"]) == (3, "1\n")


def test_what_an_assembler_that_fails_says() -> None:
    short = assemble._failure(SPEC, "\nno\n")
    assert str(short).splitlines()[:2] == ["the tile assembler cannot make k<int> for sm_90", "no"]
    assert "hint: it says no more" in str(short)
    long = assemble._failure(SPEC, "one\n\n two\n")
    assert str(long).splitlines()[1:] == ["one", " two"]
    assert (long.log, long.source, long.template_arguments) == ("one\n\n two\n", "text", "k<int>")


def test_spills_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for spills, is_said in ((assemble._LITTLE, False), (assemble._LITTLE + 1, True)):
        monkeypatch.setattr(
            assemble, "explained", lambda code, name, spills=spills: SimpleNamespace(spill_bytes=spills)
        )
        compiled: Any = None
        if is_said:
            with pytest.warns(ck.errors.CompileWarning, match=f"k<int> for sm_90 has {spills} bytes of registers"):
                assemble._warn_of_spills(SPEC, compiled)
        else:
            assemble._warn_of_spills(SPEC, compiled)


@pytest.mark.parametrize(("asked", "cores", "wanted"), [(3, 8, 3), (None, 8, 8), (None, None, 1)])
def test_tile_kernels_are_assembled_side_by_side(
    asked: int | None, cores: int | None, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[int] = []
    made: list[Any] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, count: int) -> None:
            pools.append(count)
            super().__init__(count)

    class OfTests:
        def peek(self, request: Any) -> str:
            return "there"

    cache = OfTests()
    monkeypatch.setattr(prewarm, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(prewarm.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(prewarm, "cache_at", lambda where: cache)
    monkeypatch.setattr(prewarm, "bundled_code_of", lambda each: None)
    monkeypatch.setattr(prewarm, "first_request", lambda each: SimpleNamespace(key=id(each), specialization=each))
    monkeypatch.setattr(prewarm, "as_linked", lambda each: None)
    monkeypatch.setattr(prewarm, "compiled_of", made.append)
    given: list[Any] = [
        SimpleNamespace(source=SimpleNamespace(code=None), options=SimpleNamespace(cache=None), is_tile=tile, target=to)
        for tile, to in ((True, "cubin"), (False, "cubin"), (True, "tileir"))
    ]
    prewarm.compile_all(given, asked)
    assert (pools, made) == ([wanted], given[:1])


def test_namespaces_that_no_header_may_declare_any_more() -> None:
    """Those of CUDA and of C++ are declared by headers; others that are used as a whole are made, empty."""
    used = ("std", "cuda", "cuda::std", "nvcuda::wmma", "own", "mine::inner")
    text = "".join(f"using namespace {name};\n" for name in used)
    found = device_part(Source(f"{text}__global__ void k(float* x) {{ x[0] = 1; }}\n", "a.cu"), ()).text
    for name in ("std", "cuda", "nvcuda"):
        assert f"namespace {name} {{" not in found
    assert "namespace own { }" in found
    assert "namespace mine { namespace inner { }}" in found


def test_options_as_they_are_given() -> None:
    def options(**given: Any) -> CompileOptions:
        return CompileOptions(**given)

    assert options(defines="A").defines == (("A", "1"),)
    assert options(defines=["A", ("B", 2), ("C", True)]).defines == (("A", "1"), ("B", "2"), ("C", "1"))
    assert options(defines={"A": False}).defines == (("A", "0"),)
    assert options(include_paths="folder").include_paths == ("folder",)
    assert options(include_paths=[Path("a"), "b"]).include_paths == ("a", "b")
    text, code = options(link="int f() { return 1; }").link[0], b"code"
    assert isinstance(text, Source)
    assert text.name == "<linked text>"
    assert options(link=["lib.cu", Path("lib.o"), code]).link == (Path("lib.cu"), Path("lib.o"), code)
    kernel = ck.Kernel("__global__ void f() {}")
    assert options(link=kernel).link == (kernel.source,)
    assert options(link=SimpleNamespace(code=b"abc")).link == (b"abc",)
    with pytest.raises(ck.ArgumentError, match=r"link takes CUDA C\+\+ text, files, kernels and compiled cod"):
        options(link=[3])
    with pytest.raises(ck.ArgumentError, match="CompileOptions: extra is a mapping, or pairs of a name and a value"):
        options(extra=["abc"])
    with pytest.raises(ck.ArgumentError, match=r"extra field split is a number, a text, or several, got \{\}"):
        options(extra={"split": [{}]})
    for name in ("arch", "name"):  # the key has them from elsewhere
        with pytest.raises(ck.ArgumentError, match=f"CompileOptions: extra cannot set {name}; "):
            options(extra={name: "sm_80"})
    for wrong in ("", "a\0b"):
        with pytest.raises(ck.ArgumentError, match="CompileOptions: cache"):
            options(cache=wrong)
    with pytest.raises(ck.ArgumentError, match="cannot be used: "):
        options(cache="~no_such_user_here/folder")
    with pytest.raises(ck.ArgumentError, match="max_registers"):
        options(max_registers=0)
    assert options(max_registers=1).max_registers == 1
    with pytest.raises(ck.TemplateError, match="unknown compile option fast, slow; the options are "):
        options().replace(slow=1, fast=2)
    linked = [
        options(rdc=True),
        options(lto=True),
        options(link="a.o"),
        options(extra={"relocatable_device_code": True}),
    ]
    assert [each.relocatable for each in linked] == [True] * 4
    assert not options(extra={"relocatable_device_code": False}).relocatable
    assert not options().relocatable


def test_template_arguments_as_they_are_given() -> None:
    kernel = ck.Kernel("template <template <class> class C, typename T, int N, int... M> __global__ void f(T* x) {}")
    with pytest.raises(ck.TemplateError, match="f: template argument C is a template; give its name as a stri"):
        kernel[3].specialization(None, arch="sm_90")
    for wrong in (3, 2.5, np.float32(1), True):
        with pytest.raises(ck.TemplateError, match="f: template argument T is a type; give a dtype such as nu"):
            kernel["vec", wrong].specialization(None, arch="sm_90")
    for unknown in (None, {1: 2}, object()):
        with pytest.raises(ck.TemplateError):
            kernel["vec", unknown].specialization(None, arch="sm_90")
    with pytest.raises(ck.TemplateError, match="f: template argument N is a value of type int; give an int, a"):
        kernel["vec", "float", 2.5].specialization(None, arch="sm_90")
    with pytest.raises(ck.TemplateError, match="f: template argument N is an empty string"):
        kernel["vec", "float", " "].specialization(None, arch="sm_90")
    assert repr(kernel["vec", np.float32, True, 1, 2]).startswith("<cudakit.Kernel f<vec, float, true, ")
    keys = [hashable(item) for item in (1, True, 1.0, "1", slice("N", 1), {"N": 1}, [1], (1,))]
    assert len(set(keys)) == len(keys)
    assert hashable([1, 2]) == hashable([1, 2])


def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, size in (
        ("1", 1),
        ("3K", 3 << 10),
        ("500m", 500 << 20),
        (" 2 G ", 2 << 30),
        ("", 1 << 30),
        (None, 1 << 30),
    ):
        assert settings._cache_bytes(text) == size
    for wrong in ("0", "-1", "1T", "x", "1.5G", "0K"):
        with pytest.raises(ck.CudakitError, match=f"CUDAKIT_CACHE_BYTES='{wrong}' is not a size"):
            settings._cache_bytes(wrong)
    assert settings._cache_folder(str(tmp_path)) == tmp_path
    assert settings._cache_folder(" ") is None
    assert settings._cache_folder("here") == Path("here").absolute()
    with pytest.raises(ck.CudakitError, match="CUDAKIT_CACHE_DIR='~no_such_user_here/x' cannot be used: "):
        settings._cache_folder("~no_such_user_here/x")
    for text, is_quiet in (("", False), ("0", False), (" 1", True), ("yes", True)):
        monkeypatch.setenv("CUDAKIT_QUIET", text)
        assert settings.quiet() == is_quiet
    monkeypatch.setenv("CUDAKIT_MACHINE", " numpy ")
    assert settings.machine() == "numpy"
    monkeypatch.delenv("CUDAKIT_MACHINE")
    assert settings.machine() == "auto"
