"""The command ``cudakit tune``: a file's kernel, JSON lines, kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudakit.cli import main, supervised

APP = """
import cudakit as ck, numpy as np
text = "template <int BLOCK> __global__ void twice(const float* x, float* y, int n) {" \\
       "const int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }"
def arguments(stream, n):
    return ck.to_device(np.arange(n, dtype=np.float32), stream), ck.to_device(np.zeros(n, np.float32), stream), n
twice = ck.Kernel(text).tuned({"BLOCK": [32, 64]}, by="n", config=lambda BLOCK, n: ck.config(-(-n // BLOCK), BLOCK),
                              arguments=arguments, sizes=[100], objective="sectors", workers=0)
bare = ck.Kernel(text).tuned({"BLOCK": [32]}, config=ck.config(1, 32))
if __name__ == "__main__":
    raise SystemExit("not to be run")
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "app.py").write_text(APP)
    return str(tmp_path / "app.py")


@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_a_kernel_of_a_file_is_tuned_listed_exported_and_imported(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    lines = tmp_path / "candidates.jsonl"
    lines.write_text("of a former run\n")
    assert main(["tune", f"{app}:twice", "--sizes", "100,200", "--json", "--candidates", str(lines)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(map(json.loads, lines.read_text().splitlines())) == document["candidates"]
    assert [candidate["state"] for candidate in document["candidates"]] == ["right"] * 4
    assert [row["size"] for row in document["sizes"]] == [100, 200]
    assert main(["tune", f"{app}:twice", "--budget", "1"]) == 0
    assert "size 100\ntwice: 1 candidates tried, 1 right" in capsys.readouterr().out
    assert main(["tune", "--list"]) == 0
    assert capsys.readouterr().out.count("emulator sm_90  twice") == 2
    file = str(tmp_path / "results.json")
    assert main(["tune", "--export", file]) == main(["tune", "--import", file]) == 0
    assert capsys.readouterr().out == f"wrote 2 results to {file}\nread 2 results from {file}\n"


@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_what_cannot_be_tuned_is_said(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([app], "expected FILE.py:NAME"),
        ([f"{app}:other"], "has no tuned kernel other; it has twice, bare"),
        (["absent.py:twice"], "there is no file absent.py"),
        ([f"{app}:bare"], "there are no arguments to tune with"),
        ([f"{app}:twice", "--sizes", "many"], "--sizes takes numbers from 1 up"),
        ([f"{app}:twice", "--sizes", "-5"], "--sizes takes numbers from 1 up, such as 1000,1000000 or 64x64; got '-5'"),
        ([f"{app}:twice", "--sizes", "64x0"], "--sizes takes numbers from 1 up"),
        ([f"{app}:twice", "--sizes", "2x3"], "the function of the arguments fails: arguments(stream, 2, 3): TypeError"),
    ):
        assert main(["tune", *words]) == (
            6 if "absent" in words[0] else 4 if "bare" in words[0] or "2x3" in words else 1
        )
        assert message in capsys.readouterr().err
