"""Timers: how long a stream's work takes, read without a wait before, and what a timer refuses."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from support.places import SLOW, another, one_of

import cudakit as ck
from cudakit.profile import trace

ONE = ck.config(1, 32)


@pytest.fixture(scope="module")
def slow() -> ck.Kernel:
    return ck.Kernel(SLOW)


@pytest.fixture
def cycles(request: pytest.FixtureRequest) -> int:
    """Some 5 ms on a GPU."""
    return 10_000_000 if request.config.getoption("--gpu") else 1000


@pytest.fixture
def least_ms(request: pytest.FixtureRequest, cycles: int) -> float:
    """What `cycles` take at the least; a GPU that does other work as well takes any time more. No GPU has 3 GHz."""
    return cycles / (3e6 if request.config.getoption("--gpu") else 1000)


@pytest.fixture
def x(stream: Any, xp: Any, slow: ck.Kernel) -> Any:
    made = xp.zeros(32, "f4")
    slow(stream, ONE, made, 0)
    stream.sync()
    return made


def test_longer_work_takes_longer(stream: Any, x: Any, slow: ck.Kernel, cycles: int, least_ms: float) -> None:
    with ck.Timer(stream) as long:
        with ck.Timer(stream) as short:
            slow(stream, ONE, x, cycles)
        for _ in range(3):
            slow(stream, ONE, x, cycles)
    assert short.elapsed_ms > least_ms
    assert long.elapsed_ms > short.elapsed_ms + 3 * least_ms
    assert long.is_done
    assert long.elapsed_ms == long.elapsed_ms


def test_laps_add_up_and_a_timer_is_used_again(
    stream: Any, x: Any, slow: ck.Kernel, cycles: int, least_ms: float
) -> None:
    timer = ck.Timer(stream)
    for laps in (3, 2):
        timer.start()
        for number in range(laps):
            if number:
                timer.lap()
            slow(stream, ONE, x, cycles * (1 + 2 * (number == 1)))
        timer.stop()
        assert len(timer.laps_ms) == laps
        for number, lap in enumerate(timer.laps_ms):
            assert lap > least_ms * (1 + 2 * (number == 1))
        assert timer.elapsed_ms == pytest.approx(sum(timer.laps_ms))


def test_only_its_own_stream_is_measured(stream: Any, xp: Any, x: Any, slow: ck.Kernel, cycles: int) -> None:
    second, y = another(stream), xp.zeros(32, "f4")
    slow(second, ONE, y, 0)
    second.sync()

    def timed() -> None:
        with ck.Timer(stream) as quick, ck.Timer(second) as busy:
            slow(second, ONE, y, cycles)
        assert quick.elapsed_ms < busy.elapsed_ms / 2

    # Where host and GPU do other work as well, they may stop between the two ends of the quick one.
    one_of(10, timed)


def test_a_timer_is_read_after_its_stop(stream: Any, x: Any, slow: ck.Kernel) -> None:
    timer = ck.Timer(stream)
    assert str(timer) == "a timer, not started"
    for early in (timer.lap, timer.stop):
        with pytest.raises(ck.CudakitError, match="not running"):
            early()
    with pytest.raises(ck.CudakitError, match="not started"):
        _ = timer.elapsed_ms
    with timer:
        slow(stream, ONE, x, 0)
        assert str(timer) == "a timer, running"
        with pytest.raises(ck.CudakitError, match="still running"):
            _ = timer.laps_ms
    assert timer.elapsed_ms > 0
    with pytest.raises(ck.CudakitError, match="not running"):
        timer.lap()


def test_an_error_in_the_block_is_not_hidden(stream: Any) -> None:
    timer = ck.Timer(stream)
    with pytest.raises(ZeroDivisionError), timer:
        1 / 0
    with pytest.raises(ck.CudakitError, match="not started"):
        _ = timer.elapsed_ms


def test_what_is_no_stream_is_named() -> None:
    with pytest.raises(ck.ArgumentError, match="got int"):
        ck.Timer(3)


def test_in_a_capture_nothing_is_timed(stream: Any, x: Any, slow: ck.Kernel) -> None:
    timer = ck.Timer(stream)

    def program() -> None:
        with ck.capture(stream):
            slow(stream, ONE, x, 0)
            timer.start()

    with pytest.raises(ck.LaunchError, match="time the graph's launches"):
        program()


@pytest.mark.emulator
def test_the_emulator_counts_steps(stream: Any, x: Any, slow: ck.Kernel) -> None:
    before = stream.clock
    with ck.Timer(stream) as timer:
        slow(stream, ONE, x, 1000)
    assert timer.elapsed_steps == stream.clock - before >= 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert timer.elapsed_ms == timer.elapsed_steps / 1000
    assert timer.laps_steps == (timer.elapsed_steps,)
    assert str(timer) == f"{timer.elapsed_steps} steps"


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["elapsed_ms", "laps_ms"])
def test_milliseconds_of_the_emulator_warn_once(stream: Any, x: Any, slow: ck.Kernel, name: str) -> None:
    trace._warn_of_steps.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ck.Timer(stream) as timer:
            slow(stream, ONE, x, 0)
        assert caught == []
        for _ in range(3):
            getattr(timer, name)
    (warning,) = caught
    assert warning.category is ck.EmulatorWarning
    assert "counts steps and measures no time" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.gpu
def test_a_gpu_has_no_steps(stream: Any, x: Any, slow: ck.Kernel) -> None:
    with ck.Timer(stream) as timer:
        slow(stream, ONE, x, 0)
    with pytest.raises(ck.CudakitError, match="steps are the emulator's"):
        _ = timer.elapsed_steps
    assert str(timer).endswith(" ms")


@pytest.mark.gpu
def test_nothing_is_waited_for_until_it_is_read(stream: Any, xp: Any, x: Any, slow: ck.Kernel) -> None:
    theirs = xp.cuda.Stream(non_blocking=True)
    with ck.Timer(theirs) as timer:
        slow(theirs, ONE, x, 400_000_000)
    assert not timer.is_done
    assert timer.elapsed_ms > 400_000_000 / 3e6
    assert timer.is_done
