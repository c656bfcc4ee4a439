"""The SPEC of what a program used: it builds a bundle with which the program runs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.bundles import spec
from cudakit.bundles.build import build
from cudakit.bundles.record import lacking, text_of
from cudakit.jit.bundle.used import Use, note, recording
from cudakit.types.arguments import Evidence

SCALE = """template <typename T>
__global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
STRUCT = np.dtype([("by", "f4"), ("n", "i4"), ("more", "f4", (2,))])


def used(folder: Path, stream: Any, xp: Any) -> Any:
    """Run kernels of a file, a string, the package and an expression; return what they compute."""
    scale = ck.Kernel.from_file(folder / "scale.cu")
    x, y = xp.ones(4, "f4"), xp.ones(4)
    for array in (x, y):
        scale(stream, ck.cover(4), array, 2.0, 4)
    first = ck.Kernel("template <typename T> __global__ void first(T p, float* x) { x[0] = p.by + p.more[1]; }")
    first(stream, ck.config(1, 1), np.array((2, 4, (1, 3)), STRUCT)[()], x)
    # A kernel that an earlier test has loaded is not recorded: no other test sums these dtypes.
    total = ck.ops.sum(xp.ones(4, "i1"), dtype="u2", stream=stream)
    double = ck.elementwise("T x", "T y", "y = x * 2", name="doubled")(y, stream=stream)
    stream.sync()
    return [float(total), x.tolist(), double.tolist()]


@pytest.mark.slow
def test_a_recorded_spec_is_of_all_that_was_used(tmp_path: Path, stream: Any, xp: Any) -> None:
    (tmp_path / "scale.cu").write_text(SCALE)
    with recording() as uses:
        expected = used(tmp_path, stream, xp)
    text, left = text_of(uses, tmp_path, [])
    assert left == []
    rows = tomllib.loads(text)["kernels"]
    assert rows[0] == {"file": "scale.cu", "name": "scale", "arguments": [{"T": "float"}, {"T": "double"}]}
    assert [next(iter(row)) for row in rows] == ["file", "text", "template", "text"]
    path = tmp_path / "kernels.toml"
    path.write_text(text)
    assert lacking(uses, path) == []
    path.write_text(text.replace(', {T = "double"}', ""))
    assert lacking(uses, path) == ['{file = "scale.cu", name = "scale", arguments = [{T = "double"}]}']
    path.write_text(text)
    build(path, tmp_path / "kernels.ckb")
    with ck.use_bundle(tmp_path / "kernels.ckb", compile="never"):
        assert used(tmp_path, stream, xp) == expected


PROGRAM = """
import sys
import cudakit as ck
stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.ones(4, sys.argv[1])
    ck.Kernel.from_file("scale.cu")(stream, ck.cover(4), x, 2.0, 4)
print(sys.argv)
sys.exit(int(sys.argv[2]))
"""


def test_uses_are_recorded_in_the_block_alone() -> None:
    with recording() as outer:
        note("first", ())
        with recording() as inner:
            note("second", ())
        note("third", ())
    note("fourth", ())
    assert [use.specialization for use in outer] == ["first", "second", "third"]
    assert [use.specialization for use in inner] == ["second"]


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "app.py").write_text(PROGRAM)

    def record(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-m", "cudakit", "record", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    ran = record("app.py", "--arch", "sm_80", "--arch", "sm_90", "--", "f4", "0")
    assert (ran.returncode, ran.stdout) == (0, "['app.py', 'f4', '0']\n")
    line = '{file = "scale.cu", name = "scale", arguments = [{T = "float"}]}'
    assert (tmp_path / "kernels.toml").read_text() == f'archs = ["sm_80", "sm_90"]\nkernels = [\n  {line},\n]\n'
    assert "has all" in record("--check", "kernels.toml", "--", "python", "app.py", "f4", "0").stderr
    ran = record("--check", "kernels.toml", "app.py", "--", "f8", "0")
    assert ran.returncode == 1
    assert f"kernels.toml lacks  {line.replace('float', 'double')}" in ran.stderr
    assert record("-o", "failed.toml", "app.py", "--", "f4", "7").returncode == 7
    assert line in (tmp_path / "failed.toml").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels = []", "at least one"),
        ("archs = 3\nkernels = [{}]", r"kernel 1: archs are names such as \[\"sm_80\", \"sm_90a\"\], got 3"),
        ("kernel = []", "has kernel; the fields are archs, ptx, options, kernels, tuned"),
        ("kernels = [{}]", "is for no arch"),
        ('archs = ["sm_90"]\nkernels = [3]', "is a table"),
        ('archs = ["sm_90"]\nkernels = [{file = "a.cu", text = "b"}]', "has one of file, template, text"),
        ('archs = ["sm_90"]\nkernels = [{file = "absent.cu"}]', "kernel 1: cannot read the CUDA source"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", nam = "k"}]', "has nam; the fields are file"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", name = "k"}]', "no kernel 'k'"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", name = 3}]', "name is one of scale, got 3"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", arguments = "float"}]', "arguments are a list"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", product = {T = "float"}}]', "product has a list"),
        ('archs = ["sm_90"]\nkernels = [{file = "s.cu", arguments = [{U = "float"}]}]', "no template parameter"),
        ('archs = ["sm_90"]\noptions = {fast = true}\nkernels = [{file = "s.cu"}]', "options has fast"),
        ('tuned = 3\narchs = ["sm_90"]\nkernels = [{file = "s.cu", arguments = ["int"]}]', "tuned are files"),
        ("kernels = [", "cannot be read"),
    ],
)
def test_a_wrong_spec_says_where(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.cu").write_text(SCALE)
    (tmp_path / "kernels.toml").write_text(text)
    with pytest.raises(ck.CudakitError, match=message):
        spec.read(tmp_path / "kernels.toml")


def test_a_spec_in_python_takes_kernels_too(tmp_path: Path) -> None:
    (tmp_path / "s.cu").write_text(SCALE)
    (tmp_path / "kernels.py").write_text(
        "from pathlib import Path\nimport cudakit as ck\narchs = ['sm_90a', 'sm_80']\n"
        "scale = ck.Kernel.from_file(Path(__file__).parent / 's.cu', bundle='absent')\n"
        "kernels = [scale['float'], {'file': 's.cu', 'product': {'T': ['int', 'double']}, 'ptx': []}]\n"
    )
    instances, _ = spec.read(tmp_path / "kernels.py")
    assert [(i.archs, i.ptx) for i in instances] == [
        (("sm_90a", "sm_80"), ("sm_80",)),
        *[(("sm_90a", "sm_80"), ())] * 2,
    ]
    made = [instance.kernel.specialization(arch="sm_90") for instance in instances]
    assert [m.name_expression for m in made] == ["scale<float>", "scale<int>", "scale<double>"]
    assert {m.source.name for m in made} == {"/dev/null/s.cu"}
    assert {m.options.bundle for m in made} == {None}


def test_a_row_makes_the_kernel_again(tmp_path: Path) -> None:
    struct = np.dtype(
        {"names": ["by", "n", "more"], "formats": ["f4", "i4", ("f4", (2, 3))], "offsets": [4, 0, 16], "itemsize": 48}
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "scale.cu").write_text(SCALE)
    options = ck.CompileOptions(include_paths=[str(tmp_path / "inc")], defines={"V": "1"})
    scale = ck.Kernel.from_file(tmp_path / "sub" / "scale.cu", options=options)
    first = ck.Kernel("template <typename T> __global__ void first(T p, float* x) { x[0] = p.by; }")
    matrix, value = Evidence("array", "x", np.dtype("f4"), rank=2), Evidence("scalar", "p", struct)
    weak = Evidence("weak", "2", python_type=int)
    uses = [
        Use(scale.specialization(("f4", 2), None, None, arch="sm_90"), (matrix, weak, weak)),
        Use(first.specialization(struct, None, arch="sm_90"), (value, weak)),
    ]
    text, left = text_of(uses, tmp_path / "sub", ["sm_80"])
    assert left == []
    document = tomllib.loads(text)
    assert document["archs"] == ["sm_80"]
    rows = document["kernels"]
    assert rows[0]["file"] == "scale.cu"
    assert rows[0]["options"] == {"include_paths": ["../inc"], "defines": {"V": "1"}}
    (table, nothing) = rows[1]["types"]
    assert (table["offsets"], table["itemsize"], nothing) == ([4, 0, 16], 48, "")
    path = tmp_path / "sub" / "kernels.toml"
    path.write_text(text)
    assert lacking(uses, path) == []


def test_rows_of_every_origin(tmp_path: Path) -> None:
    """An nvcc program, a packaged template, options: each row makes the same specialization again."""
    (tmp_path / "by.h").write_text("#define BY 2\n")
    (tmp_path / "program.cu").write_text(
        '#include <vector>\n#include "by.h"\n__global__ void twice(float* x) { x[0] *= BY; }\n'
        "int main() { std::vector<int> v; }\n"
    )
    fast = ck.CompileOptions(fast_math=True, lineinfo=True)
    uses = [
        Use(ck.Kernel.from_file(tmp_path / "program.cu", host_code="skip").specialization(arch="sm_90"), ()),
        Use(ck.Kernel.from_template("image/gray")["float"].specialization(arch="sm_90"), ()),
        Use(ck.Kernel(SCALE, options=fast)["float"].specialization(arch="sm_80"), ()),
    ]
    text, left = text_of(uses, tmp_path, ())
    assert left == []
    assert tomllib.loads(text) == {
        "archs": ["sm_80", "sm_90"],
        "kernels": [
            {"file": "program.cu", "host_code": "skip", "name": "twice"},
            {"template": "image", "name": "gray", "arguments": [{"T": "float"}]},
            {"text": SCALE, "name": "scale", "options": {"fast_math": True}, "arguments": [{"T": "float"}]},
        ],
    }
    path = tmp_path / "kernels.toml"
    path.write_text(text)
    assert lacking(uses, path) == []
    (tmp_path / "by.h").write_text("#define BY 3\n")
    assert lacking(uses, path) == ['{name = "twice"}']  # no row makes it any more


def test_results_of_tuning_are_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "s.cu").write_text(SCALE)
    path, rows = tmp_path / "kernels.toml", 'archs = "sm_90"\nkernels = [{file = "s.cu", arguments = ["int"]}]\n'
    for tuned, names in (
        ("", []),
        ('tuned = "a.json"\n', ["a.json"]),
        ('tuned = ["a.json", "b/c"]\n', ["a.json", "b/c"]),
    ):
        path.write_text(tuned + rows)
        assert spec.read(path).tuned == tuple(tmp_path / name for name in names)
