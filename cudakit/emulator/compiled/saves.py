"""What a vector saves where it waits, and loads where it goes on: what was written since, and what is asked for before
it waits again. And where it saves it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.flow import Flow
from cudakit.emulator.compiled.shapes import Shapes
from cudakit.emulator.compiled.text import X, constant, lanes_of
from cudakit.emulator.isa.facts import targets


class Saves:
    """The registers to save before each wait of a kernel, and to load behind it, by the block that ends in the wait.

    Parameters
    ----------
    flow : Flow
    shapes : Shapes
    whole : bool
        Whether all that lives is to be saved and loaded at each: where some lanes of a vector wait without the others.
    """

    def __init__(self, flow: Flow, shapes: Shapes, whole: bool) -> None:
        code = flow.code
        ends = {n: flow.blocks[n].successors[0] for n in flow.order if flow.blocks[n].waits}
        live = {n: shapes.live_in[after] if after != flow.end else set[str]() for n, after in ends.items()}
        self.stores: dict[int, set[str]] = {n: set(names) for n, names in live.items()}
        self.loads: dict[int, set[str]] = {n: set(names) for n, names in live.items()}
        #: What is saved on the way from a block into a loop.
        self.entries: dict[tuple[int, int], set[str]] = {}
        if whole or any(targets(code[flow.blocks[n].last - 1]) for n in ends):
            return
        used = [read | (written & shapes.kept) for read, written in shapes.uses]
        # What an instruction with a guard may write is to be saved too.
        written = [{name for given in code[each.first : each.last] for name in targets(given)} for each in flow.blocks]
        changed = {0: set(shapes.live_in[0])}
        # Before a loop that waits all is saved, so that in the loop only what changes in it is.
        entered: set[tuple[int, int]] = set()
        for header, body in flow.loops.items():
            if header not in shapes.parted and not body.isdisjoint(ends):
                entered |= {(n, header) for n in flow.blocks[header].predecessors if n not in body | shapes.parted}
        self._spread(flow, changed, written, ends, entered)
        for number, header in entered:
            if number not in ends:
                out = changed.get(number, set()) | written[number]
                self.entries[number, header] = out & shapes.live_in[header]
        self.stores = {n: live[n] & (changed.get(n, set()) | written[n]) for n in ends}
        asked = self._asked(flow, used, [names - shapes.kept for _, names in shapes.uses], ends)
        self.loads = {n: live[n] & asked.get(after, set()) for n, after in ends.items()}

    def _spread(
        self,
        flow: Flow,
        changed: dict[int, set[str]],
        written: list[set[str]],
        ends: dict[int, int],
        entered: set[tuple[int, int]],
    ) -> None:
        """What may have been written since the last wait, at the beginning of each block."""
        open_ = list(flow.order)
        while open_:
            number = open_.pop(0)
            out = set() if number in ends else changed.get(number, set()) | written[number]
            for after in flow.blocks[number].successors:
                if after == flow.end or (number, after) in entered:
                    continue
                if not out <= changed.setdefault(after, set()):
                    changed[after] |= out
                    open_.append(after)

    def _asked(
        self, flow: Flow, used: list[set[str]], written: list[set[str]], ends: dict[int, int]
    ) -> dict[int, set[str]]:
        """What is read, or saved, before the next wait, at the beginning of each block."""
        asked: dict[int, set[str]] = {}
        moved = True
        while moved:
            moved = False
            for number in reversed(flow.order):
                out = set(self.stores[number]) if number in ends else set[str]()
                if number not in ends:
                    for after in flow.blocks[number].successors:
                        out |= asked.get(after, set()) | self.entries.get((number, after), set())
                new = used[number] | (out - written[number])
                if new != asked.get(number):
                    asked[number] = new
                    moved = True
        return asked


class States:
    """Where the vectors of a block save what they hold: bytes for each, the first eight of which say where it goes on.

    Attributes
    ----------
    at : X
        Where those of the vector at hand are.
    bytes : int
        How many a vector takes, known once all code is written (`end`).
    """

    at: X

    def __init__(self, b: Builder) -> None:
        self._b, self._text = b, b.text
        self._places: dict[tuple[str, str], int] = {}
        self.bytes = 64

    def of(self, states: X, vector: X) -> X:
        """The address of a vector's state."""
        return self._text.at(states.name, self._text.binary("mul", vector, X("i64", "%state.bytes")))

    def begin(self, states: X, vector: X) -> None:
        """Take the state of a vector for that at hand."""
        self.at = self.of(states, vector)

    def end(self) -> None:
        """Put in how many bytes a state takes."""
        self.bytes = -(-self.bytes // 64) * 64
        self._text.lines = [line.replace("%state.bytes", str(self.bytes)) for line in self._text.lines]

    def resume_at(self, number: int) -> None:
        """Write where the vector is to go on."""
        self._text.store(constant("i64", number), self.at.name)

    def place(self, name: str, part: str, type_: str) -> str:
        """Where a part of a register is saved, or something else with a name."""
        offset = self._places.get((name, part))
        if offset is None:
            element = X(type_, "").element
            bits = 8 if element == "i1" else int(element[1:])
            size = max(1, lanes_of(type_) * bits // 8)
            align = min(64, size)
            offset = self._places[name, part] = -(-self.bytes // align) * align
            self.bytes = offset + size
        return self._text.at(self.at.name, constant("i64", offset)).name

    def save(self, names: Iterable[str]) -> None:
        """Save registers."""
        self._move_all(names, load=False)

    def load(self, names: Iterable[str]) -> None:
        """Load registers as they were saved."""
        self._move_all(names, load=True)

    def _move_all(self, names: Iterable[str], load: bool) -> None:
        for name in sorted(names):
            for part, type_ in self._b.types_of(name):
                self.move(type_, self.place(name, part, type_), self._b.place_of(name, part), load)

    def move(self, type_: str, saved: str, place: str, load: bool) -> None:
        """A value between where it is saved and where it lives; masks as bits."""
        text, b = self._text, self._b
        if X(type_, "").element == "i1":
            bits = f"i{b.width}" if type_[0] == "<" else "i8"
            if load:
                raw = text.load(bits, saved)
                text.store(b.from_bits(raw) if type_[0] == "<" else text.cast("trunc", raw, "i1"), place)
            else:
                value = text.load(type_, place)
                text.store(b.bits(value) if type_[0] == "<" else text.cast("zext", value, "i8"), saved)
            return
        align = f", align {min(64, lanes_of(type_) * int(X(type_, '').element[1:]) // 8)}"
        if load:
            text.store(text.load(type_, saved, align), place)
        else:
            text.store(text.load(type_, place), saved, align)
