"""``examples/mosaic.py`` and ``examples/all_reduce.py``: the programs run, and are right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudakit.streams import devices

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning"), pytest.mark.slow]


@pytest.fixture
def small(request: pytest.FixtureRequest) -> list[str]:
    """The size of a mosaic that is checked against NumPy, in as many bands."""
    return ["--gib", str(2**-7), "--band-mib", "1"] if request.config.getoption("--gpu") else []


@pytest.mark.filterwarnings("ignore:nccl library")
@pytest.mark.parametrize("several", [False, True])
def test_a_mosaic(several: bool, small: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = small
    if several:
        given = [*small, "--devices", "0,1" if devices.device_count() != 1 else "0,0"]
    mosaic = runpy.run_path(str(EXAMPLES / "mosaic.py"))
    bright = mosaic["main"](given)
    assert "checked against NumPy" in capsys.readouterr().out
    work = mosaic["Bands"](512, 256, 64, None)
    if not small:
        with pytest.raises(AssertionError):
            mosaic["check"](work, bright + 1, None)


def test_a_mosaic_that_is_kept(tmp_path: Path, small: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("zarr")
    runpy.run_path(str(EXAMPLES / "mosaic.py"))["main"]([*small, "--out", str(tmp_path / "mosaic.zarr")])
    assert "checked against NumPy" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # CuPy's word of NCCL, where it is not
def test_parts_are_added_over_devices(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    size = "4" if request.config.getoption("--gpu") else str(2**-10)
    program: dict[str, Any] = runpy.run_path(str(EXAMPLES / "all_reduce.py"))
    first, *others = program["main"](["--mib", size, "--parts", "5"])
    assert "checked against NumPy" in capsys.readouterr().out
    for other in others:
        np.testing.assert_array_equal(first, other)
