"""The garbage collector while modules load, each time in a process whose objects are few.

In the process of the tests it would count millions of frozen objects, half a second a time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).parents[2]


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import gc\nfrom cudakit.collector import without_collector\n{program}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_off_in_the_block_and_then_as_it_was(enabled: bool, fails: bool) -> None:
    run(f"""
(gc.enable if {enabled} else gc.disable)()
try:
    with without_collector():
        assert not gc.isenabled()
        if {fails}:
            raise ImportError("a module that fails to load")
except ImportError as error:
    assert {fails} and "fails to load" in str(error)
else:
    assert not {fails}
assert gc.isenabled() is {enabled}
""")


def test_what_is_made_in_the_block_is_not_searched_by_the_next_run() -> None:
    run("""
gc.unfreeze()
gc.enable()
with without_collector():
    modules = [[number] for number in range(10_000)]
assert gc.get_count()[0] < 1000
assert any(thing is modules for thing in gc.get_objects(generation=2))
assert gc.get_freeze_count() == 0
""")


def test_garbage_of_the_block_is_collected_by_a_full_run() -> None:
    run("""
gc.collect()
with without_collector():
    for _ in range(100):
        ring = []
        ring.append(ring)
del ring
assert gc.collect() >= 100
""")


def test_what_a_program_froze_stays_frozen() -> None:
    run("""
gc.freeze()
count = gc.get_freeze_count()
with without_collector():
    pass
assert gc.isenabled()
assert gc.get_freeze_count() > count / 2 > 0
""")


@pytest.mark.parametrize("first", [0, 1])
def test_threads_leave_the_collector_on_whichever_ends_first(first: int) -> None:
    run(f"""
from threading import Event, Thread
begun, ended = (Event(), Event()), (Event(), Event())

def load(number):
    with without_collector():
        begun[number].set()
        assert ended[number].wait(30)

threads = [Thread(target=load, args=(number,)) for number in range(2)]
for number, thread in enumerate(threads):
    thread.start()
    assert begun[number].wait(30)
    assert not gc.isenabled()
for number in ({first}, 1 - {first}):
    ended[number].set()
    threads[number].join()
assert gc.isenabled()
""")


def test_the_frozen_objects_of_a_program_are_counted_once() -> None:
    run("""
gc.freeze()
count, counts = gc.get_freeze_count, []
gc.get_freeze_count = lambda: counts.append(count()) or counts[-1]
for _ in range(3):
    with without_collector():
        pass
assert len(counts) == 1 and count() > counts[0] / 2
""")


def test_what_a_program_freezes_later_stays_frozen() -> None:
    run("""
with without_collector():
    pass
assert gc.get_freeze_count() == 0
gc.freeze()
frozen = gc.get_freeze_count()
for _ in range(2):
    with without_collector():
        pass
assert gc.get_freeze_count() > frozen / 2
""")
