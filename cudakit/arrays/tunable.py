"""Choices of ops that can be tuned, such as threads of a block, and the points that were measured for them.

A plan asks for a point with a form (dtype, layout) and a number of elements. Plans are cached and repeated calls are
replayed, so a repeated call asks nothing. The answer is, in this order:

- the point that a search tries, inside `trying`;
- the kept result of this card, which ``cudakit tune ops`` wrote;
- a row of the packaged table of this card, or else of the nearest one that has it (files of the folder ``points``);
- the op's default.

A row also serves sizes up to four times as large or small, if none is nearer. On the emulator there are no tables. With
``CUDAKIT_TUNE=off`` the answer is the default.
"""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from cudakit.arrays.place import device_limits
from cudakit.errors import CacheWarning
from cudakit.jit.cache import settings
from cudakit.jit.cache.cache import default_cache
from cudakit.jit.compile.nvrtc import digest_of

if TYPE_CHECKING:
    from cudakit.tuning.space import Space

#: Folder of the packaged tables, a file for each card.
FOLDER = Path(__file__).parent / "points"
#: A row serves sizes of so many powers of two more or less.
_REACH = 2

#: Values of a point's parameters, in the order of the choice.
Values: TypeAlias = tuple[int | str, ...]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Question(NamedTuple):
    """The key of a row: choice, form and size class.

    Attributes
    ----------
    choice : str
        Name of the choice.
    form : str
        Dtype and layout of the call, as far as the choice depends on them.
    size_class : int
        Power of two of the number of elements, rounded.
    """

    choice: str
    form: str
    size_class: int

    def __str__(self) -> str:
        return f"{self.choice}, {self.form}, 2^{self.size_class}"


class Answer(NamedTuple):
    """The answer to a question: choice, default, values of the point, and which points the call allows."""

    choice: Choice
    default: Values
    values: Values
    fits: Callable[..., bool] | None

    def space(self) -> Space:
        """Return the points that the call allows."""
        from cudakit.tuning.space import Space  # most programs tune nothing

        return Space(self.choice.values, [part for part in (self.choice.where, self.fits) if part is not None])


#: Points that a search tries, and questions that it watches.
_tried: ContextVar[Mapping[Question, Values]] = ContextVar("tried", default={})  # noqa: B039  # never written
_watched: ContextVar[dict[Question, Answer] | None] = ContextVar("watched", default=None)


class Choice:
    """A choice of an op: parameters, their values, and restrictions.

    Parameters
    ----------
    name : str
        Name of the choice in tables.
    values : mapping of str to sequence
        Parameter → values, which include those of all defaults.
    where : callable, optional
        Function of the parameters that is true for valid points.
    """

    def __init__(
        self, name: str, values: Mapping[str, Sequence[int | str]], where: Callable[..., bool] | None = None
    ) -> None:
        self.name, self.values, self.where = name, values, where

    def point(
        self, form: str, size: int, device: int | str, default: Sequence[Any], fits: Callable[..., bool] | None = None
    ) -> Any:
        """Return the values of the parameters for a plan, in their order.

        Parameters
        ----------
        form : str
            Dtype and layout of the call.
        size : int
            Number of elements.
        device : int or str
            Device name of an `ArrayPlace`.
        default : sequence
            Values where no tuned point is known.
        fits : callable, optional
            Function of the parameters: whether the call allows a point. The default is allowed.
        """
        question = Question(self.name, form, round(log2(max(size, 1))))
        default = tuple(default)
        answer = _tried.get().get(question)
        if answer is None:
            rows = () if settings.tuning() == "off" else _rows_for(question, device, default_cache().folder)
            answer = next((self.values_of(row) for row in rows if row and self._allows(row, fits)), default)
        watched = _watched.get()
        if watched is not None:
            watched[question] = Answer(self, default, answer, fits)
        return answer

    def values_of(self, point: Mapping[str, int | str]) -> Values:
        """Return the values of a point, in the order of the parameters."""
        return tuple([point[name] for name in self.values])

    def _allows(self, point: Mapping[str, Any], fits: Callable[..., bool] | None) -> bool:
        is_point = point.keys() == self.values.keys() and all(point[name] in row for name, row in self.values.items())
        return is_point and all(part is None or part(**_arguments_of(part, point)) for part in (self.where, fits))


def _arguments_of(function: Callable[..., bool], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a point that a restriction takes."""
    code = function.__code__
    return {name: point[name] for name in code.co_varnames[: code.co_argcount] if name in point}


# --- rows: kept results, and packaged tables --------------------------------------------------------------------------


class Table(NamedTuple):
    """Measured rows of a card.

    Attributes
    ----------
    card, model : str
        Name of the card, and the part of it that other cards of the model have too.
    capability : tuple of int
        Compute capability.
    multiprocessors : int
        Number of multiprocessors.
    rows : dict
        Question → point, or None if the default was not beaten.
    """

    card: str
    model: str
    capability: tuple[int, int]
    multiprocessors: int
    rows: Mapping[Question, Mapping[str, int | str] | None]

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read a file of `FOLDER`.

        Raises
        ------
        ValueError
            The file is no table.
        """
        try:
            parts = json.loads(path.read_text(encoding="utf-8"))
            rows = {
                Question(str(row["choice"]), str(row["form"]), int(row["size"])): row["point"] for row in parts["rows"]
            }
            if not all(point is None or isinstance(point, dict) for point in rows.values()):
                raise TypeError("a point is a dict or null")
            major, minor = parts["capability"]
            return cls(
                str(parts["card"]), str(parts["model"]), (int(major), int(minor)), int(parts["multiprocessors"]), rows
            )
        except (OSError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def distance(self, name: str, capability: tuple[int, int], multiprocessors: int) -> tuple[bool, int, float]:
        """Return how unlike another card this one is: model, compute capability, number of multiprocessors."""
        steps = 10 * (capability[0] - self.capability[0]) + capability[1] - self.capability[1]
        ratio = log2(max(multiprocessors, 1) / self.multiprocessors)
        return self.model not in name, abs(steps), abs(ratio)


@functools.cache
def tables() -> tuple[Table, ...]:
    """Return the packaged tables. A damaged file is left out, with a warning."""
    result = []
    for path in sorted(FOLDER.glob("*.json")):
        try:
            result.append(Table.read(path))
        except ValueError as error:
            warnings.warn(f"{path} is not used, since it is no table of points: {error}", CacheWarning, stacklevel=2)
    return tuple(result)


def tables_for(device: int | str) -> list[Table]:
    """Return the packaged tables, that of the device or the card most like it first. None on the emulator."""
    if isinstance(device, str):
        return []
    limits = device_limits(device)
    of_card: Callable[[Table], Any] = lambda table: table.distance(  # noqa: E731
        limits.name, limits.compute_capability, limits.multiprocessors
    )
    return sorted(tables(), key=of_card)


@functools.lru_cache(4096)
def _rows_for(question: Question, device: int | str, folder: Path | None) -> tuple[Mapping[str, Any] | None, ...]:
    """Return the points for a question, the best first: a kept one, then the packaged one of the nearest size.

    The kept one is in `folder`, the cache's. The nearest table that has a row for the question decides. None is the
    default: it was measured, and not beaten.
    """
    steps = [0, *(sign * step for step in range(1, _REACH + 1) for sign in (-1, 1))]
    near = [question._replace(size_class=question.size_class + step) for step in steps]
    packaged = [table.rows[other] for table in tables_for(device) for other in near if other in table.rows][:1]
    return (*_kept_rows(near, device, folder), *packaged)


def _kept_rows(questions: Iterable[Question], device: int | str, folder: Path | None) -> list[Mapping[str, Any]]:
    """Return the points that the user's tuning kept for a device in a folder."""
    if folder is None or not (folder / "tuned").is_dir():
        return []
    from cudakit.tuning.kept import records  # who has tuned nothing has no such folder

    keys = [record_key(question, device_limits(device).name) for question in questions]
    record = next((record for key in keys if (record := records().read(key)) is not None), None)
    if record is None or not isinstance(record.get("names"), list):
        return []
    # Of a choice with other parameters there are no such points, and `Choice.point` refuses them.
    return [dict(zip(record["names"], record["rows"][0]["point"], strict=False))]


def record_key(question: Question, card: str) -> str:
    """Return the key of the kept result of a question on a card."""
    return digest_of({"ops": str(question), "card": card})


# --- for searches -----------------------------------------------------------------------------------------------------

_caches: list[Any] = []


def planned(size: int) -> Callable[[_Function], _Function]:
    """Return a decorator that caches the plans of a function, which may ask for points, until the points change."""

    def decorate(function: _Function) -> _Function:
        cached = functools.lru_cache(size)(function)
        _caches.append(cached)
        return cast(_Function, cached)

    return decorate


def renew() -> None:
    """Forget all plans and rows: points have changed."""
    for cache in (_rows_for, *_caches):
        cache.cache_clear()


@contextlib.contextmanager
def trying(points: Mapping[Question, Values]) -> Iterator[dict[Question, Answer]]:
    """Answer these questions with these points inside the block. Yield all questions that plans ask there,
    with the answers.
    """
    answers: dict[Question, Answer] = {}
    renew()
    tokens = _tried.set(points), _watched.set(answers)
    try:
        yield answers
    finally:
        _tried.reset(tokens[0])
        _watched.reset(tokens[1])
        renew()
