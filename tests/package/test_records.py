"""`cudakit.records.NamedTuple` and `dataclass` beside Python's: the same records, without their cost at import."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import typing
from typing import Any

import pytest

from cudakit import records

BODY = """
class Point{number}({base}):
    'A point.'

    x: int
    y: list[str] | None
    label: str = "none"
    tags: tuple[int, ...] = ()

    @property
    def doubled(self) -> int:
        return 2 * self.x

    @classmethod
    def origin(cls) -> Point{number}:
        return cls(0, None)
"""


def made(base: str, number: int) -> Any:
    source = "from __future__ import annotations\n" + BODY.format(base=base, number=number)
    exec(compile(source, __file__, "exec"), globals())
    return globals()[f"Point{number}"]


@pytest.fixture(params=["records.NamedTuple", "typing.NamedTuple"])
def point(request: pytest.FixtureRequest) -> Any:
    """One class by each base: every test here holds for both."""
    return made(request.param, 1)


def test_values_come_by_position_by_name_and_by_default(point: Any) -> None:
    record = point(1, y=["a"], tags=(2,))
    assert (record.x, record.y, record.label, record.tags) == (1, ["a"], "none", (2,)) == record
    assert record[0] == 1
    assert point.origin() == (0, None, "none", ())
    assert record.doubled == 2
    assert hash(point(1, None)) == hash((1, None, "none", ()))
    assert repr(record) == "Point1(x=1, y=['a'], label='none', tags=(2,))"
    assert record._asdict() == {"x": 1, "y": ["a"], "label": "none", "tags": (2,)}


def test_a_record_cannot_be_changed_and_has_no_other_attributes(point: Any) -> None:
    record = point(1, None)
    for name in ("x", "other"):
        with pytest.raises(AttributeError):
            setattr(record, name, 5)
    assert not hasattr(record, "__dict__")
    assert record._replace(x=5) == (5, None, "none", ())
    assert type(record._replace(x=5)) is point
    assert record == (1, None, "none", ())


def test_wrong_values_are_refused_by_name(point: Any) -> None:
    with pytest.raises(TypeError, match=r"Point1\.__new__\(\) missing 1 required positional argument: 'y'"):
        point(1)
    with pytest.raises(TypeError, match=r"Point1\.__new__\(\) got an unexpected keyword argument 'z'"):
        point(1, 2, z=3)
    with pytest.raises(TypeError, match=r"Point1\.__new__\(\) got multiple values for argument 'x'"):
        point(1, 2, x=3)
    with pytest.raises(TypeError, match=r"Point1\.__new__\(\) takes from 3 to 5 positional arguments but 6 were given"):
        point(1, 2, 3, 4, 5)
    with pytest.raises(TypeError, match="Expected 4 arguments, got 2"):
        point._make([1, 2])
    with pytest.raises((TypeError, ValueError), match=r"unexpected field names: .'z'."):
        point(1, 2)._replace(z=3)


def test_a_record_is_copied_pickled_matched_and_described(point: Any) -> None:
    record = point(1, ["a"])
    for copied in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert copied == record
        assert type(copied) is point
    match record:
        case point(x, label=label):
            assert (x, label) == (1, "none")
    assert point.__match_args__ == point._fields == ("x", "y", "label", "tags")
    assert point._field_defaults == {"label": "none", "tags": ()}
    assert point.__doc__ == "A point."
    assert (point.__module__, point.__qualname__) == (__name__, "Point1")
    assert isinstance(point.__new__.__module__, str), "help() looks it up on Python 3.12 and later"
    assert list(inspect.signature(point).parameters) == ["x", "y", "label", "tags"]
    assert typing.get_type_hints(point) == {"x": int, "y": list[str] | None, "label": str, "tags": tuple[int, ...]}


def test_a_subclass_of_a_record_is_a_record(point: Any) -> None:
    class Named(point):
        __slots__ = ()

        def __new__(cls, x: int) -> Any:
            return super().__new__(cls, x, None, label="named")

    assert Named(3) == (3, None, "named", ())
    assert type(Named(3)._replace(x=4)) is Named
    assert repr(Named(3)).startswith("Named(x=3")


@pytest.mark.parametrize(
    "head",
    [
        *("class Wrong(records.NamedTuple)", "class Wrong(typing.NamedTuple)"),
        *("@records.dataclass(frozen=True)\nclass Wrong", "@dataclasses.dataclass(frozen=True)\nclass Wrong"),
    ],
)
def test_a_field_without_default_after_one_with_a_default_is_refused(head: str) -> None:
    source = f"from __future__ import annotations\n{head}:\n    a: int = 1\n    b: int\n"
    with pytest.raises(TypeError, match=r"[Nn]on-default"):
        exec(source, {"records": records, "typing": typing, "dataclasses": dataclasses})


def test_records_of_as_many_fields_have_their_own_names() -> None:
    first, second = made("records.NamedTuple", 1), made("records.NamedTuple", 2)
    assert first(1, None) == second(y=None, x=1)
    with pytest.raises(TypeError, match=r"Point2\.__new__"):
        second()

    class Other(records.NamedTuple):
        a: int
        b: int
        c: int = 3
        d: int = 4

    assert Other(1, b=2) == (1, 2, 3, 4)
    assert first(1, None).label == "none"

    class Empty(records.NamedTuple):
        pass

    assert Empty() == ()


def test_a_first_launch_creates_no_record_by_typing() -> None:
    program = """
import typing, numpy
names = []
create = typing.NamedTupleMeta.__new__
def counted(cls, name, bases, namespace):
    names.append((namespace["__module__"], name))
    return create(cls, name, bases, namespace)
typing.NamedTupleMeta.__new__ = counted
import cudakit as ck
ck.Kernel, ck.use_bundle, ck.config, ck.In
print(*(f"{module}.{name}" for module, name in names if module.startswith("cudakit")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


FIELDS = """
@{decorator}(frozen=True)
class Place:
    'A place.'

    x: int
    name: str = "none"
    note: Any = dataclasses.field(default=None, compare=False)
    secret: int = dataclasses.field(default=0, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", int(self.x))

    @property
    def doubled(self) -> int:
        return 2 * self.x
"""


@pytest.fixture(params=["records.dataclass", "dataclasses.dataclass"])
def place(request: pytest.FixtureRequest) -> Any:
    """One class by each decorator: every test here holds for both."""
    source = "from __future__ import annotations\n" + FIELDS.format(decorator=request.param)
    exec(compile(source, __file__, "exec"), globals())
    return globals()["Place"]


def test_a_dataclass_has_values_by_position_by_name_and_by_default(place: Any) -> None:
    record = place("3", note="n")
    assert (record.x, record.name, record.note, record.secret, record.doubled) == (3, "none", "n", 0, 6)
    assert repr(record) == "Place(x=3, name='none', note='n')"
    assert record == place(3, note="other")
    assert hash(record) == hash(place(3))
    assert record != place(3, secret=1)
    assert record != (3, "none", 0)
    assert len({record, place(3), place(4)}) == 2
    assert dataclasses.replace(record, name="other") == place(3, "other")
    assert [field.name for field in dataclasses.fields(place)] == ["x", "name", "note", "secret"]
    assert dataclasses.asdict(record) == {"x": 3, "name": "none", "note": "n", "secret": 0}


def test_a_dataclass_cannot_be_changed(place: Any) -> None:
    record = place(3)
    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(record, name, 5)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(record, name)
    assert record == place(3)


def test_a_dataclass_is_copied_pickled_matched_and_described(place: Any) -> None:
    record = place(3, "a", note=[1])
    for copied in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert copied == record
        assert copied.note == [1]
    match record:
        case place(x, name):
            assert (x, name) == (3, "a")
    assert place.__doc__ == "A place."
    assert str(inspect.signature(place)).startswith(
        "(x: 'int', name: 'str' = 'none', note: 'Any' = None, secret: 'int'"
    )
    assert inspect.unwrap(place.__init__).__qualname__ == "Place.__init__"


@pytest.mark.parametrize(
    ("args", "keywords", "words"),
    [
        ((), {}, "missing .*'x'"),
        ((1,), {"x": 2}, "multiple values for argument 'x'"),
        ((1,), {"z": 2}, "unexpected keyword argument 'z'"),
        ((1, 2, 3, 4, 5), {}, "positional arguments"),
        ((), {"name": "a", "note": 1, "secret": 2, "z": 3}, "'[xz]'"),
    ],
)
def test_wrong_values_of_a_dataclass_are_refused(place: Any, args: Any, keywords: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"Place.*{words}"):
        place(*args, **keywords)
