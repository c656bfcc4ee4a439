"""Counts by name: of a source line, of a kernel, of everything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cudakit.emulator.counters.requests import SECTOR
from cudakit.emulator.counters.tally import KINDS, Record, Space
from cudakit.emulator.isa.facts import facts_of


@dataclass(frozen=True, slots=True)
class Requests:
    """Accesses of one kind to global or local memory.

    Attributes
    ----------
    requests : int
        Accesses of a warp.
    accesses : int
        Accesses of a thread.
    bytes : int
        What the threads asked for.
    sectors : int
        Of 32 bytes, touched by each request.
    least_sectors : int
        In which the bytes of each request would fit.
    """

    requests: int = 0
    accesses: int = 0
    bytes: int = 0
    sectors: int = 0
    least_sectors: int = 0

    @property
    def bytes_moved(self) -> int:
        """Those of the sectors."""
        return SECTOR * self.sectors

    @property
    def coalescing(self) -> float:
        """Sectors over the least possible: 1 is best."""
        return self.sectors / self.least_sectors if self.least_sectors else 1.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, name) + getattr(other, name) for name in Requests.__slots__))


@dataclass(frozen=True, slots=True)
class SharedRequests:
    """Accesses of one kind to shared memory.

    Attributes
    ----------
    requests, accesses, bytes : int
        As of `Requests`.
    wavefronts : int
        Passes through the banks.
    least_wavefronts : int
        Passes without bank conflicts: one a request; of 8-byte accesses two, of 16-byte ones four, or half of that
        where neighbouring lanes load the same.
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
    """Global or local memory: what was loaded and stored, and copied from it by ``cp.async``."""

    loads: Requests = Requests()
    stores: Requests = Requests()
    copies: Requests = Requests()

    @property
    def all(self) -> Requests:
        """All of them."""
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
    """Shared memory: what was loaded and stored, and copied to it by ``cp.async``."""

    loads: SharedRequests = SharedRequests()
    stores: SharedRequests = SharedRequests()
    copies: SharedRequests = SharedRequests()

    @property
    def all(self) -> SharedRequests:
        """All of them."""
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
    requests, operations : int
        Of warps, and of threads.
    sectors : int
        Of 32 bytes of global memory, touched by each turn of each request.
    addresses : int
        Distinct ones in each request, summed.
    rounds : int
        The most threads of a request that name one address, summed: how often they have to take turns.
    """

    requests: int = 0
    operations: int = 0
    sectors: int = 0
    addresses: int = 0
    rounds: int = 0

    @property
    def contention(self) -> float:
        """Turns of a request: 1 where no two threads of a warp ever name one address, 32 where all do."""
        return self.rounds / self.requests if self.requests else 1.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What instructions did.

    Attributes
    ----------
    instructions : int
        Of warps.
    thread_instructions : int
        Of threads: an instruction counts once for each that takes part.
    kinds : dict of str to int
        Instructions of warps by kind: ``single``, ``integer``, ``load``, …
    flops : dict of str to int
        Floating-point operations by precision (``half``, ``single``, ``double``, ``tensor``); ``fma`` is two.
    global_, local : Memory
    shared : Shared
    atomics : Atomics
    barrier_waits : int
        Warps that came to a barrier of their block.
    branches, divergent_branches : int
        Branches of warps, and those that some threads of the warp took and others did not.
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
        """Threads that take part in an instruction, on average; of 32."""
        return self.thread_instructions / self.instructions if self.instructions else 32.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        found = asdict(self)
        found["active_lanes"] = self.active_lanes
        found["shared"]["bank_conflicts"] = self.shared.bank_conflicts
        for name in ("global_", "local"):
            found[name]["coalescing"] = getattr(self, name).coalescing
        found["atomics"]["contention"] = self.atomics.contention
        found["global"] = found.pop("global_")
        return found


def counts_of(records: Iterable[Record]) -> Counts:
    """What some instructions did together."""
    records = list(records)
    kinds = dict.fromkeys(KINDS, 0)
    flops: dict[str, int] = {}
    not_counted: dict[str, int] = {}
    spaces: dict[tuple[str, str], list[Space]] = {}
    for record in records:
        kinds[record.kind] += record.warps
        if record.precision is not None:
            flops[record.precision] = flops.get(record.precision, 0) + round(record.operations * record.lanes)
        if record.unseen:
            name = str(record.given)
            not_counted[name] = not_counted.get(name, 0) + record.warps
        for key, found in record.spaces.items():
            spaces.setdefault(key, []).append(found)

    def of(space: str, use: str) -> tuple[int, ...]:
        found = spaces.get((space, use), ())
        return tuple(sum(getattr(each, name) for each in found) for name in Space.__slots__)

    atomic = [found for (_, use), each in spaces.items() if use == "atomics" for found in each]
    branches = [record for record in records if facts_of(record.given).does == "branches"]
    return Counts(
        instructions=sum(record.warps for record in records),
        thread_instructions=sum(record.lanes for record in records),
        kinds={kind: count for kind, count in kinds.items() if count},
        flops=flops,
        global_=Memory(*(Requests(*of("global", use)) for use in ("loads", "stores", "copies"))),
        local=Memory(*(Requests(*of("local", use)) for use in ("loads", "stores"))),
        shared=Shared(*(SharedRequests(*of("shared", use)) for use in ("loads", "stores", "copies"))),
        atomics=Atomics(
            sum(each.requests for each in atomic),
            sum(each.lanes for each in atomic),
            of("global", "atomics")[3],
            sum(record.addresses for record in records),
            sum(record.rounds for record in records),
        ),
        barrier_waits=sum(record.warps for record in records if _is_block_barrier(record)),
        branches=sum(record.warps for record in branches),
        divergent_branches=sum(record.parted for record in branches),
        not_counted=not_counted,
    )


def _is_block_barrier(record: Record) -> bool:
    return facts_of(record.given).does == "waits" and "cluster" not in record.given.modifiers


class Line(NamedTuple):
    """A source line, and what its instructions did."""

    file: str
    line: int
    text: str
    counts: Counts


def lines_of(records: Iterable[Record]) -> list[Line]:
    """Lines that did anything, by file and number."""
    by_line: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_line.setdefault(record.where, []).append(record)
    return [
        Line(file, line, found[0].text or _instructions(found), counts_of(found))
        for (file, line), found in sorted(by_line.items())
    ]


def _instructions(records: list[Record]) -> str:
    return ", ".join(dict.fromkeys(str(each.given) for each in records))
