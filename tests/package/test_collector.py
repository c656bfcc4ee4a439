"""The garbage collector while modules load."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from threading import Event, Thread

import pytest

from cudakit.collector import without_collector

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Leave the garbage collector as it was before the test."""
    was_enabled, were_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    yield
    # What earlier tests left is frozen: else each full run in later tests would search it.
    (gc.freeze if were_frozen else gc.unfreeze)()
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("error", [None, ImportError("a module that fails to load")])
def test_the_collector_is_off_in_the_block_and_then_as_it_was(enabled: bool, error: ImportError | None) -> None:
    (gc.enable if enabled else gc.disable)()
    with pytest.raises(ImportError) if error else nullcontext(), without_collector():
        assert not gc.isenabled()
        if error:
            raise error
    assert gc.isenabled() is enabled


def test_what_is_made_in_the_block_is_not_searched_by_the_next_run() -> None:
    gc.unfreeze()
    gc.enable()
    with without_collector():
        modules = [[number] for number in range(10_000)]
    assert gc.get_count()[0] < 1000
    assert any(thing is modules for thing in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_garbage_of_the_block_is_collected_by_a_full_run() -> None:
    gc.enable()
    gc.collect()
    with without_collector():
        for _ in range(100):
            ring: list[object] = []
            ring.append(ring)
    del ring
    assert gc.collect() >= 100


def test_what_a_program_froze_stays_frozen() -> None:
    gc.enable()
    gc.freeze()
    count = gc.get_freeze_count()
    with without_collector():
        pass
    assert gc.isenabled()
    assert gc.get_freeze_count() > count / 2


@pytest.mark.parametrize("first", [0, 1])
def test_threads_leave_the_collector_on_whichever_ends_first(first: int) -> None:
    gc.enable()
    begun, ended = (Event(), Event()), (Event(), Event())

    def load(number: int) -> None:
        with without_collector():
            begun[number].set()
            assert ended[number].wait(30)

    threads = [Thread(target=load, args=(number,)) for number in range(2)]
    for number, thread in enumerate(threads):
        thread.start()
        assert begun[number].wait(30)
        assert not gc.isenabled()
    for number in (first, 1 - first):
        ended[number].set()
        threads[number].join()
    assert gc.isenabled()
