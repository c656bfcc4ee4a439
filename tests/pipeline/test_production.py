"""Pipelines that shall go on: items that fail, are dropped or become several; names, counters, callbacks.

Each test tries one way in which something could be lost, come twice or in another order, or stay behind.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pipelines import adding, items, nothing_left
from support.places import to_host

import cudakit as ck
from cudakit import pipeline as lines

_nothing_left = pytest.fixture(autouse=True)(nothing_left)

KINDS = ["device", "host", "threads", "host, then device", "device, then host"]


def wrapped(kind: str, work: Callable[..., Any]) -> list[Any]:
    """Stages of which one is `work`, which takes (item, stream=None)."""
    good = lambda x, _=None: x  # noqa: E731
    return {
        "device": [good, work, good],
        "host": [lines.host(work)],
        "threads": [lines.host(good, threads=3), lines.host(work, threads=3), lines.host(good, threads=2)],
        "host, then device": [lines.host(work, threads=2), good],
        "device, then host": [good, work, lines.host(good, threads=2)],
    }[kind]


def number_of(array: Any) -> float:
    return float(to_host(array).flat[0])


def fails_on(*numbers: int) -> Callable[..., Any]:
    def check(x: Any, _: Any = None) -> Any:
        if number_of(x) in numbers:
            raise ValueError(f"no {number_of(x):g}")
        return x

    return check


# ── an item that fails ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("failed", [{0}, {1, 2}, {11}, set(range(12)), {0, 5, 6, 11}])
@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_is_skipped_and_nothing_else(stream: Any, kind: str, failed: set[int]) -> None:
    run = ck.Pipeline(wrapped(kind, fails_on(*failed)), stream=stream, on_error="skip")(items(12))
    good = [number for number in range(12) if number not in failed]
    assert [(run.item, number_of(result)) for result in run] == [(number, number) for number in good]
    counters = run.counters
    assert (counters.items, counters.failed, counters.dropped, counters.under_way) == (len(good), len(failed), 0, 0)
    assert counters.over


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_handler_returns_comes_in_the_items_place(stream: Any, kind: str) -> None:
    told: list[tuple[int, str, threading.Thread]] = []

    def handle(error: ck.PipelineError) -> Any:
        assert isinstance(error.__cause__, ValueError)
        told.append((error.item, error.stage, threading.current_thread()))
        return None if error.item == 4 else np.full(1, -error.item)

    results = list(ck.Pipeline(wrapped(kind, fails_on(1, 4, 9)), stream=stream, on_error=handle)(items(11)))
    assert [number_of(result) for result in results] == [0, -1, 2, 3, 5, 6, 7, 8, -9, 10]
    assert told == [(number, "check", threading.current_thread()) for number in (1, 4, 9)]


def test_each_item_may_be_taken_by_a_thread_that_never_used_the_device(stream: Any) -> None:
    """Also where memory for another shape comes from the pool: CuPy then makes no context current."""
    sizes = [100 - number // 3 for number in range(30)]
    run = ck.Pipeline([lambda x, _: x + 1], stream=stream)(np.full(size, size, np.float32) for size in sizes)
    results: list[Any] = [next(run)]
    while len(results) < len(sizes):
        thread = threading.Thread(target=lambda: results.append(next(run)))
        before = len(results)
        thread.start()
        thread.join()
        assert len(results) == before + 1
    assert [(result.size, float(result[0])) for result in results] == [(size, size + 1) for size in sizes]


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_keeps_the_errors_keeps_no_items(stream: Any, kind: str) -> None:
    alive: list[Any] = []

    def source() -> Iterator[np.ndarray]:
        for item in items(8, 100):
            alive.append(weakref.ref(item))
            yield item

    def work(x: Any, _: Any = None) -> Any:
        mine = x + 1
        alive.append(weakref.ref(mine))
        raise ValueError("all")

    errors: list[ck.PipelineError] = []
    assert list(ck.Pipeline(wrapped(kind, work), stream=stream, on_error=errors.append)(source())) == []
    assert [str(error.__cause__) for error in errors] == ["all"] * 8
    assert "work" in traceback.format_exception(errors[0].__cause__)[-2]
    # Another thread may have the last one for a moment still.
    for _ in range(100):
        if not any(one() is not None for one in alive):
            break
        time.sleep(0.02)
    assert [one() for one in alive] == [None] * 16


def test_a_handler_that_raises_ends_the_run(stream: Any) -> None:
    def handle(error: ck.PipelineError) -> None:
        if error.item == 6:
            raise KeyError("enough") from error

    source = Closing()
    run = ck.Pipeline(wrapped("threads", fails_on(3, 6)), stream=stream, on_error=handle)(source)
    results = []
    with pytest.raises(KeyError, match="enough"):
        results.extend(number_of(result) for result in run)
    assert results == [0, 1, 2, 4, 5]
    assert source.closed.is_set()
    assert list(run) == []


def test_a_handler_may_close_the_run(stream: Any) -> None:
    run = ck.Pipeline(wrapped("host", fails_on(3)), stream=stream, on_error=lambda _: run.close())(items(9))
    assert [number_of(result) for result in run] == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_is_not_skipped(stream: Any, kind: str, interrupt: type[BaseException]) -> None:
    def work(x: Any, _: Any = None) -> Any:
        if number_of(x) == 4:
            raise interrupt
        return x

    run = ck.Pipeline(wrapped(kind, work), stream=stream, on_error="skip")(items(9))
    with pytest.raises(interrupt):
        for _ in run:
            pass
    assert list(run) == []


def test_a_lost_device_is_not_skipped(stream: Any) -> None:
    class CUDARuntimeError(RuntimeError):
        pass

    def work(x: Any, _: Any) -> Any:
        if number_of(x) == 2:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
        return x

    run = ck.Pipeline([work], stream=stream, on_error="skip")(items(9))
    results = []
    with pytest.raises(ck.PipelineError, match="context is lost"):
        results.extend(number_of(result) for result in run)
    assert results == [0, 1]


@pytest.mark.parametrize("threaded", [False, True])
def test_a_source_that_fails_is_not_skipped(stream: Any, threaded: bool) -> None:
    def source() -> Iterator[np.ndarray]:
        yield from items(3)
        raise OSError("unplugged")

    given = lines.ahead(source()) if threaded else source()
    run = ck.Pipeline([lambda x, _: x], stream=stream, on_error="skip")(given)
    results = []
    with pytest.raises(ck.PipelineError, match="the source failed on item 3: OSError: unplugged"):
        results.extend(number_of(result) for result in run)
    assert results == [0, 1, 2]


@pytest.mark.emulator
def test_memory_of_a_failed_item_is_not_used_before_its_work_is_done(stream: Any, xp: Any) -> None:
    """With no waits put in by cudakit, a race is an error of the emulator, and would be one item more that fails."""
    add, check = adding(xp, 1), fails_on(2, 5, 6)

    def work(x: Any, stream: Any) -> Any:
        y = add(x, stream)
        check(x)
        return y

    with ck.hazards.manual():
        run = ck.Pipeline([work, add], stream=stream, depth=2, on_error="skip")([*items(9), *items(4, 5)])
        assert [number_of(result) for result in run] == [2, 3, 5, 6, 9, 10, 2, 3, 5]
    assert run.counters.failed == 4


def test_items_that_do_not_fit_are_skipped(stream: Any) -> None:
    given: list[Any] = [np.zeros(3), "no array", np.array([{}]), np.ones(3), np.ma.masked_array(np.ones(2), [0, 1])]
    run = ck.Pipeline([lambda x, _: x], stream=stream, on_error="skip")([*given, np.full(3, 2.0)])
    assert [number_of(result) for result in run] == [0, 1, 2]


def test_graphs_skip_what_fails_the_first_item_too(stream: Any) -> None:
    given = [np.zeros((2, 2)), np.zeros(3), *items(4), np.zeros(5), *items(3)]

    def work(x: Any, _: Any) -> Any:
        if x.ndim == 2 or x.dtype == np.float64:
            raise ValueError("another kind")
        return x + 1

    run = ck.Pipeline([work], stream=stream, graph=True, on_error="skip")(given)
    assert [(run.item, number_of(result)) for result in run] == [(2, 1), (3, 2), (4, 3), (5, 4), (7, 1), (8, 2), (9, 3)]


# ── none or several of one ───────────────────────────────────────────────────────────────────────────────────────────


def countdown(x: Any, _: Any = None) -> Iterator[Any]:
    """For n: n, n - 1, …, 1."""
    for below in range(int(number_of(x))):
        yield x - below


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_that_yields_gives_what_it_yields(stream: Any, kind: str) -> None:
    run = ck.Pipeline(wrapped(kind, countdown), stream=stream)(items(6))
    assert [(run.item, number_of(result)) for result in run] == [
        (number, number - below) for number in range(6) for below in range(number)
    ]
    assert (run.counters.items, run.counters.dropped) == (15, 1)


@pytest.mark.parametrize("seed", range(16))
def test_any_pipeline_is_its_stages_one_after_another(stream: Any, seed: int) -> None:
    """Stages of both kinds that drop, multiply and fail on some, beside the same functions in a plain loop."""
    rng = random.Random(seed)

    def stage(salt: int) -> Callable[..., Any]:
        def work(x: Any, _: Any = None) -> Any:
            what = (int(number_of(x)) * 7 + salt) % 5
            if what == 0:
                raise ValueError("some")
            return several(x, what) if salt % 2 else x + 1

        def several(x: Any, count: int) -> Iterator[Any]:
            for number in range(count - 1):
                yield x * 2 + number

        return work

    functions = [stage(rng.randrange(100)) for _ in range(rng.randint(1, 4))]
    failed = set()

    def expected(x: Any, number: int, rest: list[Any]) -> Iterator[tuple[int, float]]:
        if not rest:
            yield number, number_of(x)
            return
        result = rest[0](x)
        for one in [result] if isinstance(result, np.ndarray) else result:
            try:
                yield from expected(one, number, rest[1:])
            except ValueError:
                failed.add(number)

    wanted = []
    for number, item in enumerate(items(25)):
        try:
            wanted += list(expected(item, number, functions))
        except ValueError:
            failed.add(number)
    # Of an item that fails on the device, after a stage there has yielded, none of its results are left: hosts alone.
    stages = [lines.host(function, threads=rng.randint(1, 4)) for function in functions]
    skipped: list[int] = []
    depth = rng.choice([None, 1, 2, 5])
    pipeline = ck.Pipeline(stages, depth=depth, on_error=lambda error: skipped.append(error.item))
    run = pipeline(lines.ahead(items(25)) if rng.random() < 0.3 else items(25))
    assert [(run.item, number_of(result)) for result in run] == wanted
    assert set(skipped) == failed
    assert skipped == sorted(skipped)


def test_on_the_device_an_item_fails_as_a_whole(stream: Any) -> None:
    def halves(x: Any, _: Any) -> Iterator[Any]:
        yield x
        if number_of(x) == 1:
            raise ValueError("second half")
        yield x + 0.5

    run = ck.Pipeline([halves], stream=stream, on_error="skip")(items(3))
    assert [number_of(result) for result in run] == [0, 0.5, 2, 2.5]


def test_a_device_stage_may_change_what_it_has_yielded(stream: Any, xp: Any) -> None:
    def counting(x: Any, _: Any) -> Iterator[Any]:
        for _number in range(3):
            x += 1
            yield x
            yield x[:2], {"again": x}

    for given in (items(9), items(9, 70_000)):
        results = list(ck.Pipeline([counting], stream=stream, depth=3)(given))
        plain = [number_of(result) for result in results if isinstance(result, np.ndarray)]
        assert plain == [number + count for number in range(9) for count in (1, 2, 3)]
        pairs = [result for result in results if isinstance(result, tuple)]
        assert [number_of(pair[0]) for pair in pairs] == [number_of(pair[1]["again"]) for pair in pairs] == plain
        results[0][:] = -1
        assert number_of(results[2]) == 2


def test_several_of_several(stream: Any) -> None:
    expected = [b for n in range(5) for a in countdown(np.full(1, n)) for b in countdown(a)]
    for stages in ([countdown, countdown], [lines.host(countdown, threads=2), countdown, lines.host(lambda x: x)]):
        results = list(ck.Pipeline(stages, stream=stream)(items(5)))
        assert [number_of(result) for result in results] == [number_of(one) for one in expected]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_yielded_runs_no_further_ahead_than_depth(threads: int) -> None:
    made = itertools.count()
    last = [0]

    def endless(_: Any) -> Iterator[int]:
        while True:
            last[0] = next(made)
            yield last[0]

    stages = [lines.host(endless, threads=threads), lines.host(lambda n: n, threads=2), lines.host(lambda n: n)]
    with ck.Pipeline(stages, depth=4)(range(3)) as run:
        for taken in range(1, 200):
            next(run)
            # Each thread has as many under way as depth says, and one at hand.
            assert last[0] < taken + threads * 5
        time.sleep(0.05)
        assert last[0] < 200 + threads * 5


class Closing:
    """An endless source that says whether it was closed; the number of an item is its value."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[np.ndarray]:
        try:
            for number in itertools.count():
                yield np.full(2, number, np.float32)
        finally:
            self.closed.set()


@pytest.mark.parametrize("kind", KINDS)
def test_generators_are_closed_when_the_run_ends_early(stream: Any, kind: str) -> None:
    opened, closed = [0], [0]

    def work(x: Any, _: Any = None) -> Iterator[Any]:
        opened[0] += 1
        try:
            for number in range(40):
                yield x + number
        finally:
            closed[0] += 1

    source = Closing()
    with ck.Pipeline(wrapped(kind, work), stream=stream)(source) as run:
        for _ in range(3):
            next(run)
    assert source.closed.is_set()
    assert opened == closed
    assert opened[0] >= 1


def test_a_device_stage_that_yields_none_and_graphs_that_cannot_yield(stream: Any) -> None:
    def forgetful(x: Any, _: Any) -> Iterator[Any]:
        yield None

    with pytest.raises(ck.PipelineError, match=r"stage 'forgetful' .* on item 0: .* it returned None"):
        list(ck.Pipeline([forgetful], stream=stream)(items(2)))
    with pytest.raises(ck.PipelineError, match=r"stage 'countdown' .*graph=True|graph.*it yields: with graph=True"):
        list(ck.Pipeline([countdown], stream=stream, graph=True)(items(2)))


@pytest.mark.parametrize("stages", [[lines.host(lambda x: (x for _ in range(2)))], [lambda x, _: (x for _ in ())]])
def test_chunks_that_are_dropped_or_doubled_are_no_array(stream: Any, stages: list[Any]) -> None:
    with pytest.raises(ck.ArgumentError, match="map_array: the stages made none or several results of chunk 0"):
        ck.Pipeline(stages, stream=stream).map_array(np.ones((6, 2)), chunk=2)


def test_the_last_chunk_may_not_be_doubled_either() -> None:
    def last_twice(x: np.ndarray) -> Iterator[np.ndarray]:
        yield x
        if x[0] == 4:
            yield x

    with pytest.raises(ck.ArgumentError, match="none or several results of chunk 2"):
        ck.Pipeline([lines.host(last_twice)]).map_array(np.arange(6.0), chunk=2)


def test_chunks_that_fail_are_never_skipped(stream: Any) -> None:
    pipeline = ck.Pipeline([fails_on(4)], stream=stream, on_error="skip")
    with pytest.raises(ck.PipelineError, match="on item 2: ValueError: no 4"):
        pipeline.map_array(np.arange(8.0), chunk=2)


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_names_go_along(stream: Any, kind: str) -> None:
    errors: list[ck.PipelineError] = []
    pairs = ((f"frame {number}", item) for number, item in enumerate(items(6)))
    work = lambda x, _=None: countdown(fails_on(3)(x)) if number_of(x) != 5 else x  # noqa: E731
    run = ck.Pipeline(wrapped(kind, work), stream=stream, on_error=errors.append)(lines.ahead(lines.named(pairs)))
    found = [(run.name, number_of(result)) for result in run]
    assert found == [
        *[("frame 1", 1), ("frame 2", 2), ("frame 2-1", 1)],
        *[("frame 4", 4), ("frame 4-1", 3), ("frame 4-2", 2), ("frame 4-3", 1), ("frame 5", 5)],
    ]
    assert [(error.item, error.name) for error in errors] == [(3, "frame 3")]
    assert "failed on item 3 (frame 3): ValueError: no 3" in str(errors[0])


@pytest.mark.parametrize("threaded", [False, True])
def test_a_source_of_names_is_closed_and_woken(stream: Any, threaded: bool) -> None:
    class Pairs(Closing):
        woken = 0

        def __iter__(self) -> Iterator[Any]:
            return ((f"{number_of(item)}", item) for item in self.kept)

        def interrupt(self) -> None:
            self.woken += 1

    pairs = Pairs()
    pairs.kept = Closing.__iter__(pairs)  # type: ignore[attr-defined]
    source: Any = lines.ahead(lines.named(pairs)) if threaded else lines.named(pairs)
    with ck.Pipeline([lambda x, _: x], stream=stream)(source) as run:
        assert (number_of(next(run)), run.name) == (0, "0.0")
    assert pairs.woken == 1
    del pairs.kept  # type: ignore[attr-defined]
    assert pairs.closed.is_set()


def test_names_are_pairs() -> None:
    with pytest.raises(ck.ArgumentError, match="named: expected an iterable of pairs"):
        lines.named(3)  # type: ignore[arg-type]
    for wrong in (("a", 1, 2), 7, (7, "a")):
        with pytest.raises(ck.PipelineError, match=r"the source failed on item 0.*gives pairs \(str, item\)"):
            list(ck.Pipeline([lines.host(lambda x: x)])(lines.named([wrong])))  # type: ignore[list-item]


def test_images_keep_their_names_and_a_broken_one_is_skipped(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("cat", "dog", "emu", "fox")):
        lines.write_image(tmp_path / "in" / f"{name}.png", np.full((4, 5), number * 10, np.uint8))
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    (tmp_path / "in" / "dud.png").write_bytes(b"no picture")
    errors: list[ck.PipelineError] = []
    pipeline = ck.Pipeline([lines.host(lambda x: x + 1, threads=2)], on_error=errors.append)
    source = lines.from_images(tmp_path / "in", "L")
    assert pipeline.run(source, lines.to_images(tmp_path / "out", "{name}.png")) == 4
    written = {path.name: lines.from_images(path, "L") for path in sorted((tmp_path / "out").iterdir())}
    assert {name: int(next(iter(one))[0, 0]) for name, one in written.items()} == {
        "cat.png": 1, "dog.png": 11, "emu.png": 21, "fox.png": 31,
    }  # fmt: skip
    assert [(error.item, error.stage) for error in errors] == [(0, "source"), (3, "source")]
    assert "bad.png cannot be read" in str(errors[0])


@pytest.mark.parametrize("name", ["../up", "a/b", "", "..", "a\0b", "a\\b"])
def test_a_name_that_is_no_files_is_refused(tmp_path: Path, name: str) -> None:
    pytest.importorskip("PIL")
    pipeline = ck.Pipeline([lines.host(lambda x: x)])
    with pytest.raises(ck.ArgumentError, match="which is no file's"):
        pipeline.run(lines.named([(name, np.zeros((2, 2), np.uint8))]), lines.to_images(tmp_path / "out", "{name}.png"))
    assert not list(tmp_path.rglob("*.png"))


def test_no_file_is_written_twice(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    image = np.zeros((2, 2), np.uint8)
    pipeline = ck.Pipeline([lines.host(lambda x: x)])
    with pytest.raises(ck.ArgumentError, match=r"two results for the file a\.png; number them"):
        pipeline.run(lines.named([("a", image), ("b", image), ("a", image)]), lines.to_images(tmp_path, "{name}.png"))
    with pytest.raises(ck.ArgumentError, match="result 0 has the name None"):
        pipeline.run([image], lines.to_images(tmp_path, "{name}.png"))
    assert pipeline.run(lines.named([("a", image)] * 2), lines.to_images(tmp_path, "{name}-{}.png")) == 2
    with pytest.raises(ck.ArgumentError, match="cannot be formatted"):
        lines.to_images(tmp_path, "{title}.png")


# ── who is told ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_counters_count(stream: Any) -> None:
    stages = [lines.host(fails_on(2)), lambda x, _: countdown(x)]
    run = ck.Pipeline(stages, stream=stream, depth=2, on_error="skip")(items(5, 10))
    assert run.counters.items == run.counters.bytes == 0
    next(run)
    assert not run.counters.over
    assert 0 <= run.counters.under_way <= 4
    before = run.counters
    time.sleep(0.02)
    assert run.counters.elapsed_s >= before.elapsed_s + 0.02
    assert run.counters.waited_s == before.waited_s
    list(run)
    last = run.counters
    assert (last.items, last.failed, last.dropped, last.under_way, last.over) == (8, 1, 1, 0, True)
    assert last.bytes == 8 * 40
    assert last.items_per_s == pytest.approx(8 / last.elapsed_s)
    assert last.bytes_per_s == pytest.approx(320 / last.elapsed_s)
    assert 0 < last.waited_s <= last.elapsed_s
    assert run.counters == last


def test_what_failed_is_not_under_way() -> None:
    under_way: list[int] = []
    work = lines.host(fails_on(*range(1, 30)))
    run = ck.Pipeline([work], depth=2, on_error=lambda _: under_way.append(run.counters.under_way))(items(31))
    assert [number_of(result) for result in run] == [0, 30]
    assert len(under_way) == 29
    assert max(under_way) <= 2


def test_what_came_early_is_not_kept() -> None:
    def first_of_four_is_late(n: int) -> int:
        time.sleep(0.003 if n % 4 == 0 else 0)
        return n

    with ck.Pipeline([lines.host(first_of_four_is_late, threads=4)])(range(400)) as run:
        assert [next(run) for _ in range(300)] == list(range(300))
        assert len(run._nodes[-1].results._early) <= 20  # type: ignore[attr-defined]


def test_waiting_is_counted() -> None:
    def slow(n: int) -> int:
        time.sleep(0.01)
        return n

    run = ck.Pipeline([lines.host(slow)])(range(5))
    list(run)
    assert run.counters.waited_s >= 0.04


def test_a_callback_is_told_meanwhile_and_at_the_end() -> None:
    told: list[lines.Counters] = []

    def slow(n: int) -> int:
        time.sleep(0.04)
        return n

    assert list(ck.Pipeline([lines.host(slow)], progress=told.append)(range(8))) == list(range(8))
    assert len(told) >= 3
    assert [one.over for one in told] == [False] * (len(told) - 1) + [True]
    assert [one.items for one in told] == sorted(one.items for one in told)
    assert told[-1].items == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_raises_ends_the_run_and_is_not_called_again(stream: Any, kind: str) -> None:
    calls = []

    def tell(counters: lines.Counters) -> None:
        calls.append(counters.items)
        raise KeyError("display")

    source = Closing()
    results = []

    def consume() -> None:
        for result in ck.Pipeline(wrapped(kind, lambda x, _=None: x), stream=stream, progress=tell)(source):
            results.append(number_of(result))
            time.sleep(0.02)

    with pytest.raises(KeyError, match="display"):
        consume()
    assert results == list(range(calls[0]))
    assert len(calls) == 1
    assert source.closed.is_set()


def test_a_callback_that_raises_at_the_end_does_not_hide_the_error(stream: Any) -> None:
    def tell(counters: lines.Counters) -> None:
        raise KeyError("display")

    with pytest.raises(ck.PipelineError, match="no 1"):
        list(ck.Pipeline([fails_on(1)], stream=stream, progress=tell)(items(3)))
    with pytest.raises(KeyError, match="display"):
        list(ck.Pipeline([fails_on(9)], stream=stream, progress=tell)(items(3)))


def test_two_consumers_share_a_run_and_nothing_comes_twice(stream: Any) -> None:
    run = ck.Pipeline(wrapped("threads", countdown), stream=stream)(items(30))
    found: list[list[tuple[int, float]]] = [[], []]
    both = threading.Barrier(2)

    def consume(mine: list[Any]) -> None:
        both.wait()
        mine.extend(number_of(result) for result in run)

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [number - below for number in range(30) for below in range(number)]
    assert sorted([*found[0], *found[1]]) == sorted(expected)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ck.Pipeline([lambda x: x]), r"stage 1, stage, takes \(x\), and a bare function.*pipeline\.host\(func"),
        (lambda: ck.Pipeline([lines.host(lambda x, s: x)]), r"takes \(x, s\), and a stage of the host is called as fu"),
        (lambda: ck.Pipeline([lines.host(len)], on_error="ignore"), 'on_error is "raise", "skip" or a function'),
        (lambda: ck.Pipeline([lines.host(len)], on_error=None), 'on_error is "raise", "skip" or a function'),
        (lambda: ck.Pipeline([lines.host(len)], progress="yes"), "progress is True, False or a function"),
    ],
)
def test_misuse_is_said_at_once(make: Any, said: str) -> None:
    with pytest.raises(ck.ArgumentError, match=said):
        make()


def test_an_asynchronous_stage_is_refused() -> None:
    async def fetch(item: Any) -> Any:
        return item

    with pytest.raises(ck.ArgumentError, match="stage 1, fetch, is asynchronous"):
        ck.Pipeline([lines.host(fetch)])


def test_a_host_function_on_the_device_is_hinted_at(stream: Any) -> None:
    with pytest.raises(ck.PipelineError, match=r"TypeError: .*A stage of the device is .* of the host pipeline\.host"):
        list(ck.Pipeline([lambda x, *_: bytes(None)], stream=stream)(items(1)))  # type: ignore[call-overload]


# ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Collecting:
    """A sink that fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.items, self.ended = fails, list[float](), list[Any]()

    def __enter__(self) -> Collecting:
        if self.fails == "enter":
            raise OSError("enter")
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.ended.append(kind)
        if self.fails == "exit":
            raise OSError("exit")

    def write(self, item: Any) -> None:
        if self.fails == "write" and len(self.items) == 4:
            raise OSError("write")
        self.items.append(number_of(item))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", ["enter", "write", "exit"])
def test_a_sink_that_fails_is_not_skipped(stream: Any, kind: str, fails: str) -> None:
    sink, source = Collecting(fails), Closing()
    given: Any = items(8) if fails == "exit" else source
    with pytest.raises(OSError, match=fails):
        ck.Pipeline(wrapped(kind, lambda x, _=None: x), stream=stream, on_error="skip").run(given, sink)
    assert sink.items == {"enter": [], "write": [0, 1, 2, 3], "exit": list(range(8))}[fails]
    assert sink.ended == {"enter": [], "write": [OSError], "exit": [None]}[fails]
    assert fails == "exit" or source.closed.is_set() or not kind.startswith(("host", "threads"))


def test_a_file_holds_all_that_did_not_fail(tmp_path: Path, stream: Any) -> None:
    pipeline = ck.Pipeline([fails_on(1, 3), countdown], stream=stream, on_error="skip")
    assert pipeline.run(items(5, 2), lines.to_npy(tmp_path / "out.npy", stack=True)) == 6
    assert np.load(tmp_path / "out.npy")[:, 0].tolist() == [2, 1, 4, 3, 2, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


# ── for long ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_memory_stays_flat_where_items_fail_and_multiply(stream: Any, xp: Any) -> None:
    from support.pipelines import held

    def some(x: Any, _: Any = None) -> Any:
        number = int(number_of(x))
        if number % 3 == 1:
            raise ValueError("some")
        return (x + count for count in range(number % 4))

    stages = [lines.host(some, threads=2), lambda x, _: x + 1, lines.host(lambda x: x)]
    source = (np.full(5000, number % 100, np.float32) for number in range(3000))
    run = ck.Pipeline(stages, stream=stream, on_error="skip")(source)
    early = 0
    for count, _ in enumerate(run):
        if count == 800:
            early = held(xp)
    assert held(xp) <= early
    assert run.counters.failed == 990
