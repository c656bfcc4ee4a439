"""Programs run in this process: what they get, what is there afterwards, and proofs of their kernels."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cudakit as ck
from cudakit import cli, places
from cudakit.adapters import program
from cudakit.adapters.program_proofs import Launches
from cudakit.adapters.stand_ins import StandIns

pytestmark = pytest.mark.emulator


def written(folder: Path, text: str) -> Path:
    path = folder / "app.py"
    path.write_text(text)
    return path


# ── run ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_run_returns_the_names_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former = sys.modules["__main__"], list(sys.path), list(sys.argv), list(sys.meta_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("number = 7\n")
    (tmp_path / "queue.py").write_text("own = True\n")
    import queue

    text = "import sys, cupy, beside, queue, pycuda\nfrom beside import number\n"
    text += "seen = [*sys.argv], __name__, cupy.ones(2)\n"
    text += "first = cupy\ndel sys.modules['cupy']\nimport cupy\nis_same = cupy is first\n"
    names = ck.adapters.run(written(tmp_path, text), "one", "two")
    monkeypatch.delitem(sys.modules, "beside")
    assert names["seen"][:2] == ([str(tmp_path / "app.py"), "one", "two"], "__main__")
    assert names["seen"][2].tolist() == [1, 1]
    assert (names["number"], names["queue"].own, names["is_same"]) == (7, True, True)
    assert names["pycuda"] is ck.adapters.pycuda
    assert (sys.modules["__main__"], sys.path, sys.argv, sys.meta_path) == former
    assert sys.modules["queue"] is queue
    assert "pycuda" not in sys.modules
    with pytest.raises(SystemExit, match="3"):
        ck.adapters.run(written(tmp_path, "raise SystemExit(3)"))
    with pytest.raises(ck.CudakitError, match="--pycuda=theirs needs a GPU"):
        ck.adapters.run(written(tmp_path, ""), pycuda="theirs")
    assert (sys.modules["__main__"], sys.path, sys.argv, sys.meta_path) == former


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_old_names_of_cuda_core(tmp_path: Path) -> None:
    text = "import cuda.core.experimental as old\nfrom cuda.core.experimental import utils\nimport cuda.core as new\n"
    text += "same = old.Device is new.Device"
    with pytest.warns(FutureWarning, match=r"cuda.core.experimental is cuda.core now") as seen:
        names = ck.adapters.run(written(tmp_path, text))
    assert (Path(seen[0].filename).name, seen[0].lineno) == ("app.py", 1)
    assert names["same"]
    assert "cuda.core.experimental" not in sys.modules


def test_a_program_that_makes_warnings_errors_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import warnings\nwarnings.simplefilter('error')\nimport cupy\nimport cupyx\nx = cupy.ones(2).tolist()"
    places.say_emulated.cache_clear()
    with warnings.catch_warnings():
        assert ck.adapters.run(written(tmp_path, text))["x"] == [1, 1]
    assert capsys.readouterr().err.count(f"{tmp_path}/app.py:3: EmulatorWarning: there is no") == 1
    places.say_emulated.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ck.EmulatorWarning):
            ck.stream()


def test_a_finder_that_the_program_removes() -> None:
    with StandIns({}) as finder:
        sys.meta_path.remove(finder)
    assert finder not in sys.meta_path


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize("how", ["import pycuda.autoinit as made", "from pycuda import autoinit as made"])
@pytest.mark.parametrize("module", ["autoinit", "autoprimaryctx"])
def test_each_program_has_a_context_of_its_own(tmp_path: Path, how: str, module: str) -> None:
    how = how.replace("autoinit", module)
    text = (
        f"{how}\nfrom pycuda.driver import Context\nis_current = Context.get_current() is made.context\nContext.pop()"
    )
    first, second = (ck.adapters.run(written(tmp_path, text)) for _ in range(2))
    assert first["is_current"]
    assert second["is_current"]
    assert first["made"] is not second["made"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("x[0] = n", "y = 1"), 'identifier "y" is undefined'),
        (("x[0] = n", "x[4] = n"), "4 bytes at"),
        (("numpy.int32(3)", "3.0"), "takes a NumPy scalar"),
    ],
)
def test_a_traceback_ends_in_the_program(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    text = """
import numpy, pycuda.autoinit
from pycuda import compiler, driver

def f(number):
    module = compiler.SourceModule("__global__ void f(float* x, int n) { x[0] = n; }")
    module.get_function("f")(driver.InOut(numpy.zeros(4, "f4")), number, block=(1, 1, 1))

f(numpy.int32(3))
"""
    wrong = program.Program(written(tmp_path, text.replace(*change)))
    (fault,) = program.examine(wrong).faults
    assert words in fault.text
    assert {frame.filename for frame in traceback.extract_tb(wrong.trace)} == {wrong.file}
    assert wrong.raised is not None
    assert "direct cause" not in "".join(traceback.format_exception(wrong.raised))


def test_a_name_that_a_stand_in_lacks(tmp_path: Path) -> None:
    """Python drops the words of an AttributeError after ``from module import name``."""
    for line in ("import pycuda.gl", "from pycuda import gl"):
        wrong = program.Program(written(tmp_path, line))
        with pytest.raises(ModuleNotFoundError):
            program.examine(wrong)
        assert wrong.trace is not None
        assert wrong.trace.tb_next is None, "no frames of cudakit"
        with pytest.raises(ModuleNotFoundError, match=r"pycuda.gl is not in cudakit's PyCUDA: cuda.core"):
            ck.adapters.run(written(tmp_path, line))
    for line in ("import cupy\ncupy.nothing_here", "from cupy import nothing_here", "import cupy.nothing_here"):
        with pytest.raises((AttributeError, ImportError), match="nothing_here is not here: without a GPU"):
            ck.adapters.run(written(tmp_path, line))


def test_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """There PyCUDA alone is replaced, if it is not installed."""

    def packages(pycuda: Any, is_installed: bool) -> set[str]:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: is_installed or None)
        return {name for name in program.stand_ins(True, pycuda)._packages if not name.startswith("cuda")}

    for pycuda, is_installed, expected in (
        *(("ours", True, {"pycuda"}), ("theirs", False, set()), (None, True, set()), (None, False, {"pycuda"})),
    ):
        assert packages(pycuda, is_installed) == expected
    assert {"cupy", "pycuda"} <= set(program.stand_ins(False)._packages)


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [
        *((None, 1, True), ("", 1, False), ("-1", 1, False), ("0,1", 1, True)),
        *(("1", 1, False), ("GPU-3f", 2, True), (None, 0, False)),
    ],
)
def test_a_gpu_is_seen_without_a_start_of_cuda(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int, expected: bool
) -> None:
    """A process that has started CUDA must not fork, and programs do."""
    nvml: Any = ModuleType("nvml")
    nvml.init_v2, nvml.device_get_count_v2 = lambda: None, lambda: count
    import cuda.bindings

    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", nvml)
    monkeypatch.setattr(cuda.bindings, "nvml", nvml, raising=False)
    monkeypatch.setattr(program, "has_gpu", lambda: pytest.fail("CUDA was started"))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert program.is_gpu_here() == expected
    del nvml.init_v2
    monkeypatch.setattr(program, "has_gpu", lambda: "asked")
    assert program.is_gpu_here() == "asked"


def test_real_modules_that_programs_see_otherwise() -> None:
    """cudakit and other libraries keep the real cuda.core."""
    import cuda.core

    class Own(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"cuda.core.{name} is not here" if not name.startswith("__") else name)

    own, late = Own("cuda.core"), ModuleType("cuda.core.late")
    own.Device = "own"  # type: ignore[attr-defined]
    modules: dict[str, ModuleType] = {"cuda.core": own, "cuda.core.cu13": own, "cuda.core.cu12": own}
    real = cuda.core.Device
    with StandIns({"cuda.core": (modules | {"cuda.core.late": late}).get}, shared=["cuda.core"]):
        from cuda.core import Device

        assert Device == cuda.core.Device == "own"
        assert importlib_import("cuda.core.late") is cuda.core.late is late
        with pytest.raises(ImportError, match="Program is not here"):
            from cuda.core import Program  # noqa: F401
        with pytest.raises(AttributeError, match="Program is not here"):
            cuda.core.Program
        assert not hasattr(cuda.core, "Program")
        assert ck.Kernel("__global__ void f(int* x) { x[0] = 1; }").compile(arch="sm_90").code
    assert cuda.core.Device is real
    assert not hasattr(cuda.core, "late")
    assert "cuda.core.late" not in sys.modules


def importlib_import(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]


# ── proofs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

OF_KERNELS = '''
import sys
import numpy as np
import cupy as cp
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule
import cudakit as ck

module = SourceModule("""
__global__ void twice(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
__global__ void wrong(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i <= n) x[i] *= 2; }
""")
x = np.ones(64, np.float32)
for name, n in (("twice", 64), ("wrong", 63)):
    module.get_function(name)(drv.InOut(x), np.int32(n), block=(64, 1, 1), grid=(1, 1))
one = cp.RawKernel("extern \\"C\\" __global__ void one(float* y) { y[threadIdx.x] = 1; }", "one")
one((1,), (32,), (cp.zeros(32, cp.float32),))
plus = ck.Kernel("""
// prove: n <= len(y) and n <= 1 << 30
template <typename T> __global__ void plus(T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 2; }""")
stream = ck.stream()
plus(stream, ck.cover(10), ck.to_device(np.ones(10), stream), 10)
ck.ops.sum(ck.to_device(np.ones(10), stream))
ck.elementwise("T x", "T y", "y = x", "copied")(ck.to_device(np.ones(10), stream))
print("the program's own", sys.argv[1:])
sys.exit(4)
'''


def test_kernels_of_a_program_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("z3")
    monkeypatch.chdir(tmp_path)
    written(tmp_path, OF_KERNELS)
    assert cli.main(["prove", "app.py", "--", "x"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the program's own ['x']"
    verdicts = dict(line.split(": ")[:2] for line in lines if not line.startswith((" ", "-", "the ")))
    assert verdicts == {"twice": "proved", "wrong": "refuted", "one": "proved", "plus<double>": "proved"}
    taken = [line.partition("launches: ")[2] for line in lines if "taken from its launches" in line]
    launch = "block = (64, 1, 1), grid = (1, 1, 1)"
    assert taken == [
        *[f"0 <= n <= 1073741824, n <= len(x), {launch}"] * 2,
        *(
            "len(y) >= 32, block = (32, 1, 1), grid = (1, 1, 1)",
            "gridDim.x <= 1048576, blockDim.y == 1, blockDim.z == 1",
        ),
    ]
    assert cli.main(["prove", "app.py", "--kernel", "nothing"]) == 1
    assert "app.py launches no kernel nothing on the emulator: there is nothing to prove" in capsys.readouterr().err


def test_premises_hold_in_all_launches() -> None:
    def premises(*facts: dict[str, int]) -> list[str]:
        return Launches(None, facts=[*facts]).statements()  # type: ignore[arg-type]

    first = {"n": 4, "w": 2, "len(x)": 8, "len(y)": 3, "minus": -1}
    sizes = [f"0 <= {name} <= {1 << 30}" for name in "nw"]
    assert premises(first) == [*sizes, "n <= len(x)", "w <= len(x)", "n * w <= len(x)", "w <= len(y)"]
    second = first | {"w": 9, "len(y)": 5}
    assert premises(first, second) == [*sizes, "n <= len(x)", "len(y) >= 3"]
    assert premises(first, {"len(y)": 2}) == ["len(y) >= 2"]


def test_proofs_of_a_program_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "raise __import__('cudakit').ArgumentError('wrong')")
    assert cli.main(["prove", "app.py"]) == 1
    errors = capsys.readouterr().err
    assert "cudakit: app.py ended early: wrong\n" in errors
    assert "launches no kernel of its own" in errors
    written(tmp_path, "open('no such file')")
    hook = sys.excepthook
    with pytest.raises(FileNotFoundError):
        cli.main(["prove", "app.py"])
    assert sys.excepthook is not hook, "Python reports what a program raises"
    monkeypatch.setattr(sys, "excepthook", hook)


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_pycuda_in_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = OF_KERNELS.partition("one = cp")[0].replace("if (i <= n) x[i] *= 2", "x[i + n] = 2")
    written(tmp_path, text)
    assert cli.main(["check", "app.py", "--pycuda=ours"]) == 3
    out = capsys.readouterr().out
    assert "app.py:12): 4 bytes at" in out
    assert str(tmp_path) not in out
    assert cli.main(["inspect", "-m", "app"]) == 3
    assert "__global__ void twice(float* x, int n)" in capsys.readouterr().out
    written(tmp_path, text.replace("x[i + n] = 2", "x[i] = 2"))
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert cli.main(["debug", "app.py:12"]) == 0
    assert "->   12 __global__ void wrong(float* x, int n)" in capsys.readouterr().out
    assert cli.main(["check", "app.py", "--pycuda=theirs"]) == 1
    assert "--pycuda=theirs needs a GPU" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["check", "app.py", "--pycuda=mine"])
    assert "unknown whose 'mine'; expected one of ours, theirs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "library"),
    [
        (OSError("libcublas.so.12: cannot open shared object file"), "libcublas.so.12"),
        (OSError("cublas library not found"), "cublas"),
        (ImportError("libcufft.so.11: cannot open shared object file"), "libcufft.so.11"),
        (OSError("libcurl.so.4: cannot open shared object file"), ""),
        (OSError("[Errno 2] No such file or directory: 'custom.txt'"), ""),
        (ValueError("cublas library not found"), ""),
        (ImportError("No module named 'pycuda.curandom'"), ""),
    ],
)
def test_a_library_for_gpus_is_named(tmp_path: Path, error: Exception, library: str) -> None:
    path = written(tmp_path, f"\nraise {type(error).__name__}({str(error)!r})")
    if not library:
        with pytest.raises(type(error)):
            program.examine(program.Program(path))
        return
    (fault,) = program.examine(program.Program(path)).faults
    assert f"the program loads {library}, a library for GPUs" in fault.text
    assert (fault.file, fault.line) == (str(path), 2)
