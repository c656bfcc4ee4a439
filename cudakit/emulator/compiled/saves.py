"""What a vector saves where it waits, and loads where it goes on: what was written since, and what is asked for before
it waits again.
"""

from __future__ import annotations

from cudakit.emulator.compiled.flow import Flow, waits
from cudakit.emulator.compiled.shapes import Shapes, targets


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
        ends = {n: flow.blocks[n].successors[0] for n in flow.order if waits(code[flow.blocks[n].last - 1])}
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
