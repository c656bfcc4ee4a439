"""Programs written for PyCUDA, run unchanged on the emulator and on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cudakit.adapters.program import Program, examine, run
from cudakit.adapters.pycuda import contexts, driver
from cudakit.errors import EmulationError

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
FOLDER = Path(__file__).parent / "programs_pycuda"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
#: Programs that take a second or more on the emulator.
DEAR = frozenset(
    {
        "black_scholes", "complex_kernel", "k_nearest", "mandelbrot", "monte_carlo_class", "pi_monte_carlo",
        "random_generators", "reduction_dot", "scan_of_unsigned", "scans",
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in PROGRAMS]
)
def test_a_program_of_pycuda_runs_unchanged(name: str) -> None:
    np.random.seed(7)
    status: object = None
    try:
        run(FOLDER / f"{name}.py", pycuda="ours")
    except SystemExit as left:
        status = left.code
    assert not status


def test_there_are_programs_of_every_kind() -> None:
    assert len(PROGRAMS) >= 45


#: Programs with the mistakes that tutorials print: exception, what its message has, and what `cudakit check` adds.
WRONG: dict[str, tuple[type[Exception], str, str]] = {
    "out_never_cleared": (AssertionError, "the bins are wrong", r"reads bins\[\d+\], which was allocated and never"),
    "scan_of_blocks": (AssertionError, "the sums are wrong", ""),
    "missing_synchronize": (EmulationError, "is read before to_host on stream .* has brought its elements", ""),
    "managed_without_wait": (EmulationError, "is read before add_one on stream .* has brought its elements", ""),
    "freed_before_use": (driver.LogicError, "freed", ""),
    "freed_and_returned": (driver.LogicError, "freed", ""),
    "freed_by_its_number": (driver.LogicError, "freed", ""),
    "grid_without_guard": (driver.LaunchError, "element 1000 is past the end", ""),
    "doubles_for_floats": (TypeError, r"float64; convert it with a.astype\(numpy.float32\)", ""),
    "python_numbers": (TypeError, r"give numpy.float32\(2.0\)", ""),
    "strided_copy": (ValueError, "numpy.ascontiguousarray", ""),
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_that_tutorials_print_is_seen(name: str) -> None:
    error, text, finding = WRONG[name]
    path = FOLDER / "wrong" / f"{name}.py"
    with pytest.raises(error, match=text) as raised:
        # New memory that no check fills may hold zeros by chance, with which the mistake has no effect.
        _ = examine(Program(path, pycuda="ours"), True) if finding else run(path, pycuda="ours")
    assert not finding or re.search(finding, "".join(raised.value.__notes__))


@pytest.mark.emulator
def test_a_missing_barrier_is_a_race_of_the_check() -> None:
    path = FOLDER / "wrong" / "missing_syncthreads.py"
    run(path, pycuda="ours")
    (fault,) = examine(Program(path, pycuda="ours"), True).faults
    assert (fault.kind, fault.kernel, fault.line) == ("race", "reverse", 11)


def test_a_program_without_a_context_gets_one_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts.Context, "count", 0)
    monkeypatch.setattr(contexts, "_stack", contexts._Stack())
    with pytest.warns(UserWarning, match="import pycuda.autoinit") as caught:
        assert driver.mem_alloc(4).size == 4
    assert caught[0].filename == __file__
    driver.Context.pop()
    with pytest.raises(driver.LogicError, match="no context is current"):
        driver.mem_alloc(4)
