"""Tally of a launch: a `Record` of counts for each PTX instruction, while the launch runs."""

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
#: Categories in the order of display.
CATEGORIES = ("single", "half", "double", "integer", *get_args(Category))


def category_of(instr: Instruction) -> str:
    """Return the category of an instruction, one of `CATEGORIES`."""
    category = facts_of(instr).category
    if category == "special" and _precision(instr) is None:
        return "integer"  # a division of whole numbers
    return category or _precision(instr) or "integer"


def operations_of(instr: Instruction) -> tuple[Precision | None, float]:
    """Return the precision and number of an instruction's floating-point operations, for each lane.

    The operations of a matrix product are divided evenly among the lanes.
    """
    if category_of(instr) == "tensor":
        shape = next((match for modifier in instr.modifiers if (match := _SHAPE.fullmatch(modifier))), None)
        if shape is None or not {"mma", "mma_async"} & {instr.opcode, *instr.modifiers}:
            return None, 0
        # Operations of wgmma are those of a warpgroup: four warps.
        return "tensor", 2 * prod(map(int, shape.groups())) / (128 if instr.opcode == "wgmma" else 32)
    precision = _precision(instr)
    count = facts_of(instr).operations if precision is not None else 0
    return (precision, count * (2 if _type(instr).endswith("x2") else 1)) if count else (None, 0)


def _type(instr: Instruction) -> str:
    return next((modifier for modifier in reversed(instr.modifiers) if modifier in _PRECISIONS), "")


def _precision(instr: Instruction) -> Precision | None:
    return _PRECISIONS.get(_type(instr))


#: Most bytes of cached addresses.
_MOST_CACHED = 1 << 26
#: Consecutive misses after which an instruction's addresses are no longer cached.
_MOST_MISSED = 4
_RANK = np.uint64((1 << 24) - 1)


@dataclass(slots=True)
class Space:
    """Counts of loads, stores or atomic operations of one instruction on one memory space."""

    requests: int = 0
    lanes: int = 0
    bytes: int = 0
    #: Sectors, or wavefronts of shared memory; and the least possible.
    used: int = 0
    least: int = 0


@dataclass(slots=True)
class Cached:
    """Counts of an access at its last addresses, which loops repeat. They are stored relative to the first."""

    group: Group | None = None
    base: int = 0
    apart: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: tuple[int, int] = (0, 0)
    #: Consecutive misses.
    missed: int = 0


@dataclass(slots=True)
class Record:
    """An instruction of a kernel with its counts."""

    instr: Instruction
    category: str
    precision: str | None
    operations: float
    where: tuple[str, int]
    #: The source line.
    text: str
    accesses: tuple[Access, ...] = ()
    #: Whether accesses are not counted: of textures, bulk copies, tensor cores.
    unseen: bool = False
    warps: int = 0
    #: Lanes whose guard is true.
    lanes: int = 0
    #: Warps with a divergent branch; and whether the taken lanes were always the even or the odd ones.
    divergent: int = 0
    alternates: bool = True
    spaces: dict[tuple[str, str], Space] = field(default_factory=dict)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    #: Whether addresses in local memory differ between lanes, or between executions.
    dynamic: bool = False
    local_at: int = -1
    #: Of atomics: distinct addresses, and turns.
    addresses: int = 0
    rounds: int = 0


@dataclass(slots=True)
class Kernel:
    """A kernel: its launches, and records of its instructions by the ``id`` of the decoded instruction."""

    name: str
    launches: int = 0
    blocks: int = 0
    threads: int = 0
    #: Geometry of the last launch.
    geometry: Geometry = field(default_factory=lambda: Geometry((1, 1, 1), (1, 1, 1)))
    #: Compiled program, and the kernel's name in it.
    program: Program = field(default_factory=lambda: Program("", {}, {}))
    entry: str = ""
    #: Functions that have run.
    functions: dict[str, Function] = field(default_factory=dict)
    #: File, line and text of each source place.
    places: dict[Source, tuple[tuple[str, int], str]] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    #: Decoded instructions, kept alive so that their ``id`` stays unique.
    decoded: list[Decoded] = field(default_factory=list)


class Tally:
    """An observer of launches that counts instructions and accesses.

    Attributes
    ----------
    kernels : dict of str to Kernel
        Kernels by name.
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
        self._cached: dict[int, Cached] = {}
        self._cached_bytes = 0

    @property
    def footprint(self) -> int:
        """Bytes of the touched sectors of global memory, each counted once."""
        return self._touched.bytes

    def instruction(
        self, machine: Scheduler, function: Function, decoded: Decoded, frame: Frame, index: Index, active: Index
    ) -> None:
        """Count an instruction before it runs: see `cudakit.emulator.machine.machine.Observer`."""
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
            if record.category == "branch":
                self._count_divergent(record, group, active)
                return
            if active is not None and active.size == 0:
                return
            group = self._group(machine, active) if record.accesses else group
        for access in record.accesses:
            self._access(record, access, frame, active, group)

    def _count_divergent(self, record: Record, group: Group, active: Index) -> None:
        """Count the warps of `group` in which some lanes, but not all, take a branch.

        `active` are the lanes that take it. Also record whether the lanes that take it were always all even or all odd
        lanes.
        """
        if active is None or active.size == 0:
            record.alternates = False
            return
        taking = Group(group.machine, active)
        (all_of_them, lanes), (taking_warps, chosen) = group.sizes, taking.sizes
        divergent = int(np.count_nonzero(chosen < lanes[np.searchsorted(all_of_them, taking_warps)]))
        record.divergent += divergent
        if record.alternates:
            odd = taking.lane & 1
            record.alternates = (
                group.is_full
                and divergent == group.warps
                and bool((chosen == WARP // 2).all())
                and bool(((odd[1:] == odd[:-1]) | taking.is_first[1:]).all())
            )

    def _begin(self, machine: Scheduler) -> None:
        self._machine, self._groups, self._everybody = machine, [], None
        self._cached, self._cached_bytes = {}, 0
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
        for known_index, group in self._groups:
            if known_index is index:
                return group
        if index is None:
            if self._everybody is None:
                self._everybody = Group(machine, None)
            return self._everybody
        group = Group(machine, index)
        # The lanes of a basic block are asked for repeatedly, and the lanes of its guards.
        self._groups = [(index, group), *self._groups[:3]]
        return group

    def _record(self, machine: Scheduler, function: Function, decoded: Decoded) -> Record:
        instr = decoded.instruction
        context = machine.module.context(function)
        category = category_of(instr)
        precision, operations = operations_of(instr)
        accesses = accesses_of(instr, context)
        is_unseen = not accesses and bool(facts_of(instr).memory) and space_of(instr) not in ("param", "const")
        record = Record(
            instr, category, precision, operations, *self._where(instr, function, machine.launch), accesses, is_unseen
        )
        self._kernel.functions[function.name] = function
        self._kernel.records[id(decoded)] = record
        self._kernel.decoded.append(decoded)
        return record

    def _where(self, instr: Instruction, function: Function, launch: Launch) -> tuple[tuple[str, int], str]:
        """Return ``(file, line), text`` of an instruction's source line.

        The line is the innermost line in the kernel's own file. Without any source line, the line is that of the PTX,
        and the text is empty.
        """
        # Instructions before the first line count for that line.
        source = instr.source or next(
            (candidate.source for candidate in function.code if candidate.source is not None), None
        )
        if source is None:
            return (f"PTX of {launch.title}", instr.line), ""
        place = self._kernel.places.get(source)
        if place is None:
            place = self._kernel.places[source] = _place(source, launch)
        return place

    def _access(self, record: Record, access: Access, frame: Frame, index: Index, group: Group) -> None:
        machine = group.machine
        addresses = access.address(frame, index, machine)
        for space, where, lanes in by_space(access, record.instr, addresses, index, machine):
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
            used, least = self._global(counted, addresses, access.size, group)
        elif key[0] == "shared":
            unites = access.use == "loads" and not access.by_rows
            used, least = self._shared(unites, counted, addresses, access.size, group)
        elif space == "local":
            used, least = local_sectors(group, addresses, access.size)
            self._local(record, addresses)
        else:
            return
        counted.used += used
        counted.least += least
        if space != "local":
            self._note(record, key[0], addresses, group, access.size, used > least)

    def _atomics(
        self, record: Record, counted: Space, space: str, addresses: np.ndarray, size: int, group: Group
    ) -> None:
        shift = 0
        if space == "global":
            addresses, shift, _ = self._alignment.of(addresses, size)
            self._touched.touch(addresses, shift)
        distinct, rounds, touched = contention(group, addresses, shift)
        record.addresses, record.rounds = record.addresses + distinct, record.rounds + rounds
        if space == "global":
            counted.used += touched

    def _global(self, counted: Space, addresses: np.ndarray, size: int, group: Group) -> tuple[int, int]:
        """Return the number of sectors of an access to global memory, and the least number that holds its bytes.

        The sectors are added to the footprint. `counted` identifies the access in the cache of counts.
        """
        if group.is_full and evenly_apart(addresses):
            ends, shift, is_one = self._alignment.of(addresses[:: addresses.size - 1], size)
            if is_one:
                self._touched.touch_evenly(addresses, shift)
                # Each warp begins a multiple of 32 bytes behind the one before, so all warps have the same counts.
                step = (addresses[1:2] - addresses[:1]).view(np.int64)
                used, least = even_sectors(int(ends[0]) - shift & SECTOR - 1, int(step[0]), size)
                return group.warps * used, group.warps * least
        addresses, shift, is_one = self._alignment.of(addresses, size)
        self._touched.touch(addresses, shift)
        if not is_one:
            return sectors(group, addresses, size, shift)
        base = int(addresses[0]) - shift & SECTOR - 1
        return self._counted(lambda: sectors(group, addresses, size, shift), counted, group, base, addresses)

    def _shared(self, unites: bool, counted: Space, addresses: np.ndarray, size: int, group: Group) -> tuple[int, int]:
        """Return the number of wavefronts of an access to shared memory, and the least number without conflicts.

        `unites` says whether two parts of a load may share a pass: see `wavefronts`. `counted` identifies the access in
        the cache of counts.
        """
        times, first = 1, group.of_first_block
        if first is not None:
            by_block = addresses.reshape(-1, first.lanes)
            # Compare the last block first: it differs in most launches that are not uniform.
            if all((some == by_block[0]).all() for some in (by_block[-1], by_block)):
                times, group, addresses = group.machine.blocks, first, by_block[0]
        base = int(addresses[0]) & BANK_BYTES - 1
        used, least = self._counted(lambda: wavefronts(group, addresses, size, unites), counted, group, base, addresses)
        return times * used, times * least

    def _counted(
        self, count: Callable[[], tuple[int, int]], of: Space, group: Group, base: int, addresses: np.ndarray
    ) -> tuple[int, int]:
        """Return the result of `count`, cached for the last addresses of the access `of`.

        `base` is the first address's offset in its sector or bank. The result must depend only on `base`, the lanes,
        and the other addresses relative to the first.
        """
        cached = self._cached.get(id(of))
        if cached is None:
            # An access that runs once is not cached.
            self._cached[id(of)] = Cached()
            return count()
        if cached.missed >= _MOST_MISSED:
            return count()
        alike = cached.group is group and cached.base == base and addresses[-1] - addresses[0] == cached.apart[-1]
        apart = addresses - addresses[0]
        if alike and np.array_equal(apart, cached.apart):
            cached.missed = 0
            return cached.counts
        self._cached_bytes += apart.nbytes - cached.apart.nbytes
        if self._cached_bytes > _MOST_CACHED:
            self._cached, self._cached_bytes = {}, apart.nbytes
        self._cached[id(of)] = Cached(group, base, apart, count(), cached.missed + 1)
        return self._cached[id(of)].counts

    def _note(self, record: Record, space: str, addresses: np.ndarray, group: Group, size: int, wastes: bool) -> None:
        pattern = record.patterns.get(space)
        if pattern is None:
            pattern = record.patterns[space] = Pattern()
        if pattern.launch != self._kernel.launches and space == "global":
            _, shift, _ = self._alignment.of(addresses[:1], size)
            piece = group.machine.memory.piece(int(addresses[0]), size, READ)
            pattern.begin_launch(piece, shift, self._kernel.launches)
        if wastes:
            pattern.add(group, addresses)

    @staticmethod
    def _local(record: Record, addresses: np.ndarray) -> None:
        first = int(addresses[0])
        if not record.dynamic:
            record.dynamic = record.local_at not in (-1, first) or bool((addresses != addresses[0]).any())
            record.local_at = first


def _place(source: Source, launch: Launch) -> tuple[tuple[str, int], str]:
    chain = [source]
    while (caller := chain[-1].caller) is not None:
        chain.append(caller)
    own = next(source for source in chain if source.file == chain[-1].file)
    file, _, line = launch.placed(own.file, own.line).rpartition(":")
    text = "" if file.startswith("<") else linecache.getline(file, int(line)).rstrip()
    if not text and own.file == launch.source[0]:
        # The source has no file.
        text = "".join(launch.source[1].splitlines()[own.line - 1 : own.line])
    return (file, int(line)), text
