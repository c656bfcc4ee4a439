"""Prewarming: workers compile, and run nothing of the folder that they happen to be started in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cudakit as ck

PROGRAM = """
import cudakit as ck, numpy as np
from cudakit.jit.cache.cache import default_cache
text = '#include "v.h"\\ntemplate <class T> __global__ void k(T* x) { *x = V; }'
kernel = ck.Kernel(text, options=ck.CompileOptions(include_paths=[INCLUDE]))
kernel.prepare(np.float32, np.float64, arch="sm_90")
info = default_cache().info()
kernel[np.float32].compile(arch="sm_90")
print(info.entries, default_cache().info().misses)
"""


def test_nothing_of_the_working_directory_runs_and_what_was_read_is_known(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "app" / "v.h").write_text("#define V 1\n")
    (tmp_path / "app" / "app.py").write_text(PROGRAM.replace("INCLUDE", repr(str(tmp_path / "app"))))
    planted = "import os\nopen(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'ran'), 'a').write(__name__)\n"
    for name in ("pickle", "os", "json", "sitecustomize", "usercustomize", "numpy", "cudakit", "keys", "cuda"):
        (here / f"{name}.py").write_text(planted)
    (here / "v.h").write_text("#define V 2\n")
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "app" / "app.py")], cwd=here, env=environment, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (["2", "0"], "")
    assert not (here / "ran").exists()


def test_a_package_that_is_imported_from_the_working_directory_works(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    # What the package needs may be on the path too; the package itself is found in the working directory alone.
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != root]
    environment = {
        **os.environ,
        "CUDAKIT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(others),
    }
    (tmp_path / "v.h").write_text("#define V 1\n")
    program = PROGRAM.replace("INCLUDE", repr(str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["2", "0"], "")


@pytest.mark.slow
def test_what_workers_compile_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    kernel = ck.Kernel("template <class T> __global__ void prewarmed_and_logged(T* x) { *x = 1; }")
    with caplog.at_level("INFO", logger="cudakit"):
        kernel.prepare(np.float32, np.float64, arch="sm_90")
    told = sorted(message.rpartition("<")[2] for message in caplog.messages)
    assert [message.partition(" bytes")[0].rstrip("0123456789") for message in told] == [
        "double>: compiled in another process: cubin, ",
        "float>: compiled in another process: cubin, ",
    ]
