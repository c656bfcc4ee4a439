"""numba.cuda's public names: the page says of each whether it differs, and a new name is seen."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit.adapters import emulated_device, numba_driver
from cudakit.adapters.stand_ins import StandIns

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def table(name_tables: Any) -> Any:
    return name_tables.PEERS["numba"]


@pytest.fixture
def cuda() -> Iterator[Any]:
    """``numba.cuda`` of numba-cuda, on the emulator."""
    pytest.importorskip("numba_cuda")
    module = pytest.importorskip("numba.cuda")
    with StandIns({}, {"numba.cuda": numba_driver.replace}), ck.emulator.strict():
        yield module


@pytest.mark.bridges
def test_the_installed_names_are_in_the_list(table: Any, cuda: Any) -> None:
    version, names = table.stored()
    if table.version() == version:
        assert set(table.installed()) == set(names)
    assert {name for name in names if not hasattr(cuda, name)} == set()


@pytest.mark.bridges
def test_what_raises_says_so(table: Any, cuda: Any) -> None:
    array = cuda.device_array(4)
    with pytest.raises(ck.LaunchError, match="belongs to this process"):
        array.get_ipc_handle()
    handle = cuda.IpcHandle(None, None, 32, source_info=cuda.get_current_device().get_device_identity())
    with pytest.raises(ck.LaunchError, match="cuIpcOpenMemHandle of the CUDA driver, which the emulator lacks"):
        handle.open(cuda.current_context())
    with pytest.raises(ck.LaunchError, match=r"rtsys, NUMBA_CUDA_NRT_STATS\) need a GPU"):
        importlib.import_module("numba.cuda.memory_management").rtsys.memsys_enable_stats()


@pytest.mark.bridges
@pytest.mark.filterwarnings("ignore:.*Grid size", "ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize("number", range(3))
def test_the_programs_of_the_page(cuda: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    programs = re.findall(r"```py\n(.*?)```", (DOCS / "run-numba.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 3
    program = programs[number]
    (tmp_path / "app.py").write_text(program)
    names = ck.adapters.run(tmp_path / "app.py")
    for name in names.keys() & {"test_count"}:
        with pytest.raises(AssertionError, match=r"race: block 0, thread \d+ .* total\[0\]"):
            names[name]()
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", program, re.MULTILINE)


@pytest.mark.bridges
def test_what_differs_is_so(cuda: Any) -> None:
    assert cuda.cuda_error() is None
    assert len(cuda.list_devices()) == len(cuda.gpus) == 1
    assert cuda.select_device(0).name == emulated_device.NAME
    assert cuda.current_context().get_memory_info().total == 80 << 30
    begun, ended = cuda.event(), cuda.event()
    begun.record()
    ended.record()
    assert str(cuda.event_elapsed_time(begun, ended)) == "nan"
    with cuda.profiling():
        assert cuda.external_stream(5).handle
