"""A session in a notebook that is really executed, where nbclient and IPython's kernel are installed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.emulator, pytest.mark.bridges, pytest.mark.filterwarnings("ignore")]
CELLS = [
    '''import numpy as np
import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float by = a < 0 ? -a : a;
    if (i < n) x[i] = by * x[i];
}""")
x = np.ones(100, np.float32)
session = ck.emulator.debug(scale, ck.config(2, 64), x, 2.0, x.size)
session''',
    "session.step(3)",
    "session.back()",
    "session.run()\nsession",
    "with ck.emulator.counters() as report:\n"
    "    scale(ck.emulator.stream(), ck.config(2, 64), x, 2.0, x.size)\nreport.global_.sectors",
]


def test_each_step_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown: list[dict[str, Any]] = [cell.outputs[-1].data for cell in notebook.cells]
    begin, stepped, back, end = (each["text/html"] for each in shown[:4])
    for page in (begin, stepped, back):
        ElementTree.fromstring(page)
        assert page.count("class='here'") == 1, page
    assert "if (i &lt; n) x[i] = by * x[i];" in stepped.partition("class='here'")[2].partition("</")[0]
    assert "float by = a &lt; 0 ? -a : a;" in back.partition("class='here'")[2].partition("</")[0]
    assert "end" in end
    assert shown[1]["text/plain"].count("->") == 1
    assert shown[4]["text/plain"] == "26"
