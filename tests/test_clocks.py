"""The order between streams, told by vector clocks, beside a brute-force happens-before over all pairs of uses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudakit.clocks import Clocks
from cudakit.segments import Range, Spell, Use

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
    assert len(clocks) == 1
    assert launch(clocks, "c", writes=[X, Y]) == {"b"}


def test_memory_written_as_one_is_whole_again() -> None:
    clocks = Clocks()
    for start in range(0x1000, 0x2000, 0x100):
        launch(clocks, "a", writes=[(start, start + 0x100)])
    assert len(clocks) == 16
    launch(clocks, "b", writes=[X])
    assert len(clocks) == 1
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
    assert len(clocks) == 2


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


def test_conflicts_tell_of_implied_ones_too() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", reads=[LEFT])
    found = clocks.conflicts("b", clocks.touch(writes=[X]))
    assert [(each.use.stream, each.overlap, each.kind, each.implied) for each in found] == [
        ("a", LEFT, "write after write", True),
        ("a", RIGHT, "write after write", True),
    ]
    found = clocks.conflicts("c", clocks.touch(writes=[LEFT]))
    assert {(each.use.stream, each.kind, each.implied) for each in found} == {
        ("a", "write after write", False),
        ("b", "write after read", False),
    }


def test_a_dropped_stream_is_in_no_clock() -> None:
    clocks = Clocks()
    launch(clocks, "a", writes=[X])
    launch(clocks, "b", writes=[X])
    clocks.drop("a")
    assert "a" not in clocks._clocks.get("b", {})
    assert launch(clocks, "c", reads=[X]) == {"b"}


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
USES = st.tuples(st.integers(0, 3), st.lists(RANGES, max_size=2), st.lists(RANGES, max_size=2))
JOINS = st.tuples(st.integers(0, 3), st.integers(0, 3))
FINISHES = st.integers(0, 3)
PROGRAM = st.lists(st.one_of(USES, USES, USES, JOINS, FINISHES), max_size=25)


def addresses(ranges: list[Range]) -> set[int]:
    return set(itertools.chain.from_iterable(range(*each) for each in ranges))


@settings(max_examples=300, deadline=None)
@given(PROGRAM)
def test_waits_are_enough_and_none_is_too_many(program: list[Any]) -> None:
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
            needed = clocks.needed(stream, touched)
            must = {i for i, other in enumerate(nodes) if other.stream != stream and node.clashes(other)}
            waits = [so_far(use) for use in needed]
            known = [*joined[stream], finished]
            assert must <= ancestors(nodes, stream, [*known, *waits]), "a clash is not waited for"
            for left_out in range(len(waits)):
                fewer = [*known, *waits[:left_out], *waits[left_out + 1 :]]
                assert not must <= ancestors(nodes, stream, fewer), "a wait is not needed"
            for use in needed:
                clocks.wait(stream, use)
            node.before = ancestors(nodes, stream, [*known, *waits])
            used = clocks.use(stream, touched)
            joined[stream] += waits
            where[stream, used.count] = len(nodes)
            nodes.append(node)
    clocks.forget()
    starts = [(segment.start, segment.stop) for segment in clocks.segments]
    assert starts == sorted(starts)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(starts))
