"""Kept results of searches: files beside the cache of code, valid while nothing that decides them has changed.

A result is found by its key: kernel, types of the arguments, compile options, versions of compiler and package, space,
launch configuration, size class, objective and card. It is used while the headers that its best point was compiled with
are unchanged. Two processes that keep results of one key merge their tables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudakit.errors import ArgumentError, CacheWarning, CompileError
from cudakit.jit.bundle.file import TUNED, Entry
from cudakit.jit.bundle.used import in_use
from cudakit.jit.cache.cache import cache_at, default_cache
from cudakit.jit.cache.compiling import first_request
from cudakit.jit.cache.store import Store, hold
from cudakit.jit.compile.nvrtc import Request, digest_of
from cudakit.jit.compile.portable import base_of
from cudakit.jit.compile.portable import key_of as code_key_of
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.specialise import Specialization
from cudakit.tuning.candidate import Candidate
from cudakit.tuning.objectives import card_name
from cudakit.tuning.space import Space
from cudakit.tuning.tuned import Tuned

#: Increased when records change: older ones are then ignored.
FORMAT = 1
_CATEGORY = "tuned"
_MOST_BYTES = 64 << 20
_LONGEST_WAIT_S = 10.0


class Records:
    """Results of searches in a folder, or in memory if there is none."""

    def __init__(self, folder: Path | None) -> None:
        self._store = None if folder is None else Store(f"{folder}/tuned", _MOST_BYTES)
        self._memory: dict[str, dict[str, Any]] = {}

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the record of a key, or None."""
        content = None if self._store is None or self._store.distrust() else self._store.read(_CATEGORY, key)
        if content is None:
            return self._memory.get(key)
        record = json.loads(content[1])
        return record if is_record(record) else None

    def merge(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record. If there is one with the same headers, keep the candidates of both."""
        self._memory[key] = record
        if self._store is None or self._store.distrust():
            return
        with hold(self._store.path("lock", key), ready=lambda: False, limit_s=_LONGEST_WAIT_S):
            merged = _merged(self.read(key), record)
            try:
                self._store.write(_CATEGORY, key, {"label": merged["kernel"]}, json.dumps(merged).encode())
            except OSError as error:
                warnings.warn(
                    f"the result of tuning {record['kernel']} is kept in this process only: {error}",
                    CacheWarning,
                    stacklevel=2,
                )

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all records, each with its key."""
        keys = (
            [] if self._store is None else [file.digest for file in self._store.files() if file.category == _CATEGORY]
        )
        for key in dict.fromkeys([*keys, *self._memory]):
            if (record := self.read(key)) is not None:
                yield key, record

    def export_to(self, path: Path) -> int:
        """Write all records to a JSON file. Return their number."""
        records = dict(self)
        path.write_text(json.dumps({"format": FORMAT, "records": records}, indent=1), encoding="utf-8")
        return len(records)

    def import_from(self, path: Path) -> int:
        """Merge the records of a JSON file. Return their number.

        Raises
        ------
        ArgumentError
            The file has no records of this format.
        """
        pairs = _records_of(path)
        for key, record in pairs.items():
            self.merge(key, record)
        return len(pairs)


def _records_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a JSON file, each with its key."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']}")
        pairs = {str(key): dict(record) for key, record in document["records"].items()}
        for key, record in pairs.items():
            if not is_record(record):
                raise ValueError(f"record {key[:12]} is damaged")
            Store("", 0).path(_CATEGORY, key)  # raises for what is no key
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(f"{path} has no tuning records of format {FORMAT}: {error}") from error
    return pairs


def records() -> Records:
    """Return the results that are kept in the user's cache folder."""
    return _records_in(default_cache().folder)


def records_of(kernel: Any) -> Records:
    """Return the records of a kernel: beside the code that it is compiled to."""
    return _records_in(cache_at(kernel.options.cache).folder)


def _records_in(folder: Path | None) -> Records:
    return _RECORDS.setdefault(folder, Records(folder))


_RECORDS: dict[Path | None, Records] = {}


class Keys:
    """The keys of a result: in the cache of this machine, and in bundles.

    Parameters
    ----------
    specialization : Specialization
        The kernel of the first point of the space for the types of the arguments.
    space : Space
        Space that is searched.
    functions : iterable
        Functions that decide what a point means, such as the one of the launch configuration.
    size_class : sequence
        Class of the arguments' sizes.
    objective : str
        Name of what is measured.
    stream : stream
        Stream of the launches, whose card counts.
    """

    def __init__(
        self,
        specialization: Specialization,
        space: Space,
        functions: Iterable[Any],
        size_class: Sequence[Any],
        objective: str,
        stream: Any,
    ) -> None:
        self._specialization = specialization
        self._parts = {
            "format": str(FORMAT),
            "space": repr(list(zip(space.names, space.values, strict=True))),
            "functions": repr([_content_of(function) for function in functions]),
            "class": repr(list(size_class)),
            "objective": objective,
            "card": card_name(stream),
        }

    @property
    def here(self) -> str:
        """Key in the cache. Raises CompileError if there is no compiler, on whose version it depends."""
        return digest_of({**self._parts, "code": first_request(self._specialization).base})

    @property
    def portable(self) -> str | None:
        """Key in bundles; None for code that no bundle can have."""
        base = base_of(self._specialization)
        if base is None:
            return None
        code = code_key_of(base, self._specialization.target, self._specialization.arch)
        return digest_of({**self._parts, "code": code})


def read(keys: Keys, kernel: Any, space: Space) -> list[Candidate] | None:
    """Return the candidates of a kernel's kept result, the best first: from the cache, or from a bundle in use."""
    bundles = in_use(kernel.options.bundle)
    if not bundles.never:
        with contextlib.suppress(CompileError):  # no compiler is here
            record = records_of(kernel).read(keys.here)
            candidates = None if record is None else candidates_of(record, space)
            if candidates is not None:
                return candidates
    key = keys.portable if bundles.files else None
    entries = bundles.entries(TUNED, key) if key is not None else ()
    return next((candidates_of(json.loads(entry.body), space) for _, entry in entries), None)


def entries_of(path: Path) -> Iterator[Entry]:
    """Yield the results in a file of ``cudakit tune --export`` as entries of a bundle.

    Raises
    ------
    ArgumentError
        The file has no records of this format.
    """
    for record in _records_of(path).values():
        if record.get("portable") is not None:
            # The headers are those of the code, which has its own entry.
            content = {**record, "headers": NOTHING_READ.to_json()}
            header = {"label": f"{record['kernel']} on {record['card']}"}
            yield Entry(TUNED, record["portable"], header, json.dumps(content, sort_keys=True).encode())


def record_of(
    tuned: Tuned, space: Space, specialization: Specialization, stream: Any, portable: str | None
) -> dict[str, Any] | None:
    """Return the record of a result, or None if the best point's code may depend on files that are not known.

    `portable` is the key of the result in bundles.
    """
    request = _settled(specialization)
    if request.unstorable is not None or request.closure is None:
        return None
    return {
        "format": FORMAT,
        "kernel": tuned.kernel.name,
        "card": card_name(stream),
        "objective": tuned.objective,
        "unit": tuned.unit,
        "date": time.strftime("%Y-%m-%d"),
        "headers": request.closure.to_json(),
        "names": list(space.names),
        "portable": portable,
        "rows": [
            {**dataclasses.asdict(candidate), "point": list(space.row(candidate.point))} for candidate in tuned.table
        ],
    }


def candidates_of(record: Mapping[str, Any], space: Space) -> list[Candidate] | None:
    """Return the candidates of a record, the best first; None if a header has changed since."""
    try:
        if not Closure.from_json(record["headers"]).holds():
            return None
        return [Candidate(**{**row, "point": space.point(row["point"])}) for row in record["rows"]]
    except (IndexError, TypeError, ValueError):  # of another space, by hand
        return None


def is_record(record: Any) -> bool:
    """Return whether a value is a whole record of this format, whose first row is right."""
    fields = {"kernel": str, "card": str, "objective": str, "unit": str, "date": str, "headers": object, "rows": list}
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return False
    if not all(name in record and isinstance(record[name], fields[name]) for name in fields):
        return False
    numbers = (int, float, type(None))
    return (
        bool(record["rows"])
        and record["rows"][0].get("state") == "right"
        and all(
            isinstance(row, dict)
            and isinstance(row.get("point"), list)
            and isinstance(row.get("runs"), int)
            and isinstance(row.get("value", ""), numbers)
            for row in record["rows"]
        )
    )


def _settled(specialization: Specialization) -> Request:
    """Return the first compile of a specialization that the cache has, with the headers that were read."""
    request = first_request(specialization)
    cache_at(specialization.options.cache).peek(request)
    return request


def _merged(former: dict[str, Any] | None, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the rows of both; of two rows for a point a wrong one, or that with more launches."""
    if former is None or former["headers"] != record["headers"]:
        return record
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    # One search may find by its confirmation what another has not seen.
    weight: Callable[[dict[str, Any]], Any] = lambda row: (row["state"] in ("wrong", "invalid"), row["runs"])  # noqa: E731
    for row in (*former["rows"], *record["rows"]):
        point = tuple(row["point"])
        if point not in rows or weight(row) >= weight(rows[point]):
            rows[point] = row
    order: Callable[[dict[str, Any]], Any] = lambda row: (row["state"] != "right", row["value"] or 0.0)  # noqa: E731
    return {**record, "rows": sorted(rows.values(), key=order)}


def _content_of(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """Return what decides the results of a function: its code, defaults, and the values that it takes from outside.

    The same in each process: no addresses, and sets in an order. `around` are the functions that lead to this one.
    """
    if isinstance(value, functools.partial):
        return _content_of(value.func, around), repr(value.args), repr(value.keywords)
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    function = getattr(value, "__func__", value)
    code = value if inspect.iscode(value) else getattr(function, "__code__", None)
    if code is None or value in around:
        return getattr(value, "__qualname__", None) or repr(value)
    names = getattr(function, "__globals__", {})
    outside = [names[name] for name in code.co_names if name in names and not inspect.ismodule(names[name])]
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    defaults = getattr(function, "__defaults__", None) or ()
    values = [_content_of(part, (*around, value)) for part in (*code.co_consts, *outside, *cells, *defaults)]
    return code.co_code.hex(), code.co_names, values
