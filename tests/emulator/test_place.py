"""The emulator as a place: its current stream, its order, its marks and its clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator import place as places
from cudakit.emulator.launch import EmulatedCode
from cudakit.emulator.place import EmulatorPlace
from cudakit.streams.witnesses import Work

HERE = EmulatorPlace()


def spend(stream: emulator.EmulatedStream, size: int) -> None:
    """Let a copy of `size` bytes pass on a stream."""
    with stream.doing(Work("copy", "a copy", stream, size=size)):
        pass


def test_arrays_are_numpys_and_steps_are_the_unit() -> None:
    assert HERE.xp is np
    assert HERE.unit == "steps"
    x = np.zeros((3, 4), "f4")
    described = HERE.describe(x)
    assert described.family == "memory"
    assert described.shape == (3, 4)


def test_a_stream_is_itself_and_has_a_number_of_its_own() -> None:
    one, two = emulator.stream(), emulator.stream()
    assert HERE.check(one) is one
    assert HERE.identity(one) == -id(one)
    assert HERE.identity(one) != HERE.identity(two)
    assert HERE.identity(one) < 0


def test_limits_and_code_are_those_of_the_arch() -> None:
    old = emulator.stream("sm_80")
    assert HERE.limits().arch == "sm_90"
    assert HERE.limits(old).arch == "sm_80"
    assert HERE.limits_of("sm_86").compute_capability == (8, 6)
    assert HERE.code(old) == EmulatedCode("sm_80")
    assert HERE.default_code("sm_86") == EmulatedCode("sm_86")
    assert HERE.default_code(None) == EmulatedCode("sm_90")


def test_a_new_stream_is_like_another() -> None:
    like = emulator.stream("sm_80", step_budget=77)
    made = HERE.stream(like)
    assert made is not like
    assert (made.arch, made.step_budget) == ("sm_80", 77)
    assert HERE.stream().arch == "sm_90"


def test_the_current_stream_is_that_of_the_innermost_block() -> None:
    outside = HERE.current()
    assert HERE.current() is outside
    assert outside.arch == "sm_90"
    one, two = emulator.stream(), emulator.stream()
    with HERE.using(one) as xp:
        assert xp is np
        assert HERE.current() is one
        with HERE.using(two):
            assert HERE.current() is two
        assert HERE.current() is one
    assert HERE.current() is outside


def test_a_block_that_fails_gives_its_stream_back() -> None:
    outside = HERE.current()
    with pytest.raises(ZeroDivisionError), HERE.using(emulator.stream()):
        _ = 1 / 0
    assert HERE.current() is outside
    assert places._current.streams == []


def test_order_is_between_streams_where_it_is_asked_for() -> None:
    asked: list[Any] = []
    one, two = SimpleNamespace(wait=asked.append), emulator.stream()
    HERE.order(one, two, False)  # type: ignore[arg-type]
    assert asked == []
    HERE.order(one, two, True)  # type: ignore[arg-type]
    assert asked == [two]


def test_a_mark_knows_its_step_and_may_be_used_again() -> None:
    stream = emulator.stream()
    begun = HERE.mark(stream)
    spend(stream, 16_000)
    ended = HERE.mark(stream)
    assert ended is not begun
    assert HERE.elapsed_ms(begun, ended) == 1
    assert HERE.elapsed_ms(ended, begun) == -1
    spend(stream, 32_000)
    assert HERE.mark(stream, ended) is ended
    assert HERE.elapsed_ms(begun, ended) == 3


def test_the_open_capture_is_named() -> None:
    stream = emulator.stream()
    assert HERE.capture(stream) is None
    assert not HERE.is_capturing(stream)
    stream.recorder = SimpleNamespace(capture="the capture")  # type: ignore[assignment]
    assert HERE.capture(stream) == "the capture"
    assert HERE.is_capturing(stream)


def test_only_public_names_are_listed() -> None:
    assert dir(emulator) == emulator.__all__
    assert {"stream", "run", "parse", "counters"} <= set(dir(ck.emulator))
