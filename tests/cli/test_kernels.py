"""``cudakit compile FILE`` and ``cudakit run FILE.cu``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudakit import cli
from cudakit.cli import supervised

pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")]

SAXPY = """template <typename T>
__global__ void saxpy(T a, const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    monkeypatch.chdir(tmp_path)
    Path("saxpy.cu").write_text(SAXPY)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main([*words, "--json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["status"] == status
    return document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("random:float32", "'random:float32'"),
        ("random:float33:10", "float33"),
        ("range:int32:a", "invalid literal"),
        ("range:int32:1:2:0", "division"),
        ("zeros:float32:-3", "negative"),
        ("zeros:float32:3:4", "'zeros:float32:3:4'"),
        ("nothing:float32:3", "'nothing:float32:3'"),
        ("__import__('os')", "is a file.npy"),
        ("", "is a file.npy"),
    ],
)
def test_a_value_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    (problem,) = run(capsys, "run", "saxpy.cu", "--emulator", "--arg", text, status=4)["problems"]
    assert problem["kind"] == "argument"
    assert message in problem["text"]
    assert problem["expected"].startswith("a file.npy, ")


def test_files_and_options_that_are_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, kind, status, part in (
        (["--arg", "absent.npy"], "file", 6, "absent.npy"),
        (["--arg", "y=1", "--arg", "2"], "usage", 2, "without a name come before"),
        (["--arg", "1", "--grid", "2"], "usage", 2, "--grid comes with --block"),
        (["--arg", "1"], "usage", 2, "no array to cover"),
        (["--arg", "zeros:float32:4", "--cover", "4y"], "argument", 4, "1000 or 64x64"),
        (["--kernel", "nothing", "--arg", "1"], "template", 4, "nothing"),
        (["--nothing"], "usage", 2, "unrecognized arguments: --nothing"),
    ):
        (problem,) = run(capsys, "run", "saxpy.cu", "--emulator", *words, status=status)["problems"]
        assert (problem["kind"], part in problem["text"]) == (kind, True), problem
    np.save("objects.npy", np.array([object()]), allow_pickle=True)
    (problem,) = run(capsys, "run", "saxpy.cu", "--arg", "objects.npy", status=4)["problems"]
    assert "pickle" in problem["text"]  # nothing of the file is run
    (problem,) = run(capsys, "run", "absent.cu", status=6)["problems"]
    assert (problem["kind"], problem["file"]) == ("file", "absent.cu")


def test_a_launch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(8, dtype=np.float32))
    words = ["run", "saxpy.cu", "--emulator", "--arg", "2.0", "--arg", "x.npy", "--arg", "ones:float32:8"]
    document = run(capsys, *words, "--arg", "n=6", "--block", "32", "--save", "y.npy", "--save", "x=copy.npy")
    expected = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 1.0, 1.0]
    assert document["kernel"] == "saxpy<float>"
    assert [(row["name"], row["dtype"]) for row in document["arrays"]] == [("x", "float32"), ("y", "float32")]
    assert document["arrays"][1]["values"] == np.load("y.npy").tolist() == expected
    assert np.load("copy.npy").tolist() == list(range(8))
    (problem,) = run(capsys, *words, "--arg", "9", "--check", status=3)["problems"]
    assert (problem["kind"], problem["file"], problem["line"]) == ("access", "saxpy.cu", 4)
    assert (problem["thread"], problem["expected"], problem["got"]) == ([8, 0, 0], "element 0 to 7", "element 8")
    assert cli.main([*words, "--arg", "8", "--grid", "1", "--block", "8"]) == 0
    assert "y  float32 (8,)  [ 1.  3.  5.  7.  9. 11. 13. 15.]" in capsys.readouterr().out
    (problem,) = run(capsys, *words, "--arg", "8", "--save", "z.npy", status=2)["problems"]
    assert "no array z; it has x, y" in problem["text"]


@pytest.mark.slow
def test_code_for_named_archs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "saxpy.cu", "--args", "float"]
    rows = run(capsys, *words, "--arch", "sm_80", "--arch", "sm_90a", "-o", ".")["kernels"]
    assert [row["file"] for row in rows] == ["saxpy.sm_80.cubin", "saxpy.sm_90a.cubin"]
    assert all(Path(row["file"]).read_bytes()[:4] == b"\x7fELF" and row["registers"] > 0 for row in rows)
    (row,) = run(capsys, *words, "--arch", "sm_90", "--target", "ptx", "-o", "s.ptx", "-D", "FLAG=1")["kernels"]
    assert row["lowered"]["saxpy<float>"] in Path("s.ptx").read_text()
    (problem,) = run(capsys, *words, "--arch", "sm_80", "--arch", "sm_90", "-o", "one", status=2)["problems"]
    assert problem["kind"] == "usage"
    (problem,) = run(capsys, *words, "--arch", "sm_1", status=5)["problems"]
    assert "sm_1" in problem["text"]
    Path("saxpy.cu").write_text(SAXPY.replace("a * x[i]", "a * z[i]"))
    (problem,) = run(capsys, *words, "--arch", "sm_90", status=5)["problems"]
    assert (problem["kind"], problem["file"], problem["line"], problem["column"]) == ("compile", "saxpy.cu", 4, 28)
    assert (problem["kernel"], problem["template_arguments"]) == ("saxpy", ["float"])
