"""What users get: the README's example and commands, and the templates. `test_release.py` looks at the wheel."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit.jit.source import headers

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def readme_example() -> str:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]


def test_readme_example_is_short_and_compiles() -> None:
    lines = [line for line in readme_example().splitlines() if line.strip()]
    assert len(lines) <= 15
    text = re.search(r'Kernel\("""\n(.*?)"""\)', readme_example(), re.DOTALL)
    assert text is not None
    assert ck.Kernel(text[1])["float"].compile(arch="sm_90").code


def test_readme_example_runs_as_it_stands(stream: Any) -> None:
    done = subprocess.run([sys.executable, "-c", readme_example()], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "[0. 2. 4. 6.]", done.stderr
    assert "# [0. 2. 4. 6.]" in readme_example()


def test_a_cached_first_use_loads_only_what_it_needs() -> None:
    program = """
import sys
at_start = set(sys.modules)  # a site's own start-up may import much
import cudakit as ck
text = "template <typename T> __global__ void scale(T* x, T by, size_t n) { if (n) x[0] *= by; }"
ck.Kernel(text).compile("f4", "f4", "u8", arch="sm_90")
print(*sorted(name.removeprefix("cudakit.") for name in sys.modules.keys() - at_start))
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    late = {
        *("jit.cache.prewarm", "jit.compile.assemble", "jit.compile.binary", "jit.compile.diagnostics"),
        *("jit.compile.portable", "jit.signature.reader", "kernel.globals"),
        *("jit.source.host_headers", "jit.source.preprocessor", "types.constants"),
    }
    assert all((ROOT / "cudakit" / f"{name.replace('.', '/')}.py").is_file() for name in late)
    libraries = {"cupy", "filelock", "importlib.metadata", "logging", "platformdirs", "subprocess", "zipfile"}
    assert {*late, *libraries, "tree_sitter"} & {*done.stdout.split()} == set()


def test_import_loads_no_other_module_of_cudakit() -> None:
    program = """
import __future__, importlib, sys, typing
before = set(sys.modules)
import cudakit
print(*sorted(set(sys.modules) - before))
cudakit.has_gpu
print(*sorted(name for name in sys.modules if name.startswith("cudakit.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported, of_one_name = (line.split() for line in done.stdout.splitlines())
    assert imported == ["cudakit"]
    assert {"cudakit.streams.devices", "cudakit.errors"} <= set(of_one_name)
    assert "cudakit.foreign_names" not in of_one_name
    assert len(of_one_name) < 8, of_one_name


def test_a_name_is_looked_up_once() -> None:
    program = """
import cudakit as ck
lazy = {name for name in ck.__all__ if name not in vars(ck)}
assert lazy == set(ck.__all__), set(ck.__all__) - lazy
first = {name: getattr(ck, name) for name in ck.__all__}
assert all(vars(ck)[name] is value for name, value in first.items())
from cudakit import *
assert all(globals()[name] is value for name, value in first.items())
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_loads_while_the_garbage_collector_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []

    def load(name: str) -> Any:
        states.append((name, gc.isenabled()))
        return import_module(name)

    monkeypatch.setattr(ck, "import_module", load)
    assert gc.isenabled()
    for name in ("errors", "show_config"):
        ck.__getattr__(name)
        assert gc.isenabled()
    assert states == [("cudakit.errors", False), ("cudakit.installation", False)]


def test_a_type_checker_sees_the_names_that_a_program_gets() -> None:
    (seen,) = (node for node in ast.parse(Path(ck.__file__).read_text()).body if isinstance(node, ast.If))
    imports = [node for node in seen.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: node.module for node in imports for alias in node.names}
    assert set(places) == set(ck.__all__)
    for name, module in places.items():
        expected = import_module(f"cudakit.{name}") if module == "cudakit" else getattr(import_module(module), name)
        assert getattr(ck, name) is expected


def test_lazy_names_are_the_functions_whatever_was_imported_before() -> None:
    program = """
import cudakit.jit.cache.prewarm, cudakit.profile.trace, cudakit as ck
from cudakit import trace
assert ck.trace is trace is cudakit.profile.trace.trace
assert {"trace", "__version__"} <= set(dir(ck)) and ck.__version__
assert not hasattr(ck, "nothing")
assert all(hasattr(ck, name) for name in ck.__all__) and {"TYPE_CHECKING", "import_module"}.isdisjoint(dir(ck))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_templates_are_found_and_named_when_missing() -> None:
    assert (headers.templates_folder() / "image.cuh").is_file()
    with pytest.raises(ck.TemplateError, match="image"):
        ck.Kernel.from_template("nothing/gray")
    with pytest.raises(ck.TemplateError, match="concept/name"):
        ck.Kernel.from_template("gray")
    with pytest.raises(ck.TemplateError, match="gray"):
        ck.Kernel.from_template("image/grey")
