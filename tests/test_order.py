"""The order between streams, on streams that only write down what they are given: no GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudakit.order import Order
from cudakit.repeats import Repeat
from cudakit.streams import Known

X, Y, Z = (0x1000, 0x2000), (0x4000, 0x5000), (0x8000, 0x9000)


@dataclass(eq=False)
class Event:
    """A place on a stream, and whether the device has come there."""

    device: Device
    stream: Stream | None = None
    position: int = 0
    is_done_at_last: bool = False

    @property
    def is_done(self) -> bool:
        assert self.stream is not None
        if self.is_done_at_last or self.device.is_quick():
            self.device.done.add((self.stream.number, self.position))
            return True
        return False


@dataclass(eq=False)
class Stream:
    """Writes down launches by name, and waits as (stream, position)."""

    device: Device
    number: int
    given: list[Any] = field(default_factory=list)
    is_closed: bool = False
    captured: bool = False

    def record(self, event: Event | None = None) -> Event:
        assert not self.captured, "an event in a capture"
        assert not self.is_closed
        event = event or Event(self.device)
        event.stream, event.position = self, len(self.given)
        self.device.recorded += 1
        return event

    def wait(self, event: Event) -> None:
        assert not self.captured, "a wait in a capture"
        assert event.stream is not None
        self.given.append((event.stream.number, event.position))
        self.device.waits += 1


@dataclass(eq=False)
class Device:
    """Streams, and the order that events really make between them."""

    streams: list[Stream] = field(default_factory=list)
    done: set[tuple[int, int]] = field(default_factory=set)
    is_quick: Any = lambda: False
    recorded: int = 0
    waits: int = 0

    def stream(self) -> Known:
        made = Stream(self, len(self.streams))
        self.streams.append(made)
        return Known(made, made, 100 + made.number, 0)  # type: ignore[arg-type]

    def before(self, stream: int, position: int) -> set[str]:
        """Names of all launches that are done before what a stream is given at a position begins."""
        found: set[str] = set()
        seen: dict[int, int] = {}
        pending = [(stream, position)]
        while pending:
            number, until = pending.pop()
            if seen.get(number, -1) >= until:
                continue
            seen[number] = until
            for item in self.streams[number].given[:until]:
                if isinstance(item, str):
                    found.add(item)
                else:
                    pending.append(item)
        return found


class Path:
    """A launch that goes past the order once it has settled."""

    def __init__(self) -> None:
        self.settled = False

    def unsettle(self) -> None:
        self.settled = False


def launch(order: Order, target: Known, name: str = "f", reads: Any = (), writes: Any = (), **more: Any) -> Any:
    use = order.before(target, tuple(reads), tuple(writes), **more)
    target.given.given.append(name)
    order.after(use, name)
    return use


def test_one_stream_records_nothing() -> None:
    order, device = Order(), Device()
    one = device.stream()
    for _ in range(3):
        assert launch(order, one, writes=[X]) is None
    assert device.recorded == device.waits == 0
    path = Path()
    assert order.settle(None, path)


def test_a_second_stream_comes_after_what_was_not_recorded() -> None:
    order, device = Order(), Device()
    one, two = device.stream(), device.stream()
    launch(order, one, "a", writes=[X])
    launch(order, two, "b", writes=[Y])
    assert device.before(1, len(two.given.given)) == {"a", "b"}


def two_streams() -> tuple[Order, Device, Known, Known]:
    """An order that has seen two streams, neither of which has anything to wait for."""
    order, device = Order(), Device()
    one, two = device.stream(), device.stream()
    launch(order, one)
    launch(order, two)
    device.recorded = device.waits = 0
    return order, device, one, two


def test_reads_on_two_streams_wait_for_nothing() -> None:
    order, device, one, two = two_streams()
    launch(order, one, reads=[X])
    launch(order, two, reads=[X])
    launch(order, one, reads=[X], writes=[Y])
    launch(order, two, reads=[X], writes=[Z])
    assert device.waits == device.recorded == 0


def test_what_has_crossed_is_waited_for_exactly() -> None:
    order, device, one, two = two_streams()
    launch(order, one, "w1", writes=[X])
    launch(order, one, "long", writes=[Y])
    launch(order, two, "r1", reads=[X])
    assert "long" in device.before(1, len(two.given.given)), "nothing told that X would cross: all so far is waited for"
    launch(order, one, "w2", writes=[X])
    launch(order, one, "longer", writes=[Y])
    launch(order, two, "r2", reads=[X])
    assert {"w2"} == device.before(1, len(two.given.given)) & {"w2", "longer"}
    launch(order, one, "w3", writes=[X])
    assert device.before(0, len(one.given.given)) >= {"r1", "r2"}


def test_events_are_used_again() -> None:
    order, device, one, two = two_streams()
    device.is_quick = lambda: True
    events = set()
    for _ in range(100):
        for stream in (one, two):
            use = launch(order, stream, writes=[X])
            events.add(id(use.event))
    assert len(events) <= 40


def test_arguments_are_held_until_their_event_is_done() -> None:
    order, device, one, two = two_streams()
    launch(order, one, "w", writes=[X])
    launch(order, two, "r", reads=[X])
    track = order._tracks[two.handle]
    assert [things for _, things in track.held] == ["r"]
    order.release()
    assert track.held
    for name in ("r2", "r3"):
        launch(order, two, name, reads=[X])
    track.held[0][0].event.is_done_at_last = True
    order.release()
    assert [things for _, things in track.held] == ["r2", "r3"]
    device.is_quick = lambda: True
    order.release()
    assert not track.held


def test_work_of_unseen_others_is_waited_for_each_time() -> None:
    order, device, one, two = two_streams()
    for _ in range(3):
        device.waits = 0
        use = launch(order, one, reads=[X], producers=[two.handle])
        assert device.waits == 1
        assert use.event is not None
    assert not order.settle(use, Path())
    order, device = Order(), Device()
    one = device.stream()
    assert launch(order, one, reads=[X], producers=[one.handle]) is None


def test_what_has_settled_is_unsettled_by_whom_it_concerns_alone() -> None:
    order, device, one, two = two_streams()
    path = Path()
    use = launch(order, one, "w", reads=[X])
    path.settled = order.settle(use, path)
    assert path.settled
    launch(order, two, reads=[X])
    launch(order, two, writes=[Y])
    assert path.settled
    assert not device.waits
    one.given.given.append("again")
    launch(order, two, "v", writes=[X])
    assert not path.settled
    assert "again" in device.before(1, len(two.given.given))


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_repeat_does_not_hide_what_settled_before_it(kind: str) -> None:
    order, device, one, two = two_streams()
    path = Path()
    assert order.settle(launch(order, one, **{kind: [X]}), path)
    found = order.repeatable(one, (X,) if kind == "reads" else (), (X,) if kind == "writes" else ())
    assert found is not None
    run = lambda *launch: one.given.given.append("repeated")  # noqa: E731
    core: Any = one.core
    order.repeating(Repeat(None, (), core, None, run, None, *found, (), run, list))((), None)  # type: ignore[arg-type]
    one.given.given.append("settled")
    launch(order, two, writes=[X])
    assert device.before(1, len(two.given.given)) >= {"repeated", "settled"}


def test_a_repeat_of_warm_memory_does_not_hide_what_settled_while_it_was_cold() -> None:
    order, device, one, two = two_streams()
    launch(order, one, writes=[X])
    launch(order, two, reads=[X])
    path = Path()
    for _ in range(40):
        use = launch(order, one, reads=[X])
    assert order.settle(use, path)
    launch(order, one, writes=[Y])
    launch(order, two, reads=[X, Y])
    found = order.repeatable(one, (X,), ())
    assert found is not None
    core: Any = one.core
    nothing: Any = lambda *launch: None  # noqa: E731
    order.repeating(Repeat(nothing, (), core, nothing, nothing, None, *found, (), nothing, nothing))((), None)
    one.given.given.append("settled")
    launch(order, two, writes=[X])
    assert "settled" in device.before(1, len(two.given.given))


def test_memory_that_stays_grows_cold_and_settles_again() -> None:
    order, _, one, two = two_streams()
    launch(order, one, writes=[X])
    launch(order, two, writes=[X])
    path = Path()
    for _ in range(100):
        use = launch(order, two, writes=[X])
        if order.settle(use, path):
            break
    else:
        pytest.fail("X never settles")


def test_work_that_is_put_on_its_stream_late_is_not_done_early() -> None:
    """Of two threads that copy on one stream, the first to ask may be the last to act."""
    order, device, one, two = two_streams()
    launch(order, one, writes=[X])
    launch(order, one, writes=[Y])
    for each in (X, Y):
        launch(order, two, writes=[each])
    slow = order.before(one, (), (X,))
    launch(order, one, "quick", writes=[Y])
    device.is_quick = lambda: True
    order.release()
    device.is_quick = lambda: False
    one.given.given.append("slow")
    order.after(slow, "held")
    launch(order, two, writes=[X])
    assert "slow" in device.before(1, len(two.given.given))


def test_a_closed_stream_is_waited_for_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit import devices

    order, device, one, two = two_streams()
    synced: list[int] = []

    class Current:
        def sync(self) -> None:
            synced.append(1)

    monkeypatch.setattr(devices, "current_device", Current)
    monkeypatch.setattr(devices, "make_current", lambda device_id: None)
    launch(order, two, "w", writes=[X])
    two.given.is_closed = True
    launch(order, one, "r", reads=[X])
    assert synced
    assert not device.waits
    launch(order, one, "r", writes=[X])
    assert len(synced) == 1


def test_a_closed_streams_number_may_be_given_again() -> None:
    order, device, one, two = two_streams()
    launch(order, two, "w", writes=[X])
    launch(order, one, "r", reads=[X])
    launch(order, two, "w2", writes=[X])
    two.given.is_closed = True
    fresh = device.stream()
    fresh = Known(fresh.given, fresh.core, two.handle, 0)
    launch(order, fresh, "v", writes=[X])
    assert device.before(2, len(fresh.given.given)) >= {"w2"}


def test_two_objects_may_be_one_stream() -> None:
    order, device, _one, two = two_streams()
    twin = Known(two.given, Stream(device, two.given.number, two.given.given), two.handle, 0)  # type: ignore[arg-type]
    launch(order, two, writes=[X])
    for each in (two, twin, two, twin):
        launch(order, each, writes=[X])
    assert not device.waits


def test_manual_puts_in_no_waits_and_the_order_goes_on_after() -> None:
    order, device, one, two = two_streams()
    path = Path()
    with order.manual():
        launch(order, one, "w", writes=[X])
        path.settled = order.settle(launch(order, two, "v", writes=[Y]), path)
        order.watch(path)
        launch(order, two, "r", reads=[X])
        launch(order, two, "r2", reads=[Y], producers=[one.handle])
        assert not device.waits
    assert not path.settled
    launch(order, two, "r3", reads=[X])
    assert "w" in device.before(1, len(two.given.given))
    launch(order, one, "w2", writes=[X])
    assert "r" in device.before(0, len(one.given.given))


def test_memory_that_is_forgotten_is_still_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit import tracks as module

    monkeypatch.setattr(module, "_MOST_SEGMENTS", 20)
    order, device, one, two = two_streams()
    for stream in (one, two):
        stream.given.sync = lambda stream=stream: device.done.add((stream.given.number, len(stream.given.given)))
    monkeypatch.setattr(order, "_drop_closed", lambda: None)
    launch(order, one, "w", writes=[X])
    for number in range(100):
        launch(order, two, writes=[(0x10000 + 256 * number, 0x10000 + 256 * number + 256)])
    assert len(order._clocks) <= 21
    launch(order, two, "r", reads=[X])
    assert any(number == 0 and end > 1 for number, end in device.done) or "w" in device.before(1, len(two.given.given))


# ── any program ─────────────────────────────────────────────────────────────────────────────────────────────────────

RANGES = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)).map(lambda p: (0x100 + p[0], 0x100 + p[0] + p[1])),
                  max_size=2, unique=True)  # fmt: skip
LAUNCH = st.tuples(st.integers(0, 2), RANGES, RANGES, st.booleans())
REPEAT = st.integers(0, 30)
AGAIN = st.tuples(st.integers(0, 30))
PROGRAM = st.lists(st.one_of(LAUNCH, LAUNCH, REPEAT, AGAIN, AGAIN), max_size=40)


@settings(max_examples=400, deadline=None)
@given(PROGRAM, st.lists(st.booleans(), max_size=40), st.integers(1, 3))
def test_no_two_uses_clash_in_any_program(program: list[Any], quick: list[bool], warmth: int) -> None:
    """Launches that settle are repeated past the order, as generated code does, until they are told to stop."""
    from cudakit import order as module

    former, module._WARM = module._WARM, warmth
    try:
        order, device = Order(), Device()
        answers = iter(quick)
        device.is_quick = lambda: next(answers, False)
        targets = [device.stream() for _ in range(3)]
        launches: dict[str, tuple[int, int, set[int], set[int], set[str]]] = {}
        paths: list[tuple[Path, int, Any, Any]] = []
        repeats: list[Repeat] = []

        def note(stream: int, reads: Any, writes: Any) -> str:
            name = f"launch {len(launches)}"
            before = device.before(stream, len(targets[stream].given.given))
            for number, position in device.done:
                before |= device.before(number, position)
            mine = {a for r in reads for a in range(*r)}, {a for r in writes for a in range(*r)}
            for other, (source, _, its_reads, its_writes, _) in launches.items():
                clash = mine[1] & (its_reads | its_writes) or mine[0] & its_writes
                if source != stream and clash:
                    assert other in before, f"{name} on {stream} does not wait for {other} on {source}"
            launches[name] = (stream, 0, *mine, before)
            targets[stream].given.given.append(name)
            return name

        def noted(stream: int, reads: Any, writes: Any, *launch: Any) -> None:
            note(stream, reads, writes)

        def launched(stream: int, reads: Any, writes: Any, *launch: Any) -> Any:
            use = order.before(targets[stream], tuple(reads), tuple(writes))
            note(stream, reads, writes)
            order.after(use, None)
            return use

        for step in program:
            if isinstance(step, int):
                alive = [each for each in paths if each[0].settled]
                if alive:
                    path, stream, reads, writes = alive[step % len(alive)]
                    note(stream, reads, writes)
                continue
            if len(step) == 1:
                if repeats:
                    order.repeating(repeats[step[0] % len(repeats)])((), None)
                continue
            stream, reads, writes, settles = step
            use = launched(stream, reads, writes)
            path = Path()
            order.watch(path)
            if settles and (use is None or use.event is None) and order.settle(use, path):
                path.settled = True
                paths.append((path, stream, reads, writes))
            if (found := order.repeatable(targets[stream], tuple(reads), tuple(writes))) is not None:
                run = functools.partial(noted, stream, reads, writes)
                whole = functools.partial(launched, stream, reads, writes)
                core: Any = targets[stream].core
                repeats.append(Repeat(None, (), core, None, run, None, *found, (), whole, list))  # type: ignore[arg-type]
    finally:
        module._WARM = former
