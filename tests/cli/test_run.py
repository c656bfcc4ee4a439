"""``cudakit run`` beside Python: the same programs, with the same output, errors and exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATE = '''
"""A program's docstring."""
import dataclasses, os, pickle, sys, threading, warnings
import beside
from beside import queue

@dataclasses.dataclass
class Point:
    x: int

def later():
    import late
    print("thread", late.name)

number: int = 3
if __name__ == "__main__":
    main = sys.modules["__main__"]
    print(__name__, __doc__, __file__, __spec__ and __spec__.name, __package__, sys.argv, sys.path[0])
    print(globals().get("__annotations__"))  # there are none in Python 3.14
    print(main.__dict__ is globals(), type(__loader__).__name__, __builtins__.__name__, sys.stdin.read())
    print(pickle.loads(pickle.dumps(Point(3))), beside.name, queue.name, os.getcwd())
    warnings.warn("old", DeprecationWarning)
    os.chdir("/")
    threading.Thread(target=later).start()
    import atexit
    atexit.register(lambda: print("at exit", __import__("late").name))
    for name in [name for name in sys.modules if name.startswith(("numpy", "beside"))]:
        del sys.modules[name]
    sys.exit(300)
'''
#: A program with import hooks of its own, which removes all others but Python's.
HOOKS = """
import sys, importlib.abc, importlib.machinery as machinery
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return machinery.ModuleSpec(name, self) if name == "virtual" else None
    def exec_module(self, module): module.number = 7
own = Finder()
sys.meta_path[:] = [own, machinery.BuiltinImporter, machinery.FrozenImporter, machinery.PathFinder]
import virtual, colorsys
print(virtual.number, colorsys.__name__)
"""
THREADS = """
import atexit, sys, threading
class Last:
    def __call__(self): 1 / 0
    def __repr__(self): return "last"
atexit.register(Last())
def fail(): raise ValueError("in a thread")
for work in (fail, lambda: sys.exit(3)):
    thread = threading.Thread(target=work, name="T")
    thread.start()
    thread.join()
class Freed:
    def __del__(self): print("freed")
freed = Freed()
sys.exit(4)
"""
RAISED = """
class Own(Exception): pass
def inner(): raise Own("own")
def outer():
    try: inner()
    except Own as error: raise OSError("outer") from error
outer()
"""
#: Programs that end in different ways.
ENDS = {
    "text": "import sys; sys.exit('said')",
    "none": "import sys; sys.exit()",
    "negative": "import sys; sys.exit(-1)",
    "raised": RAISED,
    "syntax": "if True print(3)",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', *a[:2])\nraise KeyError(3)",
    "_exit": "import os; print('flushed', flush=True); os._exit(7)",
    "interrupt": "import atexit\natexit.register(print, 'end')\nraise KeyboardInterrupt",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "main": "import __main__\nprint(__main__.__file__)\ndel __main__\nprint(sorted(globals()))",
    "hooks": HOOKS,
    "threads": THREADS,
    "encoding": "# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))",
}
QUICK = ("raised", "interrupt")


def run(folder: Path, *words: str, typed: str = "") -> tuple[int, str, str]:
    """Python with these words: status, output, errors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # an empty entry is the folder
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, input=typed, env=environment, check=False
    )
    return done.returncode, done.stdout, done.stderr


def cudakit(folder: Path, *words: str, typed: str = "") -> tuple[int, str, str]:
    return run(folder, "-m", "cudakit", "run", *words, typed=typed)


def written(folder: Path) -> Path:
    """A folder with the program, and with modules beside it."""
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(STATE)
    (folder / "beside.py").write_text("import queue\nname = __name__\n")
    (folder / "queue.py").write_text("name = 'own queue'\n")  # hides Python's, which cudakit has imported
    (folder / "json").mkdir()  # hides nothing
    (folder / "late.py").write_text("import json.decoder\nname = 'late'\n")
    return folder


def test_a_program_sees_what_it_sees_in_python(tmp_path: Path) -> None:
    """By a relative path from another folder."""
    written(tmp_path / "pack")
    words = ("pack/app.py", "--html", "-m", "--", "last")
    expected = run(tmp_path, *words, typed="typed")
    assert cudakit(tmp_path, *words, typed="typed") == expected
    assert expected[0] == 300 % 256
    assert "at exit late" in expected[1]
    assert "DeprecationWarning: old" in expected[2]


@pytest.mark.slow
def test_modules_folders_archives_links_and_texts(tmp_path: Path) -> None:
    pack = written(tmp_path / "pack")
    for name in ("queue.py", "beside.py", "late.py"):
        (tmp_path / name).write_text((pack / name).read_text())
    (pack / "__main__.py").write_text(STATE)
    (tmp_path / "link.py").symlink_to(pack / "app.py")
    for words in (
        *(("-m", "pack.app", "-c"), ("-m", "pack"), ("pack", "x"), ("link.py",), ("-m", "json.tool", "no.json")),
        *(("-c", "import sys; print(sys.argv, repr(sys.path[0]), __name__)", "-m", "x"), ("./pack/../pack/app.py",)),
    ):
        expected = run(tmp_path, *words)
        assert cudakit(tmp_path, *words) == expected, words
    assert cudakit(tmp_path, "-m", "pack.missing") == (1, "", "cudakit: there is no module pack.missing\n")
    assert cudakit(tmp_path, "missing.py") == (6, "", "cudakit: there is no program missing.py\n")
    assert cudakit(tmp_path)[0] == 2


@pytest.mark.slow
def test_words_and_folders_with_spaces_and_a_program_by_standard_input(tmp_path: Path) -> None:
    """A file beside the program has the name of a package that cudakit imports."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    text = "import sys\nprint(sys.argv, repr(sys.path[0]), __name__, sys.stdin.read())\n1 / 0\n"
    (folder / "cuda.py").write_text("raise SystemExit('cuda.py was imported')")
    (folder / "my app.py").write_text(text)
    for words in (("-", "a b", ""), ("my app.py", "a b", '"c"', "é", "--help")):
        expected = run(folder, *words, typed=text)
        assert expected[0] == 1
        assert cudakit(folder, *words, typed=text) == expected, words


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ENDS]
)
def test_a_program_ends_as_in_python(tmp_path: Path, name: str) -> None:
    encoding = "latin-1" if name == "encoding" else "utf-8"
    (tmp_path / "app.py").write_text(ENDS[name], encoding=encoding)
    expected = run(tmp_path, "app.py")
    assert cudakit(tmp_path, "app.py") == expected
    assert (expected[0] == -signal.SIGINT) == (name == "interrupt")


@pytest.mark.slow
def test_a_reader_that_leaves(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("for number in range(100000): print(number)")
    got = []
    for words in (("app.py",), ("-m", "cudakit", "run", "app.py")):
        command = f"{sys.executable} {' '.join(words)} | head -1; echo ${{PIPESTATUS[0]}}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
        )
        got.append((done.stdout, done.stderr))
    assert got[0] == got[1]


OF_PYCUDA = """
import multiprocessing, subprocess, sys
import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

def work(n):
    kernel = SourceModule("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }").get_function("twice")
    x = np.arange(n, dtype=np.float32)
    kernel(cuda.InOut(x), block=(n, 1, 1), grid=(1, 1))
    return x.tolist()

if __name__ == "__main__":
    print(work(3))
    for method in sys.argv[1:]:
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(work, [4]), flush=True)
    if len(sys.argv) > 2:
        subprocess.run([sys.executable, "-m", "cudakit", "run", __file__], check=True)
"""


@pytest.mark.slow
def test_child_processes_have_the_same_modules(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """On a GPU not by fork: this program has used it before."""
    (tmp_path / "app.py").write_text(OF_PYCUDA)
    on_gpu = request.config.getoption("--gpu")
    methods = ("spawn", "forkserver") if on_gpu else ("spawn", "forkserver", "fork")
    status, output, errors = cudakit(tmp_path, "app.py", *methods)
    lines = [f"{method} [[0.0, 2.0, 4.0, 6.0]]" for method in methods]
    assert (status, output.splitlines()) == (0, ["[0.0, 2.0, 4.0]", *lines, "[0.0, 2.0, 4.0]"]), errors
    assert errors.count("EmulatorWarning") == (0 if on_gpu else 2), "the parent's, and that of the nested run"
    assert on_gpu or f"{tmp_path}/app.py:" in errors


@pytest.mark.slow
@pytest.mark.emulator
def test_a_call_that_needs_a_card(tmp_path: Path) -> None:
    text = "import sys\ndef call():\n    from cuda.bindings import nvml\n    nvml.init_v2()\ncall()\n"
    (tmp_path / "app.py").write_text(text)
    status, output, errors = cudakit(tmp_path, "app.py")
    assert (status, output) == (1, "")
    assert errors.startswith('Traceback (most recent call last):\n  File "')
    assert errors.splitlines()[1].endswith('app.py", line 5, in <module>')
    assert "the program calls the CUDA driver itself, by cuda.bindings.nvml.init_v2" in errors.splitlines()[-1]
