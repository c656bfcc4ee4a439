"""The order between streams, on streams that only write down what they are given: no GPU."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudakit.errors import LaunchError
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.order import Order
from cudakit.streams.repeating import Repeat, repeating
from cudakit.streams.segments import Spell, Use
from cudakit.streams.streams import DeviceStream

#: Numbers of the streams that others capture.
captured: set[int] = set()


@pytest.fixture(autouse=True, scope="module")
def _asked_here() -> Iterator[None]:
    """No driver is asked about these streams, nor how many GPUs this machine has: theirs is one."""
    with (
        mock.patch.object(streams, "is_captured", captured.__contains__),
        mock.patch.object(devices, "device_count", return_value=1),
    ):
        yield


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

    @property
    def handle(self) -> int:
        return 100 + self.number

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

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

    def stream(self) -> DeviceStream:
        made = Stream(self, len(self.streams))
        self.streams.append(made)
        return DeviceStream(made, made, 100 + made.number, 0)  # type: ignore[arg-type]

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


def launch(order: Order, target: DeviceStream, name: str = "f", reads: Any = (), writes: Any = (), **more: Any) -> Any:
    use = order.before(target, tuple(reads), tuple(writes), **more)
    target.stream.given.append(name)
    order.after(use, name)
    return use


def repeated(
    order: Order, target: DeviceStream, name: str, reads: Any = (), writes: Any = (), foreign: Any = (), **told: Any
) -> Any:
    """A launch that can be repeated, as generated code does with the same arrays."""
    errors: list[Exception] = told.get("errors", [])

    def run() -> None:
        if errors:
            raise errors.pop()
        target.stream.given.append(name)

    def look() -> None:
        told.get("middle", list)()
        launch(order, target, name, reads, writes, producers=foreign)

    found = order.repeatable(target, tuple(reads), tuple(writes))
    assert found is not None
    cool = told.get("cool", list)
    again = repeating(order, Repeat(run, cool, *found, tuple(foreign)))
    return lambda: again(told.get("bound", run), name) or look()


def test_one_stream_records_nothing() -> None:
    order, device = Order(), Device()
    one = device.stream()
    for _ in range(3):
        assert launch(order, one, writes=[X]) is None
    assert device.recorded == device.waits == 0
    path = Path()
    assert order.settle(None, path)


def test_the_only_stream_waits_for_others_work_and_is_reported_and_captured(known_streams: None) -> None:
    order, device = Order(), Device()
    one, foreign = device.stream(), device.stream()
    launch(order, one, writes=[X])
    assert order.before(one, (X,), (), (one.handle,)) is None
    with (
        mock.patch.object(streams, "of_handle", lambda handle: handle),
        mock.patch.object(streams, "wait_for") as waited,
    ):
        for producers in ((foreign.handle,), (one.handle, foreign.handle)):
            assert order.before(one, (X,), (), producers) is not None
    assert waited.mock_calls == [mock.call(one.core, foreign.handle)] * 2
    reported: list[Any] = []
    reporter: Any = SimpleNamespace(see=lambda *arguments: reported.append(arguments))
    with order.reporting(reporter):
        assert order.before(one, (X,), (), (one.handle,)) is not None
    assert len(reported) == 1
    with order.capturing(one.stream) as captured:
        assert order.before(one, (X,), (Y,), (one.handle,)) is not None
    assert (list(captured.reads), list(captured.writes)) == ([X], [Y])
    twin = DeviceStream(one.stream, Stream(device, one.stream.number, one.stream.given), one.handle, 0)  # type: ignore[arg-type]
    order.before(twin, (X,), (), (one.handle,))
    assert order.by_handle[one.handle].core is twin.core
    launch(order, device.stream(), writes=[X])
    assert order.before(twin, (X,), (), (one.handle,)) is not None


def test_a_second_stream_comes_after_what_was_not_recorded() -> None:
    order, device = Order(), Device()
    one, two = device.stream(), device.stream()
    launch(order, one, "a", writes=[X])
    launch(order, two, "b", writes=[Y])
    assert device.before(1, len(two.stream.given)) == {"a", "b"}


def two_streams() -> tuple[Order, Device, DeviceStream, DeviceStream]:
    """An order that has seen two streams, neither of which has anything to wait for."""
    order, device = Order(), Device()
    one, two = device.stream(), device.stream()
    launch(order, one)
    launch(order, two)
    device.recorded = device.waits = 0
    return order, device, one, two


def test_no_event_gets_into_what_others_capture() -> None:
    order, device, one, two = two_streams()
    for _ in range(4):  # it goes to and fro, so that each launch has an event
        launch(order, two, reads=[X], writes=[X])
        launch(order, one, reads=[X], writes=[X])
    order.by_handle[one.handle].core.captured = True  # which asserts that no event is recorded
    captured.add(one.handle)
    try:
        recorded = device.recorded
        for k in range(100):
            launch(order, one, f"captured {k}", writes=[X])
        assert order.repeatable(one, (), (X,)) is None
        assert device.recorded == recorded
        with pytest.raises(LaunchError, match="others capture"):
            launch(order, two, reads=[X])
    finally:
        captured.clear()
        order.by_handle[one.handle].core.captured = False
    launch(order, two, "after", reads=[X])
    assert "captured 99" in device.before(1, len(two.stream.given))
    kept = order.by_handle[one.handle].holdings
    assert any("captured 0" in str(things) for _, things in kept)


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
    assert "long" in device.before(1, len(two.stream.given)), (
        "nothing told that X would cross: all so far is waited for"
    )
    launch(order, one, "w2", writes=[X])
    launch(order, one, "longer", writes=[Y])
    launch(order, two, "r2", reads=[X])
    assert {"w2"} == device.before(1, len(two.stream.given)) & {"w2", "longer"}
    launch(order, one, "w3", writes=[X])
    assert device.before(0, len(one.stream.given)) >= {"r1", "r2"}


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
    track = order.by_handle[two.handle]
    assert [things for _, things in track.holdings] == ["r"]
    order.release()
    assert track.holdings
    for name in ("r2", "r3"):
        launch(order, two, name, reads=[X])
    track.holdings[0][0].event.is_done_at_last = True
    order.release()
    assert [things for _, things in track.holdings] == ["r2", "r3"]
    device.is_quick = lambda: True
    order.release()
    assert not track.holdings


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
    one.stream.given.append("again")
    launch(order, two, "v", writes=[X])
    assert not path.settled
    assert "again" in device.before(1, len(two.stream.given))


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_repeat_does_not_hide_what_settled_before_it(kind: str) -> None:
    order, device, one, two = two_streams()
    path = Path()
    assert order.settle(launch(order, one, **{kind: [X]}), path)
    repeated(order, one, "repeated", **{kind: [X]})()
    one.stream.given.append("settled")
    launch(order, two, writes=[X])
    assert device.before(1, len(two.stream.given)) >= {"repeated", "settled"}


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
    repeated(order, one, "repeated", reads=[X])()
    one.stream.given.append("settled")
    launch(order, two, writes=[X])
    assert "settled" in device.before(1, len(two.stream.given))


def warm_streams() -> tuple[Order, Device, DeviceStream, DeviceStream, list[str]]:
    """Two streams between which X has passed; a list of what happens besides."""
    order, device, one, two = two_streams()
    for stream in (one, two, one, two):
        launch(order, stream, "before", writes=[X])
    device.recorded = device.waits = 0
    return order, device, one, two, []


def test_repeats_wait_for_each_other_and_use_their_events_again() -> None:
    order, device, one, two, full = warm_streams()
    on_one = repeated(order, one, "on one", writes=[X], middle=lambda: full.append("one"))
    on_two = repeated(order, two, "on two", reads=[X], middle=lambda: full.append("two"))
    events = set()
    for turn in range(1, 10):
        on_one()
        on_two()
        assert (device.recorded, device.waits) == (2 * turn, 2 * turn)
        events |= {id(use.event) for track in order.by_handle.values() for use in track.repeated}
        assert device.before(1, len(two.stream.given) - 1) >= {"on one"}
    assert len(events) == 2
    assert not full
    order.release()
    held = [things for track in order.by_handle.values() for things in track.repeated.values()]
    assert sorted(held) == ["on one", "on two"]
    device.is_quick = lambda: True
    order.release()
    assert not any(track.repeated for track in order.by_handle.values())
    on_one()
    assert device.waits == 18, "what the host has seen done is waited for by nobody"


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("of", [X, Z, Y, (X[0], X[0] + 4), (Z[0] + 8, Z[1]), (Y[0], Y[1] - 1)])
@pytest.mark.parametrize("access", ["reads", "writes"])
def test_streams_that_take_turns_come_after_a_third_and_before_it(access: str, of: Any, settles: bool) -> None:
    """Both write X and Z and read Y; a third stream, or the other by another launch, uses memory between two turns."""
    order, device, one, two, _ = warm_streams()
    three = device.stream()
    launch(order, three, writes=[(0, 8)])
    turns = [repeated(order, stream, f"turn {k}", [Y], [X, Z]) for k, stream in enumerate((one, two))]
    for stream in (three, two, one):
        for _ in range(4):
            for turn in turns:
                turn()
        device.recorded = device.waits = 0
        turns[0]()
        turns[1]()
        assert (device.recorded, device.waits) == (2, 2)
        use = launch(order, stream, f"between {stream.handle}", **{access: [of]})
        if settles and use.event is None:
            order.settle(use, Path())
        before = len(one.stream.given)
        turns[0]()
        clashes = access == "writes" or of[0] != Y[0]
        assert (f"between {stream.handle}" in device.before(0, len(one.stream.given) - 1)) >= clashes
        one.stream.given[one.stream.given.index("turn 0", before)] = last = f"last turn beside {stream.handle}"
        launch(order, three, "after", writes=[Y])
        assert last in has_before(device, three)
        for turn in turns:
            turn()


@pytest.mark.parametrize("thirds", [0, 1, 3])
def test_turns_need_no_search_for_what_comes_first(thirds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both streams come after third ones. When one of these gets work between, it is searched once more."""
    order, device = Order(), Device()
    others = [device.stream() for _ in range(thirds)]
    one, two = device.stream(), device.stream()
    for stream in (*others, one, two, one, two):
        launch(order, stream, "before", writes=[X])
    searched: list[Any] = []
    step_of = order.clocks.step

    def counted(*parts: Any) -> Any:
        step = step_of(*parts)
        return lambda *use: searched.append(use) or step(*use)

    monkeypatch.setattr(order.clocks, "step", counted)
    turns = [repeated(order, stream, "turn", writes=[X]) for stream in (one, two)]
    for _ in range(3):
        turns[0]()
        turns[1]()
    searched.clear()
    device.recorded = device.waits = 0
    for _ in range(10):
        turns[0]()
        turns[1]()
    assert (device.recorded, device.waits) == (20, 20)
    assert not searched
    for other in others:
        launch(order, other, f"between {other.handle}", writes=[Y])
        launch(order, one, reads=[Y])
        for _ in range(2):
            turns[0]()
            turns[1]()
        assert f"between {other.handle}" in has_before(device, two)
        assert searched
        searched.clear()
        turns[0]()
        turns[1]()
        assert not searched
        device.waits = 0
        launch(order, two, reads=[Y])
        assert not device.waits, "it comes after the other by way of the turns"


@pytest.mark.parametrize("refused", ["wait", "launch", "record"])
def test_a_turn_that_is_refused_hides_nothing(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    order, device, one, two, _ = warm_streams()
    waited: list[Any] = []
    monkeypatch.setattr(Stream, "sync", lambda self: waited.append(self), raising=False)
    errors: list[Exception] = []
    turns = [repeated(order, stream, "turn", writes=[X], errors=errors) for stream in (one, two)]
    for _ in range(4):
        for turn in turns:
            turn()
    with monkeypatch.context() as patch:
        if refused == "launch":
            errors.append(ZeroDivisionError())
        else:
            patch.setattr(Stream, refused, mock.Mock(side_effect=ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            turns[0]()
    assert waited == [two.stream] * (refused == "wait")
    one.stream.given.append("perhaps")
    launch(order, two, "other", reads=[X])
    assert "perhaps" in has_before(device, two)
    turns[1]()
    turns[0]()
    assert "other" in has_before(device, one)


def test_no_other_threads_launch_comes_between_a_turns_wait_and_its_event() -> None:
    order, device, one, two, _ = warm_streams()
    turns = [repeated(order, stream, f"turn {k}", writes=[X]) for k, stream in enumerate((one, two))]
    for _ in range(3):
        for turn in turns:
            turn()
    other = threading.Thread(target=turns[1])
    is_waiting: list[bool] = []

    def launch_slowly() -> None:
        other.start()
        other.join(0.05)
        is_waiting.append(other.is_alive())
        one.stream.given.append("slow")

    found = order.repeatable(one, (), (X,))
    assert found is not None
    slow = repeating(order, Repeat(launch_slowly, list, *found, ()))
    slow(lambda: one.stream.given.append("first"), None)  # from now on it takes turns
    turns[1]()
    waits = device.waits
    slow(launch_slowly, None)
    assert device.waits == waits + 1
    other.join(5)
    assert is_waiting == [True]
    assert "slow" in device.before(1, len(two.stream.given) - 1)


def test_what_repeats_hold_is_looked_at_from_the_oldest_on() -> None:
    order, _device, one, _two, _ = warm_streams()
    repeats = [repeated(order, one, name, writes=[X]) for name in ("a", "b", "c")]
    for again in (*repeats, repeats[0]):
        again()
    order.release()
    track = order.by_handle[one.handle]
    assert list(track.repeated.values()) == ["a", "b", "c"]
    by_name = {name: use for use, name in track.repeated.items()}
    by_name["b"].event.is_done_at_last = True
    order.release()
    assert sorted(track.repeated.values()) == ["a", "c"]


def test_a_repeat_that_waits_for_two_streams_needs_no_full_look() -> None:
    order, device, one, two, full = warm_streams()
    three = device.stream()
    launch(order, three)
    told: Any = {"middle": lambda: full.append("full")}
    both = repeated(order, three, "both", reads=[X, Y], **told)
    on_one = repeated(order, one, "on one", writes=[X], **told)
    on_two = repeated(order, two, "on two", writes=[Y], **told)
    for turn in range(40):
        on_one()
        on_two()
        device.waits = 0
        both()
        assert device.waits == 2, turn
        assert {"on one", "on two"} <= device.before(2, len(three.stream.given) - 1)
    assert not full


def test_repeats_cool_down() -> None:
    order, _device, one, _two, told = warm_streams()
    again = repeated(order, one, "again", writes=[X], cool=lambda: told.append("cool"))
    again()
    for _ in range(order.warmth + 1):
        assert not told
        again()
    assert told == ["cool"]


def test_a_repeat_waits_for_the_unseen_each_time_and_once() -> None:
    order, device, one, two, full = warm_streams()
    again = repeated(order, one, "again", writes=[X], foreign=[two.handle], middle=lambda: full.append("full"))
    device.recorded = device.waits = 0
    for turn in range(1, 40):
        launch(order, two, "noted", writes=[X])
        two.stream.given.append("unseen")
        device.waits = 0
        again()
        assert device.waits == 1
        assert {"noted", "unseen"} <= device.before(0, len(one.stream.given)), turn
        two.stream.given[two.stream.given.index("unseen")] = "seen"
    assert not full


def test_a_launch_that_is_refused_hides_nothing() -> None:
    order, device, one, two, _ = warm_streams()
    errors: list[Exception] = []
    again = repeated(order, one, "again", writes=[X], errors=errors)
    again()
    launch(order, two, "between", writes=[X])
    errors.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        again()
    three = device.stream()
    order.origin = None
    launch(order, three, "last", reads=[X])
    assert {"again", "between"} <= device.before(2, len(three.stream.given))


@pytest.mark.parametrize("again", [False, True])
def test_a_wait_that_is_refused_is_made_by_the_host(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    order, _, one, two, _ = warm_streams()
    waited = []
    monkeypatch.setattr(Stream, "sync", lambda self: waited.append(self), raising=False)
    put = repeated(order, one, "put", writes=[X]) if again else functools.partial(launch, order, one, "put", writes=[X])
    put()
    launch(order, two, "between", writes=[X])
    with monkeypatch.context() as refused:
        refused.setattr(Stream, "wait", mock.Mock(side_effect=ZeroDivisionError))
        if again:  # which has the stream's own method already
            put = repeated(order, one, "put", writes=[X])
        with pytest.raises(ZeroDivisionError):
            put()
    assert waited == [two.stream]


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
    one.stream.given.append("slow")
    order.after(slow, "held")
    launch(order, two, writes=[X])
    assert "slow" in device.before(1, len(two.stream.given))


def test_late_work_is_waited_for_though_another_stream_came_between() -> None:
    order, device, one, two = two_streams()
    three = device.stream()
    for is_warm in (False, True):
        slow = order.before(one, (), (X,))
        assert slow is not None
        assert (slow.event is not None) is is_warm
        launch(order, two, reads=[X])
        one.stream.given.append("slow")
        order.after(slow, "held")
        launch(order, three, reads=[X])
        assert "slow" in device.before(2, len(three.stream.given))
        one.stream.given[one.stream.given.index("slow")] = "former"
    assert any("held" in [things for _, things in track.holdings] for track in order.by_handle.values())


def test_a_closed_stream_is_waited_for_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.streams import devices

    order, device, one, two = two_streams()
    synced: list[int] = []

    class Current:
        def sync(self) -> None:
            synced.append(1)

    monkeypatch.setattr(devices, "current_device", Current)
    monkeypatch.setattr(devices, "make_current", lambda device_id: None)
    launch(order, two, "w", writes=[X])
    two.stream.is_closed = True
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
    two.stream.is_closed = True
    fresh = device.stream()
    fresh = DeviceStream(fresh.stream, fresh.core, two.handle, 0)
    launch(order, fresh, "v", writes=[X])
    assert device.before(2, len(fresh.stream.given)) >= {"w2"}


def test_two_objects_may_be_one_stream() -> None:
    order, device, _one, two = two_streams()
    twin = DeviceStream(two.stream, Stream(device, two.stream.number, two.stream.given), two.handle, 0)  # type: ignore[arg-type]
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
    assert "w" in device.before(1, len(two.stream.given))
    launch(order, one, "w2", writes=[X])
    assert "r" in device.before(0, len(one.stream.given))


def test_a_path_is_listed_once_no_thread_goes_through_the_list() -> None:
    order, path = Order(), Path()
    thread = threading.Thread(target=order.watch, args=(path,))
    with order.lock:
        thread.start()
        thread.join(0.02)
        assert path not in order.fast_paths
    thread.join()
    assert path in order.fast_paths


def test_under_manual_what_settles_is_told_of_nothing_until_the_end() -> None:
    order, device, one, two, _ = warm_streams()
    three = device.stream()
    launch(order, three)
    first, second = Path(), Path()
    device.recorded = device.waits = 0
    with order.manual():
        for stream, path in ((one, first), (two, second)):
            order.watch(path)
            path.settled = order.settle(launch(order, stream, writes=[X]), path)
        launch(order, one, reads=[X])
        assert first.settled
        assert second.settled
        one.stream.given.append("unseen on one")
        two.stream.given.append("unseen on two")
        assert (device.recorded, device.waits) == (0, 0)
    assert not first.settled
    assert not second.settled
    for stream in (one, two, three, device.stream()):
        launch(order, stream, reads=[X])
        others = {"unseen on one", "unseen on two"}
        assert others <= device.before(stream.stream.number, len(stream.stream.given))


def test_under_manual_streams_that_share_nothing_do_not_wait_at_the_end() -> None:
    order, device, one, two = two_streams()
    for _ in range(2):
        with order.manual():
            for stream, memory in ((one, X), (two, Y)):
                order.settle(launch(order, stream, reads=[Z], writes=[memory]), Path())
    assert device.waits == 0


def test_under_manual_a_repeat_waits_for_nothing_and_leaves_what_can_settle() -> None:
    order, device, one, two, full = warm_streams()
    told: Any = {"middle": lambda: full.append("full")}
    again = repeated(order, one, "again", writes=[X], **told)
    third = repeated(order, one, "third", writes=[X], foreign=[two.handle], **told)
    with order.manual():
        device.recorded = device.waits = 0
        again()
        assert full == ["full"]
        launch(order, two, "other", writes=[Y])
        for _ in range(5):
            launch(order, two, writes=[X])
            third()
        assert device.waits == 0
        assert full == ["full"]
    launch(order, two, "after", reads=[X])
    assert "third" in device.before(1, len(two.stream.given))
    launch(order, one, "after", reads=[Y])
    assert "other" in device.before(0, len(one.stream.given)), "under manual nothing was waited for"


def test_memory_that_is_forgotten_is_still_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_MOST_SEGMENTS", 20)
    order, device, one, two = two_streams()
    for stream in (one, two):
        stream.stream.sync = lambda stream=stream: device.done.add((stream.stream.number, len(stream.stream.given)))
    monkeypatch.setattr(order, "_drop_closed", lambda: None)
    launch(order, one, "w", writes=[X])
    for number in range(100):
        launch(order, two, writes=[(0x10000 + 256 * number, 0x10000 + 256 * number + 256)])
    assert len(order.clocks.segments) <= 21
    launch(order, two, "r", reads=[X])
    assert any(number == 0 and end > 1 for number, end in device.done) or "w" in device.before(1, len(two.stream.given))


@pytest.mark.parametrize("memory", ["shared", "own", "read"])
@pytest.mark.parametrize("settles", [True, False])
def test_streams_that_are_done_are_forgotten(memory: str, settles: bool) -> None:
    """Streams that nobody waits for nor closes: what is remembered, and so the time of a launch, stays as it is."""
    order, device = Order(), Device()
    main, device.is_quick = device.stream(), lambda: True
    launch(order, main, writes=[X])
    sizes, path = [], Path()
    for number in range(2000):
        target = device.stream()
        own = (0x10000 + 256 * number, 0x10100 + 256 * number)
        touched = {"shared": ((), (X,)), "own": ((), (own,)), "read": ((X,), (own,))}[memory]
        use = launch(order, target, "f", *touched)
        assert "f" in device.before(target.stream.number, len(target.stream.given))
        if settles:
            order.settle(use, path)
        clocks = order.clocks
        known = [clocks.counts, clocks.clocks, clocks._finished, clocks.segments, *clocks.clocks.values()]
        sizes.append(max(len(order.by_handle), *map(len, known)))
    assert max(sizes) <= 3 * 64
    assert max(sizes[:500]) == max(sizes[-500:])


def test_a_forgotten_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_MANY", 2)
    order, device = Order(), Device()
    main, device.is_quick = device.stream(), lambda: True
    path = Path()
    launch(order, main, "a", writes=[X])
    streams = [device.stream() for _ in range(8)]
    for target in streams:
        path.settled = order.settle(launch(order, target, writes=[Y]), path)
    assert main.handle not in order.by_handle
    device.is_quick = lambda: False
    path.settled = order.settle(launch(order, main, "b", writes=[X]), path)
    launch(order, streams[0], "c", reads=[X])
    assert "b" in device.before(streams[0].stream.number, len(streams[0].stream.given))
    assert not path.settled


def test_work_on_a_stream_that_is_forgotten_before_it_is_put_there_is_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(order_module, "_MANY", 2)
    order, device = Order(), Device()
    main, device.is_quick = device.stream(), lambda: True
    launch(order, main)
    launch(order, device.stream())
    use = order.before(main, (), (X,))
    for _ in range(8):  # another thread's
        launch(order, device.stream(), writes=[Y])
    assert main.handle not in order.by_handle
    main.stream.given.append("late")
    device.is_quick = lambda: False
    order.after(use, None)
    for target in (device.stream(), device.stream()):
        launch(order, target, reads=[X])
        assert "late" in device.before(target.stream.number, len(target.stream.given))


# ── blocks, holds, captures and reports ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def known_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of `Device` are known by their objects, and no driver is asked about devices."""
    made = Device.stream

    def stream(device: Device) -> DeviceStream:
        found = made(device)
        streams._device_streams[id(found.stream)] = found
        return found

    monkeypatch.setattr(streams, "_device_streams", {})
    monkeypatch.setattr(Device, "stream", stream)
    monkeypatch.setattr(devices, "make_current", lambda device_id=None: False)


def has_before(device: Device, target: DeviceStream) -> set[str]:
    """Names of the launches before whatever a stream is given next."""
    return device.before(target.stream.number, len(target.stream.given))


def test_work_of_unseen_others_is_waited_for_on_the_only_stream() -> None:
    order, device = Order(), Device()
    one, other = device.stream(), device.stream()
    launch(order, one)
    sources = mock.patch.object(streams, "of_handle", lambda handle: (handle, "core"))
    with sources, mock.patch.object(streams, "wait_for") as waited:
        use = launch(order, one, "f", reads=[X], producers=[one.handle, other.handle])
    assert waited.mock_calls == [mock.call(one.core, (other.handle, "core"))]
    assert (use.count, use.clock) == (0, {})
    assert [things for _, things in order.by_handle[one.handle].holdings] == ["f"]
    assert use.event.position == 2
    assert order.single


def test_a_new_streams_first_work_waits_for_the_unseen_and_is_held(known_streams: None) -> None:
    order, device = Order(), Device()
    one = device.stream()
    with (
        mock.patch.object(streams, "of_handle", lambda handle: handle),
        mock.patch.object(streams, "wait_for") as waited,
    ):
        use = launch(order, one, "f", reads=[X], producers=[7, one.handle])
    assert waited.mock_calls == [mock.call(one.core, 7)]
    assert (use.stream, use.count, use.clock) == (order.by_handle[one.handle], 0, {})
    assert [things for _, things in use.stream.holdings] == ["f"]


def test_a_block_is_in_order_and_its_arrays_are_held(known_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[int] = []
    monkeypatch.setattr(devices, "make_current", current.append)
    order, device, one, two = two_streams()
    launch(order, two, "before", reads=[Y])
    with order.around(one.stream, [X], [Y]):
        assert has_before(device, one) >= {"before"}
        one.stream.given.append("block")
    assert current == [0]
    assert [things for _, things in order.by_handle[one.handle].holdings] == [None, (X, Y)]
    launch(order, two, "reader", reads=[X])
    assert "block" not in has_before(device, two)
    launch(order, two, "writer", writes=[X])
    assert "block" in has_before(device, two)


def test_a_block_that_fails_records_nothing(known_streams: None) -> None:
    order, device, one, two = two_streams()
    launch(order, two, writes=[X])
    device.recorded = 0

    def fail() -> None:
        with order.around(one.stream, [], [X]):
            device.recorded = 0
            1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert device.recorded == 0


def test_a_block_waits_for_the_streams_that_its_arrays_name(
    known_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = SimpleNamespace(__cuda_array_interface__={"data": (X[0], False), "stream": 101})
    asked: list[Any] = []
    original = order_module.producers_of
    monkeypatch.setattr(order_module, "producers_of", lambda *given: asked.append(given) or original(*given))
    monkeypatch.setattr(order_module, "span_of", lambda array: X)
    order, device, one, two = two_streams()
    two.stream.given.append("unseen")
    with order.around(one.stream, [array]):
        pass
    assert asked == [((array,), 0, one.handle)]
    assert "unseen" in has_before(device, one)


def test_streams_are_joined_by_events_or_by_word(known_streams: None) -> None:
    order, device, one, two = two_streams()
    launch(order, two, "w", writes=[X])
    order.join(one.core, two.core)
    assert "w" in has_before(device, one)
    waits = device.waits
    launch(order, one, reads=[X])
    assert device.waits == waits
    launch(order, two, "w2", writes=[X])
    waits = device.waits
    order.join(one.core, two.core, wait=False)
    launch(order, one, reads=[X])
    assert device.waits == waits, "the user has seen to it"


def test_streams_that_have_not_launched_or_are_captured_are_joined_past_the_order(
    known_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, device, one, two = two_streams()
    fresh = device.stream()
    asked: list[Any] = []
    monkeypatch.setattr(streams, "is_capturing", lambda stream: asked.append(stream) or stream is two.core)
    with mock.patch.object(streams, "wait_for") as waited:
        order.join(fresh.core, one.core)
        order.join(one.core, fresh.core)
        order.join(one.core, fresh.core, wait=False)
        assert not asked
        order.captures = 1
        order.join(one.core, two.core)
        order.join(two.core, one.core)
        order.captures = 0
        assert asked == [two.core, one.core]
        two.stream.is_closed = True
        order.join(one.core, two.core)
        order.join(two.core, one.core)
    pairs = [(fresh, one), (one, fresh), (one, two), (one, two), (two, one)]
    assert waited.mock_calls == [mock.call(first.core, second.core) for first, second in pairs]
    assert device.waits == 1, "the one of two that waits for a stream that is not captured"


def test_things_are_held_on_any_stream_until_it_is_done(known_streams: None) -> None:
    order, device, one, _two = two_streams()
    order.hold(one.core, "of one")
    fresh = device.stream()
    order.hold(fresh.core, "of a stream without launches")
    order.hold(fresh.core, "more")
    assert fresh.handle not in order.by_handle
    assert [things for _, things in order.by_handle[one.handle].holdings] == [None, "of one"]
    loose = order.loose[fresh.handle]
    assert [things for _, things in loose.holdings] == ["of a stream without launches", "more"]
    device.is_quick = lambda: True
    order.hold(fresh.core, "and the next lets go of what is done")
    assert not loose.holdings


def test_things_of_a_closed_streams_number_are_held_on_the_new_one(known_streams: None) -> None:
    order, device, one, _ = two_streams()
    one.stream.is_closed = True
    fresh = device.stream()
    fresh.stream.number = one.stream.number
    device.streams[one.stream.number] = fresh.stream
    streams._device_streams[id(fresh.stream)] = known = DeviceStream(fresh.stream, fresh.core, one.handle, 0)
    order.hold(known.core, "held")
    track = order.loose[one.handle]
    assert track.core is fresh.core
    assert [things for _, things in track.holdings] == ["held"]


def test_what_another_keeps_is_held_no_longer(known_streams: None) -> None:
    order, device, one, _two = two_streams()
    track = order.by_handle[one.handle]
    track.holdings.clear()
    for name in ("a", ""):
        order.hold(one.core, name)
    uses = [use for use, _ in track.holdings]
    track.repeated.update({Use(track, 1, {}): "r", Use(track, 2, {}): ""})
    order.hand_over(one.stream, lambda things: f"{things} still")
    assert [(use, things) for use, things in track.holdings] == [(uses[0], "a still"), (uses[1], "")]
    assert list(track.repeated.values()) == ["r still", ""]
    order.hand_over(device.stream().stream, lambda things: 1 / 0)
    with order.capturing(one.stream):
        order.hand_over(one.stream, lambda things: 1 / 0)


def test_a_capture_waits_once_and_keeps_what_is_captured(known_streams: None) -> None:
    order, device, one, two = two_streams()
    path = Path()
    path.settled = order.settle(launch(order, two, "w", writes=[X]), path)
    order.watch(path)
    closed = device.stream()
    launch(order, closed)
    closed.stream.is_closed = True
    with order.capturing(one.stream) as captured:
        assert not path.settled
        assert order.is_special
        assert "w" in has_before(device, one)
        waits, recorded = device.waits, device.recorded
        one.stream.captured = True
        use = launch(order, one, "captured", reads=[Y], writes=[X])
        order.hold(one.core, "held")
        assert (use.count, use.clock, use.event) == (0, {}, None)
        assert not order.settle(use, path)
        assert (device.waits, device.recorded) == (waits, recorded)
        # Others come after what the stream was given before the capture.
        launch(order, two, "v", writes=[X])
    one.stream.captured = False
    assert captured.things == ["captured", "held"]
    assert (list(captured.reads), list(captured.writes)) == ([Y], [X])
    assert not order.is_special
    assert order.captures == 0
    assert order.by_handle[one.handle].capture is None
    launch(order, one, "after", writes=[Y])
    assert order.by_handle[one.handle].capture is None


def test_a_stream_within_a_capture_appears_when_it_launches(known_streams: None) -> None:
    order, device, one, two = two_streams()
    inner, begun = device.stream(), device.stream()
    with order.capturing(one.stream):
        waits = device.waits
        with order.capturing(inner.stream):
            assert inner.handle in order.by_handle
            assert order.captures == 2
        assert inner.handle not in order.by_handle
        with order.capturing(two.stream):
            pass
        assert two.handle in order.by_handle
        assert device.waits == waits
    with order.capturing(begun.stream, begun=True):
        assert order.captures == 1
    assert begun.handle not in order.by_handle
    assert device.waits == waits


def test_an_error_ends_a_capture(known_streams: None) -> None:
    order, _device, one, _two = two_streams()
    with pytest.raises(ZeroDivisionError), order.capturing(one.stream):
        raise ZeroDivisionError
    assert (order.captures, order.is_special) == (0, False)


def test_work_on_a_stream_that_was_brought_into_a_capture_joins_it(
    known_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, _device, one, two = two_streams()
    joined: list[Any] = []
    capture = mock.Mock(join=joined.append)
    monkeypatch.setattr(streams, "current", lambda core: capture if core is two.core else None)
    launch(order, two)
    with order.capturing(one.stream):
        launch(order, one)
        assert joined == []
        launch(order, two, writes=[Y])
    assert joined == [two]


class Reports:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def see(self, stream: Any, touched: Any, clocks: Any, foreign: Any, ordered: bool, is_put: bool) -> str:
        ranges = [[(s.start, s.stop) for s in segments] for segments in touched[1:3]]
        self.told.append(
            (stream.handle, *ranges, list(foreign), ordered, is_put, len(clocks.conflicts(stream, touched)))
        )
        return f"note {len(self.told)}"


def test_reports_are_told_of_all_uses_and_the_last_one_alone(known_streams: None) -> None:
    order, device = Order(), Device()
    one = device.stream()
    path = Path()
    path.settled = order.settle(launch(order, one, writes=[X]), path)
    order.watch(path)
    first, second = Reports(), Reports()
    with order.reporting(first):
        assert order.is_special
        assert not path.settled
        use = launch(order, one, "a", reads=[X], writes=[Y])
        assert use.note == "note 1"
        assert [things for _, things in order.by_handle[one.handle].holdings] == ["a"]
        with order.reporting(second), order.manual():
            launch(order, one, "b", reads=[X], producers=[one.handle, 7])
        two = device.stream()
        launch(order, two, "c", writes=[X])
    launch(order, one)
    assert not order.is_special
    assert second.told == [(100, [X], [], [7], True, False, 0)]
    assert first.told == [(100, [X], [Y], [], True, True, 0), (101, [], [X], [], True, True, 1)]


def test_work_past_the_order_is_reported_and_noted(known_streams: None) -> None:
    order, device, one, two = two_streams()
    launch(order, one, "w", writes=[X])
    assert order.see_unordered(two.stream, (X,), ()) is None
    reports = Reports()
    waits = device.waits
    with order.reporting(reports):
        use = order.see_unordered(two.stream, (X,), (Y,))
        assert device.waits == waits
        assert use is not None
        assert use.note == "note 1"
        two.stream.given.append("past")
        order.after(use, "things")
        assert [things for _, things in order.by_handle[two.handle].holdings] == ["things"]
        with order.capturing(one.stream):
            assert order.see_unordered(one.stream, (X,), ()) is None
    assert reports.told == [(101, [X], [Y], [], False, False, 1)]
    launch(order, one, "later", writes=[Y])
    assert "past" in has_before(device, one)


def test_a_forked_child_has_a_lock_of_its_own() -> None:
    order, _device, _one, _two = two_streams()
    path = Path()
    path.settled = True
    order.watch(path)
    former = order.lock
    order.after_fork()
    assert order.lock is not former
    assert order.lock is order.lock
    assert not path.settled


# ── what is known of a stream ────────────────────────────────────────────────────────────────────────────────────────


def test_few_looks_are_taken_at_what_is_done() -> None:
    order, device, one, two = two_streams()
    asked: list[int] = []
    device.is_quick = lambda: bool(asked.append(1))
    for _ in range(5):
        launch(order, one, writes=[Y])
        launch(order, two, writes=[Z])
    assert asked == [], "nothing has crossed, and little is remembered"
    tracks = order
    first, second = tracks.by_handle[one.handle], tracks.by_handle[two.handle]
    device.is_quick = lambda: True
    for each in (one, two):
        order.clocks.finish(order.clocks.now(tracks.by_handle[each.handle]))
    tracks.record(order.clocks.now(second), "of the other")
    for number in range(1, 5):
        tracks.record(order.clocks.now(first), "own")
        tracks.look(first)
        assert not first.holdings
        assert bool(second.holdings) == (number < 4), "at times all are looked at"
    tracks.captures = 1
    tracks.record(order.clocks.now(first), "kept")
    tracks.look(first)
    order.release()
    assert first.holdings, "a question would spoil the capture"


def test_no_event_of_a_captured_stream_is_asked_about() -> None:
    order, device, one, two = two_streams()
    for each in (one, two):
        order.record(order.clocks.now(order.by_handle[each.handle]), "held")
    held = [order.by_handle[each.handle].holdings for each in (one, two)]
    former = len(held[0])
    device.is_quick = lambda: True
    captured.add(one.handle)
    try:
        order.release()
        assert (len(held[0]), len(held[1])) == (former, 0)
    finally:
        captured.clear()
    order.release()
    assert not held[0]


def test_a_stream_goes_by_its_newest_object() -> None:
    order, device, _one, two = two_streams()
    twin = DeviceStream(two.stream, Stream(device, two.stream.number, two.stream.given), two.handle, 0)  # type: ignore[arg-type]
    launch(order, twin, writes=[X])
    track = order.by_handle[two.handle]
    assert track.core is twin.core
    launch(order, two, writes=[X])
    assert order.by_handle[two.handle] is track
    assert track.core is two.core


def test_events_are_made_on_their_streams_device(monkeypatch: pytest.MonkeyPatch) -> None:
    order, device, one, _two = two_streams()
    entered: list[int] = []
    monkeypatch.setattr(devices, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "on_device", lambda number: entered.append(number) or contextlib.nullcontext())
    track = order.by_handle[one.handle]
    track.device_id = 5
    spent = Event(device)
    track.idle.append(spent)  # type: ignore[arg-type]
    order.record(order.clocks.now(track), "things")
    assert entered == [5]
    use, things = track.holdings[-1]
    assert (use.event, things, track.idle) == (spent, "things", [])
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    order.record(order.clocks.now(track), "more")
    assert entered == [5]
    track.unmarked.append("of a capture")
    order.record(order.clocks.now(track), "last")
    assert track.holdings[-1][1] == ("last", ["of a capture"])
    assert track.unmarked == []


def test_closed_streams_are_waited_for_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_MOST_CLOSED", 1)
    order, device, _one, _two = two_streams()
    synced: list[int] = []
    current: list[int] = []
    monkeypatch.setattr(devices, "current_device", lambda: SimpleNamespace(sync=lambda: synced.append(1)))
    monkeypatch.setattr(devices, "on_device", lambda number: current.append(number) or contextlib.nullcontext())
    device.is_quick = lambda: True
    gone = []
    for number in range(2):
        made = device.stream()
        launch(order, made, writes=[(0x10000 + 0x100 * number, 0x10100 + 0x100 * number)])
        gone.append(order.by_handle[made.handle])
        order.record(order.clocks.now(gone[-1]), "held")
        made.stream.is_closed = True
        twin = DeviceStream(made.stream, Stream(device, made.stream.number, made.stream.given), made.handle, 0)  # type: ignore[arg-type]
        launch(order, twin)
        assert order.by_handle[made.handle] is not gone[-1]
        assert len(order._closed) == (1, 0)[number]
    assert (synced, current) == ([1], [0])
    assert not any(track.holdings for track in gone)
    assert not {segment.write.stream for segment in order.clocks.segments if segment.write} & set(gone)


def test_streams_that_repeat_or_hold_something_are_not_forgotten() -> None:
    order, device = Order(), Device()
    known = [device.stream() for _ in range(5)]
    for each in known:
        launch(order, each)
    tracks = order
    idle, repeating_, held, moving, busy = (tracks.by_handle[each.handle] for each in known)
    for track in (idle, repeating_, held, moving, busy):
        track.holdings.clear()
        order.clocks.finish(order.clocks.now(track))
    path = Path()
    path.settled = True
    repeating_.spell = Spell()
    repeating_.settled.add(path)
    tracks.record(order.clocks.now(held), "held")
    moving.repeated[Use(moving, 1, {})] = "moves on"
    launch(order, known[4], writes=[X])
    assert not order.clocks.is_idle(busy)
    tracks.origin = order.clocks.now(idle)
    order.clocks.finish(tracks.origin)
    tracks.loose.update({901: tracks.new(known[0]), 902: tracks.new(known[1])})
    tracks.loose[902].holdings.append((order.clocks.now(busy), "kept"))
    tracks.loose[902].holdings[0][0].event = tracks.mark(busy).event
    tracks._retire()
    left = list(tracks.by_handle.values())
    assert left == [repeating_, held, moving, busy]
    assert not path.settled, "it asks again at its next launch"
    assert tracks.origin is None
    assert list(tracks.loose) == [902]
    assert tracks._most == order_module._MANY


def test_what_cannot_wait_is_waited_for_by_the_host() -> None:
    order, device, one, two = two_streams()
    three, four, five = (device.stream() for _ in range(3))
    for each in (three, four, five):
        launch(order, each)
    tracks = order
    of = {each.handle: tracks.by_handle[each.handle] for each in (one, two, three, four, five)}
    synced: list[int] = []

    def sync(number: int) -> None:
        synced.append(number)
        if number == three.stream.number:
            raise RuntimeError("refused")

    for each in (one, two, three, four, five):
        each.stream.sync = functools.partial(sync, each.stream.number)
    four.stream.is_closed = True
    of[five.handle].capture = order_module.Captured(order.clocks.now(of[five.handle]))
    touched = order.clocks.touch([X], [Y])
    launch(order, two, "w", writes=[Z])
    captured.add(one.handle)
    try:
        tracks.wait_on_host(of[five.handle], touched)
        of[five.handle].capture = None
        assert synced == [two.stream.number, three.stream.number]
        assert order.clocks.is_idle(of[two.handle])
        assert not order.clocks.is_idle(of[three.handle])
        uses = [segment.write for segment in (*touched.read, *touched.written)]
        assert [use.stream for use in uses if use] == [of[one.handle]] * 2, "whoever touches it next must still wait"
    finally:
        captured.clear()


def test_under_manual_a_capture_waits_for_what_crossed_when_both_are_over(known_streams: None) -> None:
    order, device, one, two = two_streams()
    path = Path()
    manual = order.manual()
    manual.__enter__()
    path.settled = order.settle(launch(order, one, "w", writes=[X]), path)
    launch(order, two, "r", reads=[X])
    assert order._crossed
    inner = device.stream()
    with order.capturing(inner.stream, begun=True):
        pass
    waits = device.waits
    assert order._crossed, "the user still orders them"
    capture = order.capturing(inner.stream, begun=True)
    capture.__enter__()
    manual.__exit__(None, None, None)
    assert order._crossed
    assert device.waits == waits
    capture.__exit__(None, None, None)
    assert not order._crossed
    assert device.waits > waits
    assert "r" in has_before(device, one)
    assert "w" in has_before(device, two)


def test_too_much_memory_is_forgotten_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_MOST_SEGMENTS", 8)
    order, _device, one, two = two_streams()
    synced: list[int] = []
    for each in (one, two):
        each.stream.sync = functools.partial(synced.append, each.stream.number)
    for number in range(8):
        launch(order, two, writes=[(0x100 * number, 0x100 * number + 0x80)])
    order.forget()
    assert (len(order.clocks.segments), synced) == (8, [])
    launch(order, two, writes=[(0x8000, 0x8080)])
    order.captures = 1
    order.forget()
    assert (len(order.clocks.segments), synced) == (9, [])
    order.captures = 0
    one.stream.is_closed = True
    order.forget()
    assert (len(order.clocks.segments), synced) == (0, [two.stream.number])
    assert order.clocks.is_idle(order.by_handle[two.handle])


# ── any program ─────────────────────────────────────────────────────────────────────────────────────────────────────

RANGES = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)).map(lambda p: (0x100 + p[0], 0x100 + p[0] + p[1])),
                  max_size=2, unique=True)  # fmt: skip
#: Memory that is never cut, so that launches can be repeated.
WHOLE = st.lists(st.sampled_from([(0x100, 0x101), (0x102, 0x103), (0x104, 0x105)]), max_size=2, unique=True)
REPEAT, AGAIN, TOGGLE = st.integers(0, 30), st.tuples(st.integers(0, 30)), st.just("manual")


def programs(ranges: Any, most: int) -> Any:
    """Launches on three streams; repeats of those that settled, and of any; blocks in which the user orders."""
    launch = st.tuples(st.integers(0, 2), ranges, ranges, st.booleans())
    return st.lists(st.one_of(launch, launch, REPEAT, AGAIN, AGAIN, AGAIN, TOGGLE), max_size=most)


def test_no_two_uses_clash_where_streams_take_turns() -> None:
    """Few launches, repeated in long turns, with others between."""
    for seed in range(200):
        choice = random.Random(seed)
        memory = [(start, start + 1) for start in range(0x100, 0x106, 2)] + [(0x100, 0x103)] * (seed % 4 == 3)
        launches = []
        for _ in range(choice.randrange(2, 6)):
            reads, writes = choice.sample(memory, choice.randrange(3)), choice.sample(memory, choice.randrange(1, 3))
            launches.append((choice.randrange(2 + seed % 2), reads, writes, choice.random() < 0.2))
        program: list[Any] = [*launches, *launches]
        for _ in range(12):
            pair = choice.randrange(len(launches)), choice.randrange(len(launches))
            program += [(number,) for number in pair * choice.randrange(2, 6)]
            program.append(choice.choice([*launches, 1, "manual", (choice.randrange(9),)]))
        check(program, [choice.random() < 0.2 for _ in range(40)], choice.randrange(1, 4), 9)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(programs(RANGES, 40), st.lists(st.booleans(), max_size=40), st.integers(1, 3), st.integers(1, 9))
def test_no_two_uses_clash_in_any_program(program: list[Any], quick: list[bool], warmth: int, most: int) -> None:
    check(program, quick, warmth, most)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(programs(WHOLE, 60), st.lists(st.booleans(), max_size=40), st.integers(1, 3), st.integers(1, 9))
def test_no_two_uses_clash_where_launches_are_repeated(
    program: list[Any], quick: list[bool], warmth: int, most: int
) -> None:
    check(program, quick, warmth, most)


def check(program: list[Any], quick: list[bool], warmth: int, most: int) -> None:
    """Launches that settle are repeated past the order, as generated code does, until they are told to stop.

    Where the user orders the streams, each launch waits for all others.
    """
    with mock.patch.object(order_module, "_MANY", most):
        check_order(Order(), program, quick, warmth)


def check_order(order: Order, program: list[Any], quick: list[bool], warmth: int) -> None:
    device = Device()
    order.warmth = warmth
    answers = iter(quick)
    device.is_quick = lambda: next(answers, False)
    targets = [device.stream() for _ in range(3)]
    launches: dict[str, tuple[int, set[int], set[int]]] = {}
    paths: list[tuple[Path, int, Any, Any]] = []
    repeats: list[Any] = []
    manual = contextlib.ExitStack()

    def note(stream: int, reads: Any, writes: Any, *launch: Any) -> None:
        given = targets[stream].stream.given
        if order.manual_blocks:
            given += [(other.number, len(other.given)) for other in device.streams if other.number != stream]
        name = f"launch {len(launches)}"
        before = device.before(stream, len(given))
        for number, position in device.done:
            before |= device.before(number, position)
        mine = {a for r in reads for a in range(*r)}, {a for r in writes for a in range(*r)}
        for other, (source, its_reads, its_writes) in launches.items():
            clash = mine[1] & (its_reads | its_writes) or mine[0] & its_writes
            if source != stream and clash:
                assert other in before, f"{name} on {stream} does not wait for {other} on {source}"
        launches[name] = (stream, *mine)
        given.append(name)

    def launched(stream: int, reads: Any, writes: Any, *launch: Any) -> Any:
        use = order.before(targets[stream], tuple(reads), tuple(writes))
        note(stream, reads, writes)
        order.after(use, None)
        return use

    for step in program:
        if step == "manual":
            if order.manual_blocks:
                manual.close()
            else:
                manual.enter_context(order.manual())
        elif isinstance(step, int):
            alive = [each for each in paths if each[0].settled]
            if alive:
                path, stream, reads, writes = alive[step % len(alive)]
                note(stream, reads, writes)
        elif len(step) == 1:
            if repeats:
                repeats[step[0] % len(repeats)]()
        else:
            stream, reads, writes, settles = step
            use = launched(stream, reads, writes)
            path = Path()
            order.watch(path)
            if settles and (use is None or use.event is None) and order.settle(use, path):
                path.settled = True
                paths.append((path, stream, reads, writes))
            if (found := order.repeatable(targets[stream], tuple(reads), tuple(writes))) is not None:
                run = functools.partial(note, stream, reads, writes)
                whole = functools.partial(launched, stream, reads, writes)
                again = repeating(order, Repeat(run, list, *found, ()))
                repeats.append(lambda again=again, run=run, whole=whole: again(run, None) or whole())
