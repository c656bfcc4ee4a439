"""The order between streams, told by vector clocks, beside a brute-force happens-before over all pairs of uses."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudakit.streams.clocks import Clocks
from cudakit.streams.segments import COLD, MANY, Range, Spell, Use

X, Y = (0x1000, 0x2000), (0x4000, 0x5000)
LEFT, RIGHT, MIDDLE = (0x1000, 0x1800), (0x1800, 0x2000), (0x1400, 0x1C00)


def launch(clocks: Clocks, stream: str, reads: Any = (), writes: Any = ()) -> set[Any]:
    """Wait for what is needed and use; the streams that were waited for."""
    touched = clocks.touch(reads, writes)
    needed = clocks.needed(stream, touched)
    for use in needed:
        clocks.wait(stream, use)
    clocks.use(stream, touched)
    return {use.stream for use in needed}


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        ({"writes": [X]}, {"reads": [X]}, True),
        ({"reads": [X]}, {"writes": [X]}, True),
        ({"writes": [X]}, {"writes": [X]}, True),
        ({"reads": [X]}, {"reads": [X]}, False),
        ({"writes": [X]}, {"writes": [Y]}, False),
        ({"writes": [LEFT]}, {"writes": [RIGHT]}, False),
        ({"writes": [LEFT]}, {"reads": [MIDDLE]}, True),
        ({"writes": [X]}, {"reads": [MIDDLE]}, True),
        ({"writes": [MIDDLE]}, {"reads": [X]}, True),
        ({"writes": [X]}, {"writes": [(0x1800, 0x1800)]}, False),
        ({"reads": [X], "writes": [X]}, {"reads": [X]}, True),
    ],
)
def test_only_what_must_come_first_is_waited_for(first: Any, second: Any, waits: bool) -> None:
    clocks = Clocks()
    assert launch(clocks, "a", **first) == set()
    assert launch(clocks, "a", **second) == set()
    clocks = Clocks()
    launch(clocks, "a", **first)
    assert launch(clocks, "b", **second) == ({"a"} if waits else set())


def test_ranges_that_overlap_are_cut_before_they_are_given() -> None:
    clocks = Clocks()
    touched = clocks.touch([MIDDLE], [X, LEFT])
    parts = [(X[0], MIDDLE[0]), (MIDDLE[0], LEFT[1]), (LEFT[1], MIDDLE[1]), (MIDDLE[1], X[1])]
    assert [(segment.start, segment.stop) for segment in touched.written] == parts
    assert [[segment.start for segment in cover] for cover in touched.cut] == [
        [start for start, _ in parts],
        [start for start, _ in parts[:2]],
    ]
    assert touched.read == (), "all of it is written too"


def test_nobody_waits_for_uses_of_memory_that_is_gone() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    before = clocks.touch(writes=[X])
    clocks.forget_range(*MIDDLE)
    assert clocks.version != before.version
    assert [(segment.start, segment.stop) for segment in clocks.segments] == [
        (X[0], MIDDLE[0]),
        (MIDDLE[1], X[1]),
    ]
    assert launch(clocks, "b", reads=[MIDDLE]) == set()
    assert launch(clocks, "b", reads=[X]) == {"a"}
    clocks.forget_range(*Y)  # which nobody used
    assert launch(clocks, "c", writes=[Y]) == set()


def test_a_writer_waits_for_every_reader_and_the_next_one_for_it_alone() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    assert launch(clocks, "b", reads=[X]) == {"a"}
    assert launch(clocks, "c", reads=[X]) == {"a"}
    assert launch(clocks, "d", writes=[X]) == {"b", "c"}
    assert launch(clocks, "a", reads=[X]) == {"d"}


def test_a_wait_that_another_implies_is_left_out() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", reads=[X], writes=[Y])
    assert launch(clocks, "c", reads=[X, Y]) == {"b"}
    assert launch(clocks, "c", reads=[X]) == set()


def test_a_wait_is_for_the_use_and_not_for_what_came_later() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "a", writes=[Y])
    (use,) = clocks.needed("b", clocks.touch(reads=[X]))
    assert (use.stream, use.count) == ("a", 1)
    clocks.wait("b", use)
    assert launch(clocks, "b", reads=[Y]) == {"a"}


def test_a_wait_for_all_so_far_holds_for_later_uses_of_it() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    clocks.wait("b", clocks.now("a"))
    assert launch(clocks, "b", writes=[X]) == set()
    launch(clocks, "a", writes=[Y])
    assert launch(clocks, "b", writes=[Y]) == {"a"}


def test_what_the_host_has_seen_done_is_waited_for_by_nobody() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", reads=[X])
    done = clocks.now("b")
    clocks.finish(done)
    assert launch(clocks, "c", writes=[X]) == set()
    assert launch(clocks, "b", reads=[X]) == {"c"}


def test_memory_whose_uses_are_done_can_be_forgotten() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", writes=[Y])
    clocks.finish(clocks.now("a"))
    clocks.forget()
    assert len(clocks.segments) == 1
    assert launch(clocks, "c", writes=[X, Y]) == {"b"}


def test_memory_written_as_one_is_whole_again() -> None:
    clocks = Clocks()
    for start in range(0x1000, 0x2000, 0x100):
        launch(clocks, "a", writes=[(start, start + 0x100)])
    assert len(clocks.segments) == 16
    launch(clocks, "b", writes=[X])
    assert len(clocks.segments) == 1
    version = clocks.version
    launch(clocks, "a", reads=[X])
    launch(clocks, "a", writes=[X])
    assert clocks.version == version


def test_neighbours_that_are_written_together_stay_apart() -> None:
    """Two arrays may lie side by side; joining them would cut them again at each launch."""
    clocks = Clocks()
    launch(clocks, "a", writes=[LEFT, RIGHT])
    version = clocks.version
    launch(clocks, "a", writes=[LEFT, RIGHT])
    assert clocks.version == version
    assert len(clocks.segments) == 2


def test_uses_that_are_repeated_unseen_are_waited_for_as_of_their_end() -> None:
    clocks = Clocks()
    touched = clocks.touch(reads=[X])
    spell = Spell()
    clocks.use("a", touched).spell = spell
    clocks.wait("b", clocks.now("a"))
    (use,) = clocks.needed("b", clocks.touch(writes=[X]))
    assert use.spell is spell, "a wait put in before does not hold for repetitions after it"
    clocks.use("a", touched)
    (use,) = clocks.needed("b", clocks.touch(writes=[X]))
    assert use.spell is spell, "another use on the same stream does not hide the repeated one"
    spell.end = clocks.now("a")
    assert clocks.needed("b", clocks.touch(writes=[X])) == [spell.end]
    clocks.wait("b", spell.end)
    assert clocks.needed("b", clocks.touch(writes=[X])) == []


def test_uses_go_on_while_nobody_else_needs_the_memory() -> None:
    clocks = Clocks()
    read, written = clocks.touch(reads=[X]), clocks.touch(writes=[X])
    assert not clocks.goes_on("a", read)
    used = clocks.use("a", written)
    assert not clocks.goes_on("a", written)
    used.spell = Spell()
    assert clocks.goes_on("a", written)
    assert clocks.goes_on("a", read)
    assert not clocks.goes_on("b", read)
    clocks.use("b", read)
    assert clocks.goes_on("a", read)
    assert not clocks.goes_on("a", written), "the other stream reads it, by the user's own order"
    clocks.use("a", written)
    (segment,) = written.written
    segment.warmth = 1
    assert not clocks.goes_on("a", read)
    assert not clocks.goes_on("a", written)
    segment.warmth = 0
    used.spell.end = clocks.now("a")
    assert not clocks.goes_on("a", read)
    clocks.use("a", read).spell = Spell()
    assert clocks.goes_on("a", read)
    assert not clocks.goes_on("a", written), "what only reads may not be followed unseen by what writes"


def test_conflicts_tell_of_implied_ones_too() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", reads=[LEFT])
    found = clocks.conflicts("b", clocks.touch(writes=[X]))
    assert [(each.use.stream, each.overlap, each.hazard, each.implied) for each in found] == [
        ("a", LEFT, "write after write", True),
        ("a", RIGHT, "write after write", True),
    ]
    found = clocks.conflicts("c", clocks.touch(writes=[LEFT]))
    assert {(each.use.stream, each.hazard, each.implied) for each in found} == {
        ("a", "write after write", False),
        ("b", "write after read", False),
    }


def test_a_dropped_stream_is_in_no_clock() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", writes=[X])
    launch(clocks, "a", reads=[Y])
    clocks.drop(["a"])
    clocks.prune()
    assert "a" not in clocks.clocks.get("b", {})
    assert launch(clocks, "c", reads=[X], writes=[Y]) == {"b"}


def test_streams_of_which_nothing_is_remembered_are_in_no_clock() -> None:
    clocks = Clocks()
    for number in range(1000):
        assert launch(clocks, f"{number}", writes=[X]) == ({f"{number - 1}"} if number else set())
        if len(clocks.clocks) > 20:
            clocks.prune()
    assert max(map(len, clocks.clocks.values())) <= 21
    event = clocks.now("999")
    assert launch(clocks, "late", writes=[Y]) == set()
    clocks.wait("late", event)
    assert launch(clocks, "late", writes=[X]) == set()
    clocks.prune([event])
    assert clocks.is_before(event, "late")
    assert launch(clocks, "0", writes=[X]) == {"late"}


def again(clocks: Clocks, stream: str, **touches: Any) -> Any:
    """The step of uses that touch the same each time."""
    return functools.partial(clocks.step(stream, clocks.touch(**touches), 2), Use(stream, 0, {}))


def test_a_repeated_use_waits_for_the_last_of_several_on_one_stream() -> None:
    clocks = Clocks()
    step = again(clocks, "b", reads=[X, Y])
    for order in ([X], [Y]), ([Y], [X]):
        for writes in order:
            launch(clocks, "a", writes=writes)
        last = clocks.now("a").count - 1
        assert step(True).count == last
        assert launch(clocks, "b", writes=[X, Y]) == set()


def test_a_repeated_use_comes_after_what_comes_before_the_one_it_waits_for() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", reads=[X], writes=[Y])
    assert again(clocks, "c", reads=[Y])(True).stream == "b"
    assert launch(clocks, "c", reads=[X]) == set()
    assert clocks.needed("b", clocks.touch(reads=[X])) == [], "and no other stream's clock has changed"


def test_a_repeated_use_names_one_stream_or_none() -> None:
    clocks = Clocks()
    step = again(clocks, "c", reads=[X, Y])
    assert step(True) is COLD
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", writes=[Y])
    assert step(True) is MANY
    assert launch(clocks, "c", reads=[X, Y]) == {"a", "b"}
    assert step(True) is COLD


def test_memory_that_is_to_be_whole_again_is_not_noted_in_one_step() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[LEFT])
    assert again(clocks, "a", writes=[X])(True) is MANY


def test_a_repeated_use_tells_when_its_memory_is_cold() -> None:
    clocks = Clocks()
    step = again(clocks, "b", writes=[X])
    launch(clocks, "a", writes=[X])
    assert isinstance(step(True), Use)
    assert [step(True) for _ in range(3)] == [None, None, COLD]


def test_a_repeated_write_makes_memory_warm_that_another_stream_has_read() -> None:
    clocks = Clocks()
    step = again(clocks, "a", writes=[X])
    assert step(True) is COLD
    launch(clocks, "b", reads=[X])
    assert step(True).stream == "b"
    (segment,) = clocks.segments
    assert (segment.warmth, segment.reads) == (2, {})


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20])
def test_a_repeated_use_looks_at_every_segment(count: int) -> None:
    ranges = [(0x100 * k, 0x100 * k + 0x80) for k in range(1, count + 1)]
    for k in range(count):
        for of_reader, of_writer in (
            ({"reads": ranges}, {"writes": [ranges[k]]}),
            ({"writes": ranges}, {"reads": [ranges[k]]}),
        ):
            clocks = Clocks()
            step = again(clocks, "a", **of_reader)
            step(True)
            launch(clocks, "b", **of_writer)
            assert step(True).stream == "b"
            assert launch(clocks, "b", writes=[ranges[k]]) == {"a"}


# ── brute force ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Node:
    """A use in the brute-force order, with all nodes that happen before it."""

    stream: int
    bytes_read: set[int]
    bytes_written: set[int]
    before: set[int] = field(default_factory=set)

    def clashes(self, other: Node) -> bool:
        mine, its = self.bytes_read | self.bytes_written, other.bytes_read | other.bytes_written
        return bool(self.bytes_written & its or mine & other.bytes_written)


def ancestors(nodes: list[Node], stream: int, waits: list[set[int]]) -> set[int]:
    """Nodes before whatever `stream` is given next, which has waited for those and what is before them."""
    found = {index for index, node in enumerate(nodes) if node.stream == stream}.union(*waits)
    return found.union(*(nodes[index].before for index in found))


RANGES = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (min(pair), max(pair)))
#: Memory that is never cut.
WHOLE = st.sampled_from([(0, 4), (4, 8), (8, 12)])
JOINS = st.tuples(st.integers(0, 3), st.integers(0, 3))
FINISHES = st.integers(0, 3)


def programs(ranges: Any, most: int) -> Any:
    """Uses on four streams, streams that wait for streams, and the host that waits for streams."""
    uses = st.tuples(st.integers(0, 3), st.lists(ranges, max_size=2), st.lists(ranges, max_size=2))
    return st.lists(st.one_of(uses, uses, uses, uses, JOINS, FINISHES), max_size=most)


def addresses(ranges: list[Range]) -> set[int]:
    return set(itertools.chain.from_iterable(range(*each) for each in ranges))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(programs(RANGES, 25))
def test_waits_are_enough_and_none_is_too_many(program: list[Any]) -> None:
    check(program)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(programs(WHOLE, 40))
def test_repeated_uses_wait_for_enough_and_for_nothing_more(program: list[Any]) -> None:
    assert not program or check(program) >= 0


def test_uses_are_noted_in_one_step() -> None:
    one = [(0, [], [(0, 4)]), (1, [(0, 4)], [])]
    assert check(one * 10) == 20


def check(program: list[Any]) -> int:
    """Run a program beside brute force; how many uses were noted in one step."""
    repeats: dict[Any, tuple[int, Use]] = {}
    repeated = 0
    clocks = Clocks()
    nodes: list[Node] = []
    where: dict[tuple[Any, int], int] = {}
    joined: dict[int, list[set[int]]] = {stream: [] for stream in range(4)}
    finished: set[int] = set()

    def so_far(use: Use) -> set[int]:
        """Nodes that a wait for `use` is for."""
        latest = [index for (stream, count), index in where.items() if stream == use.stream and count <= use.count]
        return {latest[-1]} | nodes[latest[-1]].before if latest else set()

    for step in program:
        if isinstance(step, int):  # the host waits for a stream
            clocks.finish(clocks.now(step))
            finished |= ancestors(nodes, step, joined[step])
        elif len(step) == 2:  # a stream waits for all that another has
            stream, source = step
            if stream != source:
                clocks.wait(stream, clocks.now(source))
                joined[stream].append(ancestors(nodes, source, joined[source]))
        else:
            stream, reads, writes = step
            node = Node(stream, addresses(reads), addresses(writes))
            touched = clocks.touch(reads, writes)
            version, used = repeats.get(key := (stream, tuple(reads), tuple(writes)), (-1, None))
            if used is None or version != touched.version:
                used = Use(stream, 0, {})
                repeats[key] = touched.version, used
            found = clocks.step(stream, touched, 2)(used, True)
            is_noted = found is not MANY
            repeated += is_noted
            needed = clocks.needed(stream, touched) if not is_noted else [found] if isinstance(found, Use) else []
            must = {i for i, other in enumerate(nodes) if other.stream != stream and node.clashes(other)}
            waits = [so_far(use) for use in needed]
            known = [*joined[stream], finished]
            assert must <= ancestors(nodes, stream, [*known, *waits]), "a clash is not waited for"
            for left_out in range(len(waits)):
                fewer = [*known, *waits[:left_out], *waits[left_out + 1 :]]
                assert not must <= ancestors(nodes, stream, fewer), "a wait is not needed"
            node.before = ancestors(nodes, stream, [*known, *waits])
            if not is_noted:
                for use in needed:
                    clocks.wait(stream, use)
                used = clocks.use(stream, touched)
            joined[stream] += waits
            where[stream, used.count] = len(nodes)
            nodes.append(node)
    clocks.forget()
    starts = [(segment.start, segment.stop) for segment in clocks.segments]
    assert starts == sorted(starts)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(starts))
    return repeated
