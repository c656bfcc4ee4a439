"""`ck.stream` as the first call of a program: the driver starts while modules load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.forks import run_anew

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).parents[2]
#: A driver that says what it is asked, and that starts only when the modules of a launch have loaded.
DRIVER = """
import gc, sys, threading, time
from cudakit import system

class Driver:
    asked, current, started = [], 3, 0

    def cuCtxGetCurrent(self, context):
        self.asked.append(("current", threading.current_thread()))
        return self.current

    def cuInit(self, flags):
        self.asked.append(("start", threading.current_thread()))
        end = time.monotonic() + 30
        while gc.isenabled() and self.started == 0:
            assert time.monotonic() < end, "the garbage collector runs while modules load"
        while "cudakit.kernel.kernel" not in sys.modules and self.started == 0:
            assert time.monotonic() < end, "the modules of a launch do not load while the driver starts"
            time.sleep(0.001)
        return self.started

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.asked.append(("retain", device))
        return 0

driver = Driver()
system.cuda_driver = lambda: driver
import cudakit as ck
"""
#: An import of a module by this name fails.
LACK = """
class Finder:
    def find_spec(self, name, *more):
        if name == LACKING:
            raise ImportError("the disk is away")

sys.meta_path.insert(0, Finder())
"""


def test_modules_load_while_the_driver_starts() -> None:
    """The thread has ended when the stream is there. A second stream needs none."""
    run_anew(
        DRIVER
        + """
assert "cudakit.places" not in sys.modules
ck.stream()
(current, asking), (start, starting), (retain, device) = driver.asked
assert (current, start, retain, device) == ("current", "start", "retain", 0)
assert asking is threading.main_thread() is not starting
assert threading.enumerate() == [threading.main_thread()]
from cudakit.start import _MODULES
assert all(name in sys.modules for name in _MODULES)
from cudakit.jit.source import headers
assert headers.wheel_versions.cache_info().currsize == 1
ck.stream()
assert len(driver.asked) == 3
"""
    )


def test_a_driver_that_is_started_is_left_alone() -> None:
    """So it is if it does not start, if there is none, and in a forked child."""
    run_anew(
        DRIVER
        + """
driver.current, driver.started = 0, 100
from cudakit import start
start._start_and_load()
assert [what for what, _ in driver.asked] == ["current"]
driver.current = 3
start._start_and_load()
assert [what for what, _ in driver.asked] == ["current", "current", "start"]
start.cuda_driver = lambda: None
start._start_and_load()
start.cuda_driver = lambda: driver
start.devices.is_forked = lambda: True
start._start_and_load()
assert len(driver.asked) == 3
"""
    )


def test_threads_may_make_the_first_stream_at_once() -> None:
    run_anew(
        DRIVER
        + """
streams = []
threads = [threading.Thread(target=lambda: streams.append(ck.stream())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(set(map(id, streams))) == 4
"""
    )


def test_the_warning_of_the_emulator_names_the_line_of_the_program(tmp_path: Path) -> None:
    """So it does for a module that makes a stream while it is imported."""
    (tmp_path / "theirs.py").write_text("import cudakit as ck\n\nstream = ck.stream()\n")
    program = f"{DRIVER}sys.path.insert(0, '.'); import theirs; assert theirs.stream and len(driver.asked) == 3"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "theirs.py:3: EmulatorWarning" in done.stderr


@pytest.mark.parametrize(
    ("lacking", "statement"),
    [("cudakit.kernel.kernel", "ck.stream(); ck.Kernel"), ("cudakit.places", "ck.stream()")],
)
def test_a_module_that_does_not_load_is_told_of_where_it_is_needed(lacking: str, statement: str) -> None:
    told = run_anew(
        f"""{DRIVER}LACKING = {lacking!r}{LACK}driver.started = 100
try:
    {statement}
except ImportError as error:
    assert "the disk is away" in str(error)
else:
    raise AssertionError("loaded")
assert threading.enumerate() == [threading.main_thread()]
"""
    )
    assert "Traceback" not in told
