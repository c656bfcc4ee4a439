"""Counts by name: of a source line, of a kernel, of a whole report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cudakit.emulator.counters.requests import SECTOR
from cudakit.emulator.counters.tally import CATEGORIES, Record, Space
from cudakit.emulator.isa.facts import facts_of


@dataclass(frozen=True, slots=True)
class Requests:
    """Loads, stores or copies of global or local memory.

    Attributes
    ----------
    requests : int
        Number of accesses of warps.
    accesses : int
        Number of accesses of threads.
    bytes : int
        Bytes that the threads asked for.
    sectors : int
        Sectors of 32 bytes touched by each request, summed.
    least_sectors : int
        Sectors that would hold the bytes of each request, summed.
    """

    requests: int = 0
    accesses: int = 0
    bytes: int = 0
    sectors: int = 0
    least_sectors: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes of the touched sectors."""
        return SECTOR * self.sectors

    @property
    def coalescing(self) -> float:
        """Touched sectors divided by the least possible number: 1 is best."""
        return self.sectors / self.least_sectors if self.least_sectors else 1.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, name) + getattr(other, name) for name in Requests.__slots__))


@dataclass(frozen=True, slots=True)
class SharedRequests:
    """Loads, stores or copies of shared memory.

    Attributes
    ----------
    requests, accesses, bytes : int
        Number of accesses of warps, number of accesses of threads, and bytes of the accesses, as in `Requests`.
    wavefronts : int
        Passes through the banks.
    least_wavefronts : int
        Passes without bank conflicts. A request takes one pass; with 8-byte accesses two, with 16-byte accesses four.
        Loads of the same address by neighbouring lanes take half as many.
    """

    requests: int = 0
    accesses: int = 0
    bytes: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond the least."""
        return self.wavefronts - self.least_wavefronts

    def __add__(self, other: SharedRequests) -> SharedRequests:
        return SharedRequests(*(getattr(self, name) + getattr(other, name) for name in SharedRequests.__slots__))


@dataclass(frozen=True, slots=True)
class Memory:
    """Accesses to global or local memory: loads, stores, and copies from the memory by ``cp.async``."""

    loads: Requests = Requests()
    stores: Requests = Requests()
    copies: Requests = Requests()

    @property
    def all(self) -> Requests:
        """Sum of loads, stores and copies."""
        return self.loads + self.stores + self.copies

    @property
    def requests(self) -> int:
        return self.all.requests

    @property
    def bytes(self) -> int:
        return self.all.bytes

    @property
    def sectors(self) -> int:
        return self.all.sectors

    @property
    def coalescing(self) -> float:
        return self.all.coalescing


@dataclass(frozen=True, slots=True)
class Shared:
    """Counters of requests to shared memory: loads, stores, and copies to it by ``cp.async``.

    Each counter has the requests, their wavefronts and their bank conflicts.
    """

    loads: SharedRequests = SharedRequests()
    stores: SharedRequests = SharedRequests()
    copies: SharedRequests = SharedRequests()

    @property
    def all(self) -> SharedRequests:
        """Sum of loads, stores and copies."""
        return self.loads + self.stores + self.copies

    @property
    def requests(self) -> int:
        return self.all.requests

    @property
    def wavefronts(self) -> int:
        return self.all.wavefronts

    @property
    def bank_conflicts(self) -> int:
        return self.all.bank_conflicts


@dataclass(frozen=True, slots=True)
class Atomics:
    """Atomic operations, on memory of any space.

    Attributes
    ----------
    requests : int
        Number of atomic operations of warps.
    operations : int
        Number of atomic operations of threads.
    sectors : int
        Sectors of 32 bytes of global memory, touched by each turn of each request, summed.
    addresses : int
        Distinct addresses in each request, summed.
    rounds : int
        Turns of each request, summed: the most threads of a request that name one address.
    """

    requests: int = 0
    operations: int = 0
    sectors: int = 0
    addresses: int = 0
    rounds: int = 0

    @property
    def contention(self) -> float:
        """Turns of a request, on average: 1 if no two threads of a warp name one address, 32 if all do."""
        return self.rounds / self.requests if self.requests else 1.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of executed instructions.

    Attributes
    ----------
    instructions : int
        Number of instructions of warps.
    thread_instructions : int
        Number of instructions of threads: an instruction of a warp counts once for each thread that takes part.
    kinds : dict of str to int
        Instructions of warps by category: ``single``, ``integer``, ``load``, …
    flops : dict of str to int
        Floating-point operations by precision (``half``, ``single``, ``double``, ``tensor``); ``fma`` is two.
    global_, local : Memory
        Accesses to global memory, and to local memory.
    shared : Shared
        Accesses to shared memory.
    atomics : Atomics
        Atomic operations.
    barrier_waits : int
        Arrivals of warps at a barrier of their block.
    branches, divergent_branches : int
        Branches of warps, and branches that only some threads of the warp took.
    not_counted : dict of str to int
        Instructions whose accesses are not in the counts of memory: of textures, bulk copies, ``wmma`` loads.
    """

    instructions: int = 0
    thread_instructions: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    global_: Memory = Memory()
    local: Memory = Memory()
    shared: Shared = Shared()
    atomics: Atomics = Atomics()
    barrier_waits: int = 0
    branches: int = 0
    divergent_branches: int = 0
    not_counted: dict[str, int] = field(default_factory=dict)

    @property
    def active_lanes(self) -> float:
        """Number of threads that take part in an instruction, on average; at most 32."""
        return self.thread_instructions / self.instructions if self.instructions else 32.0

    def to_dict(self) -> dict[str, Any]:
        """Return all counts as plain values, for JSON."""
        values = asdict(self)
        values["active_lanes"] = self.active_lanes
        values["shared"]["bank_conflicts"] = self.shared.bank_conflicts
        for name in ("global_", "local"):
            values[name]["coalescing"] = getattr(self, name).coalescing
        values["atomics"]["contention"] = self.atomics.contention
        values["global"] = values.pop("global_")
        return values


def counts_of(records: Iterable[Record]) -> Counts:
    """Return the sum of the counts of some instructions."""
    records = list(records)
    by_category = dict.fromkeys(CATEGORIES, 0)
    flops: dict[str, int] = {}
    not_counted: dict[str, int] = {}
    spaces: dict[tuple[str, str], list[Space]] = {}
    for record in records:
        by_category[record.category] += record.warps
        if record.precision is not None:
            flops[record.precision] = flops.get(record.precision, 0) + round(record.operations * record.lanes)
        if record.unseen:
            name = str(record.instr)
            not_counted[name] = not_counted.get(name, 0) + record.warps
        for key, counted in record.spaces.items():
            spaces.setdefault(key, []).append(counted)

    def of(space: str, use: str) -> tuple[int, ...]:
        entries = spaces.get((space, use), ())
        return tuple(sum(getattr(entry, name) for entry in entries) for name in Space.__slots__)

    atomic = [entry for (_, use), entries in spaces.items() if use == "atomics" for entry in entries]
    branches = [record for record in records if facts_of(record.instr).does == "branches"]
    return Counts(
        instructions=sum(record.warps for record in records),
        thread_instructions=sum(record.lanes for record in records),
        kinds={category: count for category, count in by_category.items() if count},
        flops=flops,
        global_=Memory(*(Requests(*of("global", use)) for use in ("loads", "stores", "copies"))),
        local=Memory(*(Requests(*of("local", use)) for use in ("loads", "stores"))),
        shared=Shared(*(SharedRequests(*of("shared", use)) for use in ("loads", "stores", "copies"))),
        atomics=Atomics(
            sum(entry.requests for entry in atomic),
            sum(entry.lanes for entry in atomic),
            of("global", "atomics")[3],
            sum(record.addresses for record in records),
            sum(record.rounds for record in records),
        ),
        barrier_waits=sum(record.warps for record in records if _is_block_barrier(record)),
        branches=sum(record.warps for record in branches),
        divergent_branches=sum(record.divergent for record in branches),
        not_counted=not_counted,
    )


def _is_block_barrier(record: Record) -> bool:
    return facts_of(record.instr).does == "waits" and "cluster" not in record.instr.modifiers


class Line(NamedTuple):
    """A source line with the counts of its instructions."""

    file: str
    line: int
    text: str
    counts: Counts


def lines_of(records: Iterable[Record]) -> list[Line]:
    """Return the lines with executed instructions, by file and number."""
    by_line: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_line.setdefault(record.where, []).append(record)
    return [
        Line(file, line, line_records[0].text or _instructions(line_records), counts_of(line_records))
        for (file, line), line_records in sorted(by_line.items())
    ]


def _instructions(records: list[Record]) -> str:
    return ", ".join(dict.fromkeys(str(record.instr) for record in records))
