"""`cudakit.records.NamedTuple` beside typing's: the same records, without its cost at import."""

from __future__ import annotations

import copy
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


@pytest.mark.parametrize("base", ["records.NamedTuple", "typing.NamedTuple"])
def test_a_field_without_default_after_one_with_a_default_is_refused(base: str) -> None:
    source = f"from __future__ import annotations\nclass Wrong({base}):\n    a: int = 1\n    b: int\n"
    with pytest.raises(TypeError, match="Non-default"):
        exec(source, {"records": records, "typing": typing})


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
