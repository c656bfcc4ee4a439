"""Counts while a launch runs: for each instruction of the PTX a `Record`, which grows whenever lanes come to it."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias, get_args

import numpy as np

from cudakit.emulator.counters.requests import (
    BANK_BYTES,
    SECTOR,
    WARP,
    Alignment,
    Footprint,
    Group,
    Pattern,
    contention,
    even_sectors,
    evenly_apart,
    local_sectors,
    sectors,
    wavefronts,
)
from cudakit.emulator.instructions.access import Access, accesses_of, by_space, space_of
from cudakit.emulator.isa.facts import Category, facts_of
from cudakit.emulator.machine.decode import Decoded
from cudakit.emulator.machine.machine import Launch, Scheduler
from cudakit.emulator.machine.memory import READ, Index
from cudakit.emulator.machine.state import Frame, Geometry
from cudakit.emulator.ptx.program import Function, Instruction, Program, Source

Precision: TypeAlias = Literal["half", "single", "double", "tensor"]

_PRECISIONS: dict[str, Precision] = {
    "f16": "half", "f16x2": "half", "bf16": "half", "bf16x2": "half", "f32": "single", "f32x2": "single",
    "f64": "double",
}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Kinds in the order in which they are shown.
KINDS = ("single", "half", "double", "integer", *get_args(Category))


def kind_of(given: Instruction) -> str:
    """What an instruction is counted as, one of `KINDS`."""
    category = facts_of(given).category
    if category == "special" and _precision(given) is None:
        return "integer"  # a division of whole numbers
    return category or _precision(given) or "integer"


def operations_of(given: Instruction) -> tuple[Precision | None, float]:
    """Floating-point operations of each lane, and in which precision; those of a product of matrices shared evenly."""
    if kind_of(given) == "tensor":
        shape = next((match for modifier in given.modifiers if (match := _SHAPE.fullmatch(modifier))), None)
        if shape is None or not {"mma", "mma_async"} & {given.opcode, *given.modifiers}:
            return None, 0
        # Warpgroups, of four warps, do those of wgmma.
        return "tensor", 2 * prod(map(int, shape.groups())) / (128 if given.opcode == "wgmma" else 32)
    precision = _precision(given)
    count = facts_of(given).operations if precision is not None else 0
    return (precision, count * (2 if _type(given).endswith("x2") else 1)) if count else (None, 0)


def _type(given: Instruction) -> str:
    return next((modifier for modifier in reversed(given.modifiers) if modifier in _PRECISIONS), "")


def _precision(given: Instruction) -> Precision | None:
    return _PRECISIONS.get(_type(given))


#: Bytes of addresses that are remembered.
_MOST_SEEN = 1 << 26
#: How often in a row others come before an instruction's addresses are no longer remembered.
_MOST_MISSED = 4
_RANK = np.uint64((1 << 24) - 1)


@dataclass(slots=True)
class Space:
    """Requests of one kind to one space, so far."""

    requests: int = 0
    lanes: int = 0
    bytes: int = 0
    #: Sectors or, of shared memory, wavefronts; and the least that would do.
    taken: int = 0
    least: int = 0


@dataclass(slots=True)
class Seen:
    """Addresses that were looked at last: what counts is how they lie to each other, and in loops that repeats."""

    group: Group | None = None
    base: int = 0
    apart: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    found: tuple[int, int] = (0, 0)
    #: How often in a row others came.
    missed: int = 0


@dataclass(slots=True)
class Record:
    """One instruction of a kernel, and what it did."""

    given: Instruction
    kind: str
    precision: str | None
    operations: float
    where: tuple[str, int]
    #: The source line.
    text: str
    accesses: tuple[Access, ...] = ()
    #: Accesses that are not looked at: of textures, of bulk copies, of tensor cores.
    unseen: bool = False
    warps: int = 0
    #: Lanes whose guard holds.
    lanes: int = 0
    #: Warps of which a branch took some lanes along, and not others; and whether those were the even or the odd ones.
    parted: int = 0
    alternates: bool = True
    spaces: dict[tuple[str, str], Space] = field(default_factory=dict)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    #: Whether lanes' places in local memory differ, or have differed from one time to the next.
    dynamic: bool = False
    local_at: int = -1
    #: Of atomics: distinct addresses, and lanes that had to wait for each other.
    addresses: int = 0
    rounds: int = 0


@dataclass(slots=True)
class Kernel:
    """One kernel: its launches, and its instructions by the numbers that Python has for what is decoded of them."""

    name: str
    launches: int = 0
    blocks: int = 0
    threads: int = 0
    #: Of the launch at last.
    geometry: Geometry = field(default_factory=lambda: Geometry((1, 1, 1), (1, 1, 1)))
    #: What it was compiled to, and its name there.
    program: Program = field(default_factory=lambda: Program("", {}, {}))
    entry: str = ""
    #: Those that it has run.
    functions: dict[str, Function] = field(default_factory=dict)
    #: File, line and text of what the compiler names.
    places: dict[Source, tuple[tuple[str, int], str]] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    #: What is decoded stays alive, or its numbers would be given again.
    held: list[Decoded] = field(default_factory=list)


class Tally:
    """An observer of machines that counts what they do.

    Attributes
    ----------
    kernels : dict of str to Kernel
    """

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        self._touched = Footprint()
        self._launch: Launch | None = None
        self._machine: Scheduler | None = None
        self._kernel: Kernel = Kernel("")
        self._groups: list[tuple[Index, Group]] = []
        self._alignment: Alignment
        self._everybody: Group | None = None
        self._seen: dict[int, Seen] = {}
        self._seen_bytes = 0

    @property
    def footprint(self) -> int:
        """Bytes of the sectors of global memory that were touched, each counted once."""
        return self._touched.bytes

    def instruction(
        self, machine: Scheduler, function: Function, decoded: Decoded, frame: Frame, index: Index, active: Index
    ) -> None:
        """See `cudakit.emulator.machine.machine.Observer`."""
        if machine is not self._machine:
            self._begin(machine)
        record = self._kernel.records.get(id(decoded))
        if record is None:
            record = self._record(machine, function, decoded)
        group = self._group(machine, index)
        record.warps += group.warps
        if active is index:
            record.lanes += group.lanes
        else:
            record.lanes += machine.lanes if active is None else active.size
            if record.kind == "branch":
                self._part(record, group, active)
                return
            if active is not None and active.size == 0:
                return
            group = self._group(machine, active) if record.accesses else group
        for access in record.accesses:
            self._access(record, access, frame, active, group)

    def _part(self, record: Record, group: Group, active: Index) -> None:
        """Warps of `group` of which some lanes are active, and not all."""
        if active is None or active.size == 0:
            record.alternates = False
            return
        taking = Group(group.machine, active)
        (all_of_them, lanes), (taken, chosen) = group.sizes, taking.sizes
        parted = int(np.count_nonzero(chosen < lanes[np.searchsorted(all_of_them, taken)]))
        record.parted += parted
        if record.alternates:
            odd = taking.lane & 1
            record.alternates = (
                group.is_full
                and parted == group.warps
                and bool((chosen == WARP // 2).all())
                and bool(((odd[1:] == odd[:-1]) | taking.is_first[1:]).all())
            )

    def _begin(self, machine: Scheduler) -> None:
        self._machine, self._groups, self._everybody = machine, [], None
        self._seen, self._seen_bytes = {}, 0
        launch = machine.launch
        if launch is not self._launch:
            self._launch, self._alignment = launch, Alignment(machine.memory)
            self._kernel = self.kernels.setdefault(launch.title, Kernel(launch.title))
            self._kernel.launches += 1
            self._kernel.blocks += launch.geometry.blocks
            self._kernel.threads += launch.geometry.blocks * launch.geometry.threads
            self._kernel.geometry = launch.geometry
            self._kernel.program, self._kernel.entry = launch.module.program, launch.entry.name

    def _group(self, machine: Scheduler, index: Index) -> Group:
        for known, group in self._groups:
            if known is index:
                return group
        if index is None:
            if self._everybody is None:
                self._everybody = Group(machine, None)
            return self._everybody
        group = Group(machine, index)
        # The lanes of a block of code are asked for again and again, and those of the guards in it.
        self._groups = [(index, group), *self._groups[:3]]
        return group

    def _record(self, machine: Scheduler, function: Function, decoded: Decoded) -> Record:
        given = decoded.instruction
        context = machine.module.context(function)
        kind = kind_of(given)
        precision, operations = operations_of(given)
        accesses = accesses_of(given, context)
        is_unseen = not accesses and bool(facts_of(given).memory) and space_of(given) not in ("param", "const")
        record = Record(
            given, kind, precision, operations, *self._where(given, function, machine.launch), accesses, is_unseen
        )
        self._kernel.functions[function.name] = function
        self._kernel.records[id(decoded)] = record
        self._kernel.held.append(decoded)
        return record

    def _where(self, given: Instruction, function: Function, launch: Launch) -> tuple[tuple[str, int], str]:
        """File, line and text of an instruction: the innermost in the kernel's own file; without any, of the PTX."""
        # What the compiler puts before the first line is that line's.
        found = given.source or next((each.source for each in function.code if each.source is not None), None)
        if found is None:
            return (f"PTX of {launch.title}", given.line), ""
        known = self._kernel.places.get(found)
        if known is None:
            known = self._kernel.places[found] = _place(found, launch)
        return known

    def _access(self, record: Record, access: Access, frame: Frame, index: Index, group: Group) -> None:
        machine = group.machine
        addresses = access.address(frame, index, machine)
        for space, where, lanes in by_space(access, record.given, addresses, index, machine):
            of = group if lanes is index or lanes is None else Group(machine, lanes)
            self._count(record, access, space, where, of)

    def _count(self, record: Record, access: Access, space: str, addresses: np.ndarray, group: Group) -> None:
        key = space if space != "cluster" else "shared", access.use
        counted = record.spaces.get(key)
        if counted is None:
            counted = record.spaces[key] = Space()
        counted.requests += group.warps
        counted.lanes += group.lanes
        counted.bytes += group.lanes * access.size
        if space == "cluster" or access.by_rows:
            addresses = addresses & _RANK
        if access.use == "atomics":
            self._atomics(record, counted, key[0], addresses, access.size, group)
            return
        if key[0] == "global":
            taken, least = self._global(counted, addresses, access.size, group)
        elif key[0] == "shared":
            unites = access.use == "loads" and not access.by_rows
            taken, least = self._shared(unites, counted, addresses, access.size, group)
        elif space == "local":
            taken, least = local_sectors(group, addresses, access.size)
            self._local(record, addresses)
        else:
            return
        counted.taken += taken
        counted.least += least
        if space != "local":
            self._note(record, key[0], addresses, group, access.size, taken > least)

    def _atomics(
        self, record: Record, counted: Space, space: str, addresses: np.ndarray, size: int, group: Group
    ) -> None:
        shift = 0
        if space == "global":
            addresses, shift, _ = self._alignment.of(addresses, size)
            self._touched.touch(addresses, shift)
        distinct, rounds, taken = contention(group, addresses, shift)
        record.addresses, record.rounds = record.addresses + distinct, record.rounds + rounds
        if space == "global":
            counted.taken += taken

    def _global(self, counted: Space, addresses: np.ndarray, size: int, group: Group) -> tuple[int, int]:
        """Sectors, and the least of them."""
        if group.is_full and evenly_apart(addresses):
            ends, shift, is_one = self._alignment.of(addresses[:: addresses.size - 1], size)
            if is_one:
                self._touched.touch_evenly(addresses, shift)
                # Each warp begins a multiple of 32 bytes behind the one before, and does the same.
                step = (addresses[1:2] - addresses[:1]).view(np.int64)
                taken, least = even_sectors(int(ends[0]) - shift & SECTOR - 1, int(step[0]), size)
                return group.warps * taken, group.warps * least
        addresses, shift, is_one = self._alignment.of(addresses, size)
        self._touched.touch(addresses, shift)
        if not is_one:
            return sectors(group, addresses, size, shift)
        base = int(addresses[0]) - shift & SECTOR - 1
        return self._counted(lambda: sectors(group, addresses, size, shift), counted, group, base, addresses)

    def _shared(self, unites: bool, counted: Space, addresses: np.ndarray, size: int, group: Group) -> tuple[int, int]:
        """Wavefronts, and the least of them."""
        times, first = 1, group.of_first_block
        if first is not None:
            by_block = addresses.reshape(-1, first.lanes)
            # The last differs from the first in most that are not all alike.
            if all((some == by_block[0]).all() for some in (by_block[-1], by_block)):
                times, group, addresses = group.machine.blocks, first, by_block[0]
        base = int(addresses[0]) & BANK_BYTES - 1
        taken, least = self._counted(
            lambda: wavefronts(group, addresses, size, unites), counted, group, base, addresses
        )
        return times * taken, times * least

    def _counted(
        self, count: Callable[[], tuple[int, int]], of: Space, group: Group, base: int, addresses: np.ndarray
    ) -> tuple[int, int]:
        """What `count` says, which is the same where all addresses move, and the first has the same `base`."""
        known = self._seen.get(id(of))
        if known is None:
            # What runs once is not remembered.
            self._seen[id(of)] = Seen()
            return count()
        if known.missed >= _MOST_MISSED:
            return count()
        alike = known.group is group and known.base == base and addresses[-1] - addresses[0] == known.apart[-1]
        apart = addresses - addresses[0]
        if alike and np.array_equal(apart, known.apart):
            known.missed = 0
            return known.found
        self._seen_bytes += apart.nbytes - known.apart.nbytes
        if self._seen_bytes > _MOST_SEEN:
            self._seen, self._seen_bytes = {}, apart.nbytes
        self._seen[id(of)] = Seen(group, base, apart, count(), known.missed + 1)
        return self._seen[id(of)].found

    def _note(self, record: Record, space: str, addresses: np.ndarray, group: Group, size: int, wastes: bool) -> None:
        pattern = record.patterns.get(space)
        if pattern is None:
            pattern = record.patterns[space] = Pattern()
        if pattern.launch != self._kernel.launches and space == "global":
            _, shift, _ = self._alignment.of(addresses[:1], size)
            piece = group.machine.memory.piece(int(addresses[0]), size, READ)
            pattern.meet(piece, shift, self._kernel.launches)
        if wastes:
            pattern.add(group, addresses)

    @staticmethod
    def _local(record: Record, addresses: np.ndarray) -> None:
        first = int(addresses[0])
        if not record.dynamic:
            record.dynamic = record.local_at not in (-1, first) or bool((addresses != addresses[0]).any())
            record.local_at = first


def _place(given: Source, launch: Launch) -> tuple[tuple[str, int], str]:
    chain = [given]
    while (caller := chain[-1].caller) is not None:
        chain.append(caller)
    own = next(source for source in chain if source.file == chain[-1].file)
    file, _, line = launch.placed(own.file, own.line).rpartition(":")
    text = "" if file.startswith("<") else linecache.getline(file, int(line)).rstrip()
    if not text and own.file == launch.source[0]:
        # A text that stands in no file.
        text = "".join(launch.source[1].splitlines()[own.line - 1 : own.line])
    return (file, int(line)), text
