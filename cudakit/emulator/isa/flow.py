"""Control flow of a function: basic blocks, loops, an order of blocks for generated code, post-dominators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cudakit.emulator.isa.facts import facts_of, polls, sources, targets
from cudakit.emulator.ptx.program import Function, Immediate, Instruction, Operand, Register, Symbol


class Refusal(Exception):
    """Reason why a kernel runs on the NumPy interpreter or is not proved; it completes "it has {reason}"."""


@dataclass(slots=True)
class Block:
    """A basic block: instructions `first` to `last` - 1.

    The last instruction may branch, leave or wait at a barrier.
    """

    first: int
    last: int
    #: Blocks that may come next, a branch's target first, the following block last; `Flow.end` for leaving.
    successors: tuple[int, ...] = ()
    #: Whether the first instruction is a warp collective, and whether the last is a barrier.
    has_collective: bool = False
    has_barrier: bool = False
    predecessors: list[int] = field(default_factory=list)
    #: Headers of the loops around it, the outermost first.
    loops: tuple[int, ...] = ()


def is_collective(instr: Instruction) -> bool:
    """Return whether an instruction is a warp collective, at which lanes wait for each other.

    A warp collective begins a basic block.
    """
    return facts_of(instr).warp in ("mask", "all")


def member_mask(instr: Instruction) -> Operand:
    """Return the operand with the member mask of a warp collective with ``.sync``.

    If the collective takes all lanes, the operand is the constant 0xffffffff.
    """
    return Immediate(0xFFFF_FFFF) if facts_of(instr).warp == "all" else instr.operands[-1]


def is_barrier(instr: Instruction) -> bool:
    """Return whether threads wait for other threads of their block at an instruction."""
    return facts_of(instr).does == "waits"


def ends_block(instruction: Instruction) -> bool:
    """Return whether an instruction ends its basic block."""
    return facts_of(instruction).does in ("branches", "leaves", "waits")


class Flow:
    """Control flow of a function.

    Attributes
    ----------
    blocks : list of Block
        Basic blocks in the order of the text.
    end : int
        Block number that stands for leaving the function.
    loops : dict of int to set of int
        Block numbers of each loop, by the number of its header.
    order : list of int
        Reachable blocks, in an order in which forward edges go forward and a loop's blocks stand together, its header
        first.
    place : dict of int to int
        Index in `order` of each block, by block number.
    post : dict of int to int
        Immediate post-dominator of each reachable block, by block number.

    Raises
    ------
    Refusal
        If a loop has several entries, or a branch by a table has a guard.
    """

    code: list[Instruction]

    def __init__(self, function: Function) -> None:
        self.code = function.code
        self.blocks: list[Block] = _blocks(function)
        self.end: int = len(self.blocks)
        forward = _postorder(0, lambda n: self.blocks[n].successors if n < self.end else ())
        reached = self._reached = [number for number in reversed(forward) if number != self.end]
        for number in reached:
            for successor in self.blocks[number].successors:
                if successor != self.end and number not in self.blocks[successor].predecessors:
                    self.blocks[successor].predecessors.append(number)
        at = {number: place for place, number in enumerate(reached)}
        dominators = _dominators(0, reached, lambda n: self.blocks[n].predecessors)
        self.loops: dict[int, set[int]] = {}
        for number in reached:
            for successor in self.blocks[number].successors:
                if successor == self.end or at[successor] > at[number]:
                    continue
                if not _dominates(dominators, successor, number):
                    raise Refusal("a loop with several entries")
                self.loops.setdefault(successor, {successor}).update(self._around(successor, number))
        for number in reached:
            enclosing = [header for header, body in self.loops.items() if number in body]
            self.blocks[number].loops = tuple(sorted(enclosing, key=lambda header: -len(self.loops[header])))
        self.order: list[int] = self._laid_out(0, 0)
        self.place: dict[int, int] = {number: place for place, number in enumerate(self.order)}
        self.post: dict[int, int] = self._post_dominators(reached)

    def _around(self, header: int, tail: int) -> set[int]:
        """Return the blocks of the natural loop of the back edge from `tail` to `header`."""
        body, open_ = {header, tail}, [tail] if tail != header else []
        while open_:
            for before in self.blocks[open_.pop()].predecessors:
                if before not in body:
                    body.add(before)
                    open_.append(before)
        return body

    def _laid_out(self, entry: int, depth: int) -> list[int]:
        """Return the block numbers of a loop in order, or of all reachable blocks if `depth` is 0.

        `entry` is the loop's header. `depth` is the number of loops around its blocks, with the loop itself.
        The blocks of an inner loop stay together.
        """

        def unit(number: int) -> int:
            loops = self.blocks[number].loops
            return loops[depth] if len(loops) > depth else number

        def is_loop(number: int) -> bool:
            return len(self.blocks[number].loops) > depth

        inside = self.loops[self.blocks[entry].loops[depth - 1]] if depth else set(self._reached)

        def after(number: int) -> list[int]:
            members = self.loops[number] if is_loop(number) else (number,)
            outward = [to for member in members for to in self.blocks[member].successors if to in inside]
            return [unit(to) for to in outward if to != (entry if depth else -1) and unit(to) != number]

        laid: list[int] = []
        for number in reversed(_postorder(unit(entry), after)):
            laid += self._laid_out(number, depth + 1) if is_loop(number) else [number]
        return laid

    def _post_dominators(self, reached: list[int]) -> dict[int, int]:
        """Return the immediate post-dominator of each reachable block."""
        before: dict[int, list[int]] = {number: list(self.blocks[number].successors) for number in reached}
        # A block from which nothing leaves ends in the exit, too, so that each has one.
        leaving = set()
        open_ = [self.end]
        onto: dict[int, list[int]] = {}
        for number, successors in before.items():
            for successor in successors:
                onto.setdefault(successor, []).append(number)
        while open_:
            for number in onto.get(open_.pop(), ()):
                if number not in leaving:
                    leaving.add(number)
                    open_.append(number)
        for number in reached:
            if number not in leaving:
                before[number].append(self.end)
                onto.setdefault(self.end, []).append(number)
        backward = list(reversed(_postorder(self.end, lambda n: onto.get(n, ()))))
        return _dominators(self.end, backward, lambda n: before.get(n, ()))

    def until(self, starts: Iterable[int], stop: int) -> set[int]:
        """Return the blocks that can be reached from `starts` without passing the block `stop`.

        The result has the blocks of `starts`, but neither `stop` nor `end`.
        """
        reached: set[int] = set()
        open_ = [start for start in starts if start not in (stop, self.end)]
        while open_:
            number = open_.pop()
            if number in reached:
                continue
            reached.add(number)
            open_ += [after for after in self.blocks[number].successors if after not in (stop, self.end)]
        return reached


def _blocks(function: Function) -> list[Block]:
    """Split a function into basic blocks with their successors."""
    code = function.code
    starts = {0, *function.labels.values()}
    for number, instr in enumerate(code):
        if ends_block(instr):
            starts.add(number + 1)
        if is_collective(instr):
            starts.add(number)
    ordered = sorted(start for start in starts if start < len(code))
    number_of = {start: number for number, start in enumerate(ordered)}
    end = len(ordered)
    blocks = []
    for number, first in enumerate(ordered):
        last = ordered[number + 1] if number + 1 < end else len(code)
        follows = number + 1
        instr = code[last - 1]
        if instr.opcode == "bra":
            (target,) = instr.operands
            assert isinstance(target, Symbol)
            to = number_of.get(function.labels[target.name], end)
            successors: tuple[int, ...] = (to,) if instr.guard is None else (to, follows)
        elif instr.opcode == "brx":
            table = instr.operands[1]
            assert isinstance(table, Symbol)
            names = function.branch_targets[table.name]
            successors = tuple(number_of.get(function.labels[name], end) for name in names)
            if instr.guard is not None:
                raise Refusal("a guarded branch by a table")
        elif facts_of(instr).does == "leaves":
            successors = (end,) if instr.guard is None else (end, follows)
        else:
            successors = (follows,)
        blocks.append(Block(first, last, successors, is_collective(code[first]), is_barrier(instr)))
    return blocks


def _postorder(entry: int, after: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the nodes reachable from `entry` in postorder of a depth-first search."""
    visited, order = {entry}, []
    stack = [(entry, iter(after(entry)))]
    while stack:
        number, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            stack.pop()
            order.append(number)
        elif following not in visited:
            visited.add(following)
            stack.append((following, iter(after(following))))
    return order


def _dominators(entry: int, order: list[int], predecessors: Callable[[int], Iterable[int]]) -> dict[int, int]:
    """Return the immediate dominator of each block (Cooper, Harvey and Kennedy 2001); the entry's is the entry itself.

    `order` has the reachable blocks in reverse postorder.
    """
    place = {number: at for at, number in enumerate(order)}
    dominators = {entry: entry}

    def meet(a: int, b: int) -> int:
        while a != b:
            while place[a] > place[b]:
                a = dominators[a]
            while place[b] > place[a]:
                b = dominators[b]
        return a

    changed = True
    while changed:
        changed = False
        for number in order:
            if number == entry:
                continue
            new = None
            for before in predecessors(number):
                if before in dominators:
                    new = before if new is None else meet(new, before)
            assert new is not None
            if dominators.get(number) != new:
                dominators[number] = new
                changed = True
    return dominators


def _dominates(dominators: dict[int, int], above: int, below: int) -> bool:
    """Return whether the block `above` dominates the block `below`, or is the same."""
    while below != above:
        if dominators.get(below, below) == below:
            return False
        below = dominators[below]
    return True


# ── polling loops: loops that wait until other threads have written ──
# A vector that never yields to these threads would wait for ever.

#: Atomics that make progress by themselves, lane after lane.
_OWN = frozenset({"add", "inc", "dec"})


def polling(flow: Flow) -> set[int]:
    """Return the headers of polling loops: loops that end when other threads have changed memory."""
    headers = set()
    for header, body in flow.loops.items():
        inside = [instr for number in body for instr in flow.code[flow.blocks[number].first : flow.blocks[number].last]]
        askers = [instr for instr in inside if polls(instr)]
        if not askers:
            continue
        read = _derived_from(inside, {name for instr in inside if facts_of(instr).memory for name in targets(instr)})
        for instr in askers:
            if _asks_others(instr, read) and _leaves_by(flow, body, inside, set(targets(instr))):
                headers.add(header)
    return headers


def _asks_others(instr: Instruction, read: set[str]) -> bool:
    """Return whether an instruction of a loop, which `polls`, reads memory that other threads may write.

    `read` has the registers that the loop loads from memory, or computes from these. A ``cas`` that expects one of them
    does not count, nor do ``add``, ``inc`` and ``dec``; but adding 0 is a read.
    """
    if not _OWN.isdisjoint(instr.modifiers):
        addend = instr.operands[2]
        return "add" in instr.modifiers and isinstance(addend, Immediate) and addend.value == 0
    if "cas" in instr.modifiers:
        # A swap that expects the value read last succeeds unless another lane was first.
        expected = instr.operands[2]
        return not (isinstance(expected, Register) and expected.name in read)
    return True


def _derived_from(inside: list[Instruction], names: set[str]) -> set[str]:
    """Return the registers `names`, and all registers that the instructions compute from them."""
    names = set(names)
    changed = True
    while changed:
        changed = False
        for instr in inside:
            written = targets(instr)
            if written and not names.isdisjoint(sources(instr)) and not names.issuperset(written):
                names.update(written)
                changed = True
    return names


def _leaves_by(flow: Flow, body: set[int], inside: list[Instruction], names: set[str]) -> bool:
    """Return whether the registers `names`, or values computed from them in the loop, decide whether the loop is left.

    `body` has the loop's block numbers, and `inside` its instructions.
    """
    derived = _derived_from(inside, names)
    for number in body:
        block = flow.blocks[number]
        last = flow.code[block.last - 1]
        if any(after not in body for after in block.successors) and not derived.isdisjoint(sources(last)):
            return True
    return False
