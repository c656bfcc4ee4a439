"""Programs that run where packages are absent."""

from __future__ import annotations

import os
import subprocess
import sys

#: The beginning of a program that finds no such packages.
_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
#: A kernel `twice` by hand, so that nothing is compiled.
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x)
{
    .reg .b32 %r<2>; .reg .f32 %f<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""
#: What is not installed on macOS by `pip install cudakit`, and filelock, which only a compile needs.
ON_MACOS = ("cuda", "cupy", "nvidia", "tree_sitter", "tree_sitter_cuda", "filelock")


def run(program: str, without: tuple[str, ...], **variables: str) -> str:
    """The output of a program that cannot import some packages, and finds no cached kernel."""
    program = _WITHOUT.format(packages=without) + program
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": "", **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
