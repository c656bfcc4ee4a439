"""Spaces of candidates: parameters, their values, and restrictions between them."""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cudakit.errors import ArgumentError
from cudakit.tuning.expression import Expression

#: A candidate: parameter → value.
Point = dict[str, Any]
#: A restriction: a function or expression of parameters, true for points of the space.
Restriction = Callable[..., object] | str
#: Restrictions of a space: one, several or none.
Restrictions: TypeAlias = Restriction | Iterable[Restriction] | None
#: Numbers of a point's values in the lists of the space.
Row = tuple[int, ...]
#: Points without restrictions, up to which all points of a space are listed.
LARGEST = 1 << 20


class _Check(NamedTuple):
    """A restriction and the parameters that it needs."""

    restriction: Callable[..., object]
    names: tuple[str, ...]


class Space:
    """A space of points: one value of each parameter, as the restrictions allow.

    Parameters
    ----------
    values : mapping of str to sequence
        Parameter → its values, at least one. A value occurs once in its list.
    where : callable, str, or sequence of them
        Restrictions: functions of parameters, or expressions as text, that are true for valid points.
        Small restrictions are best: each one is checked as soon as its parameters have values.

    Attributes
    ----------
    names : tuple of str
        Names of the parameters.
    values : tuple of tuple
        Values of each parameter.
    where : tuple of callable
        Restrictions; those that were text are instances of `Expression`.
    product : int
        Number of points without restrictions.

    Raises
    ------
    ArgumentError
        A parameter has no values or a repeated one, or a restriction takes a parameter that the space does not have.

    Examples
    --------
    >>> space = Space({"BLOCK": [64, 128], "ITEMS": [1, 2, 4]}, where=lambda BLOCK, ITEMS: BLOCK * ITEMS <= 256)
    >>> len(space), space[0]
    (5, {'BLOCK': 64, 'ITEMS': 1})
    """

    def __init__(self, values: Mapping[str, Sequence[Any]], where: Restrictions = None) -> None:
        if values and not isinstance(values, Mapping):
            raise ArgumentError(f"the space is a dict of parameter → list of values; got {values!r}")
        if not values:
            raise ArgumentError("the space has no parameters; expected a dict of parameter → list of values")
        self.names: tuple[str, ...] = tuple(values)
        self.values: tuple[tuple[Any, ...], ...] = tuple(_values_of(name, values[name]) for name in self.names)
        self.product: int = int(np.prod([len(row) for row in self.values], dtype=object))
        self.where: tuple[Any, ...] = tuple(
            Expression(part) if isinstance(part, str) else part for part in _parts(where)
        )
        self._checks: list[list[_Check]] = [[] for _ in self.names]
        for restriction in self.where:
            check = _Check(restriction, _names_of(restriction, self.names))
            self._checks[max((self.names.index(name) for name in check.names), default=0)].append(check)
        self._numbers = [{_key(value): number for number, value in enumerate(row)} for row in self.values]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(row)} values" for name, row in zip(self.names, self.values, strict=True))
        return f"<Space {counts}; {len(self.where)} restrictions>"

    def __iter__(self) -> Iterator[Point]:
        """Yield the valid points, the last parameter changing fastest. Points are made one at a time."""
        return map(self.point, self.walk())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Point:
        return self.point(self.rows[number])

    def __contains__(self, point: Mapping[str, Any]) -> bool:
        try:
            return self.is_valid(self.row(point))
        except ArgumentError:
            return False

    @functools.cached_property
    def rows(self) -> NDArray[np.int32]:
        """Numbers of the values of all valid points, of shape (points, parameters).

        Raises
        ------
        ArgumentError
            No point is valid.
        """
        rows = np.array(list(self.walk()), np.int32).reshape(-1, len(self.names))
        if not len(rows):
            self._refuse()
        return rows

    def walk(self, rng: random.Random | None = None) -> Iterator[Row]:
        """Yield the rows of the valid points, in order, or each parameter's values from a random one on."""

        def numbers(count: int) -> Iterator[int]:
            start = rng.randrange(count) if rng else 0
            return itertools.chain(range(start, count), range(start))

        point: Point = {}

        def below(depth: int) -> Iterator[Row]:
            if depth == len(self.names):
                yield ()
                return
            for number in numbers(len(self.values[depth])):
                point[self.names[depth]] = self.values[depth][number]
                if all(_holds(check, point) for check in self._checks[depth]):
                    yield from ((number, *rest) for rest in below(depth + 1))

        return below(0)

    @property
    def first(self) -> Point:
        """The first valid point."""
        row = next(self.walk(), None)
        if row is None:
            self._refuse()
        return self.point(row)

    def sample(self, count: int, seed: int = 0) -> NDArray[np.int32]:
        """Return rows of at most `count` different valid points: all of them, or random ones of a larger space.

        Of a space with more than `LARGEST` points without restrictions, only the sampled ones are made.
        """
        if self.product <= LARGEST:
            if len(self) <= count:
                return self.rows
            return self.rows[np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))]
        rng = random.Random(seed)
        rows = dict.fromkeys(itertools.islice(self.walk(rng), 1))
        for _ in range(2 * count):
            if len(rows) < count:
                rows.update(dict.fromkeys(itertools.islice(self.walk(rng), 1)))
        if not rows:
            self._refuse()
        return np.array(list(rows), np.int32)

    def point(self, row: Iterable[int]) -> Point:
        """Return the point of a row of numbers."""
        return {name: values[number] for name, values, number in zip(self.names, self.values, row, strict=True)}

    def row(self, point: Mapping[str, Any]) -> Row:
        """Return the numbers of a point's values.

        Raises
        ------
        ArgumentError
            The point has other parameters, or a value that is not in its parameter's list.
        """
        if set(point) != set(self.names):
            raise ArgumentError(f"a point of this space has {', '.join(self.names)}; got {', '.join(map(str, point))}")
        try:
            return tuple(numbers[_key(point[name])] for name, numbers in zip(self.names, self._numbers, strict=True))
        except KeyError:
            raise ArgumentError(f"{dict(point)} has a value that is not in the space") from None

    def is_valid(self, row: Iterable[int]) -> bool:
        """Return whether the restrictions hold for a row of numbers."""
        point = self.point(row)
        return all(_holds(check, point) for checks in self._checks for check in checks)

    def neighbours(self, row: Sequence[int], reach: int | None = None) -> list[Row]:
        """Return the valid rows that differ from a row in one parameter.

        Parameters
        ----------
        row : sequence of int
            Numbers of a point's values.
        reach : int, optional
            How far apart the two values may be in their list. Default: any distance.
        """
        row = tuple(map(int, row))
        rows = [
            (*row[:axis], number, *row[axis + 1 :])
            for axis, values in enumerate(self.values)
            for number in range(len(values))
            if number != row[axis] and (reach is None or abs(number - row[axis]) <= reach)
        ]
        return [candidate for candidate in rows if self.is_valid(candidate)]

    def _refuse(self) -> NoReturn:
        raise ArgumentError(f"the restrictions leave no point of {self.product}: loosen `where`, or add values")


def space_of(values: Mapping[str, Sequence[Any]] | Space, where: Restrictions = None) -> Space:
    """Return the space of a dict, or a space with more restrictions."""
    if not isinstance(values, Space):
        return Space(values, where)
    if where is None:
        return values
    return Space(dict(zip(values.names, values.values, strict=True)), [*values.where, *_parts(where)])


def _parts(where: Any) -> tuple[Restriction, ...]:
    """Return the restrictions of a space, each to be checked."""
    return () if where is None else tuple(where) if isinstance(where, list | tuple) else (where,)


def _values_of(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a parameter's values, checked."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"parameter {name!r} of the space: expected a list of values, got {values!r}")
    row = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not row:
        raise ArgumentError(f"parameter {name!r} of the space has no values")
    if len({_key(value) for value in row}) < len(row):
        raise ArgumentError(f"parameter {name!r} of the space has a value twice: {list(row)}")
    return row


def _names_of(restriction: Callable[..., object], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parameters that a restriction takes: all for ``**parameters``."""
    if not callable(restriction):
        raise ArgumentError(f"a restriction of the space is a function or an expression as text; got {restriction!r}")
    parameters = inspect.signature(restriction).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return names
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    if unknown := [name for name in needed if name not in names]:
        raise ArgumentError(
            f"the restriction takes {unknown[0]!r}, and the space has {', '.join(names)}: rename it, or add its values"
        )
    return tuple(name for name in parameters if name in names)


def _holds(check: _Check, point: Point) -> bool:
    """Return whether a restriction holds for a point."""
    chosen = {name: point[name] for name in check.names}
    try:
        return bool(check.restriction(**chosen))
    except Exception as error:
        error.add_note(f"This comes from a restriction of the space, at {chosen}.")
        raise


def _key(value: Any) -> Any:
    """Return a hashable value that differs for 1, 1.0 and True."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value), value
