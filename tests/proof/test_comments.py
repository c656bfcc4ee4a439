"""What is stated in a file, and the command that proves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudakit import cli
from cudakit.cli import supervised
from cudakit.errors import CudakitError
from cudakit.proof.prove import stated

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

TEXT = """
// prove: T = float | double
// prove: n <= len(x)
// prove: block = 64
// prove: grid = (n + 63) // 64
template <typename T>
__global__ void fill(T* x, T value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}

// A kernel of which nothing is stated.
__global__ void other(float* x) { x[0] = 1; }

// prove: h * w <= len(x)
// prove: h <= 1000
// prove: w <= 1000
// prove: block = 16, 16
// prove: grid = ((w + 15) // 16, (h + 15) // 16)
__global__ void __launch_bounds__(256) clear(int h, int w,
    float* x) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < h && c < w) x[r * w + c] = 0;
}
"""


def test_what_is_stated_belongs_to_the_kernel_below() -> None:
    found = stated(TEXT)
    assert list(found) == ["fill", "clear"]
    assert found["fill"].arguments == {"T": ["float", "double"]}
    assert found["fill"].statements == ["n <= len(x)"]
    assert found["clear"].settings["block"] == "16, 16"


@pytest.mark.parametrize(
    "text", ["// prove: n == 1\n", "// prove: n == 1\nint x;\n", "// prove: n == 1\nstruct a {};\n"]
)
def test_what_is_stated_of_no_kernel_is_refused(text: str) -> None:
    with pytest.raises(CudakitError, match="is not above a kernel"):
        stated(text)


@pytest.mark.slow
def test_the_command_proves_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    path = tmp_path / "kernels.cu"
    path.write_text(TEXT)
    assert cli.main(["prove", str(path)]) == 0
    shown = capsys.readouterr().out
    heads = [line.partition(":")[0] for line in shown.splitlines() if not line.startswith("  taken for granted: ")]
    assert heads == ["fill<float>", "fill<double>", "clear"]
    path.write_text(TEXT.replace("c < w", "c <= w"))
    assert cli.main(["prove", str(path), "--kernel", "clear", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["proofs"]
    assert found["verdict"] == "refuted"
    assert found["findings"][0]["file"] == str(path)
    assert found["findings"][0]["line"] == TEXT.splitlines().index("    if (r < h && c < w) x[r * w + c] = 0;") + 1


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text(TEXT)
    assert cli.main(["prove", str(path), "--kernel", "other"]) == 1
    assert "kernel other has comments" in capsys.readouterr().err
    path.write_text(TEXT.replace("// prove: T = float | double\n", ""))
    assert cli.main(["prove", str(path)]) == 4
    assert "// prove: T = float" in capsys.readouterr().err
    path.write_text(TEXT.replace("T = float", "U = float"))
    assert cli.main(["prove", str(path)]) == 4
    assert "no template parameter" in capsys.readouterr().err
