"""`NamedTuple` as typing's, without the 0.1 ms that typing takes to create each class.

A program that launches one kernel loads some fifty records. typing compiles each annotation and writes each constructor
as text. Here a class takes 0.01 ms: annotations stay text, and classes share the code of constructors by field count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from functools import cache
    from types import FunctionType

    class _Record(tuple):
        """The methods of every record, under the names of `collections.namedtuple`."""

        __slots__ = ()
        _fields = ()

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

        def __getnewargs__(self):
            return tuple(self)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        @classmethod
        def _make(cls, values):
            record = tuple.__new__(cls, values)
            if len(record) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(record)}")
            return record

        def _replace(self, /, **changes):
            record = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"Got unexpected field names: {list(changes)!r}")
            return record

        __replace__ = _replace

    @cache
    def _constructor(count):
        names = "".join(f", field_{number}" for number in range(count))
        return eval(f"lambda _cls{names}: _new(_cls, ({names[2:]}{',' * bool(count)}))").__code__

    #: CPython's own descriptor of a field, which reads it without a call.
    _Getter = type(namedtuple("_Sample", "field").field)
    _GLOBALS = {"_new": tuple.__new__, "__builtins__": {}}

    class _RecordType(type):
        """The metaclass of `NamedTuple` alone: a class derived from `NamedTuple` is a plain subclass of `_Record`."""

        def __new__(cls, name, bases, namespace):
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            annotations = namespace.get("__annotations__", {})
            fields = tuple(annotations)
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            if list(defaults) != list(fields[len(fields) - len(defaults) :]):
                raise TypeError(f"Non-default field of record {name} follows a field with a default")
            new = FunctionType(
                _constructor(len(fields)).replace(co_varnames=("_cls", *fields)),
                _GLOBALS,
                "__new__",
                tuple(defaults.values()),
            )
            new.__module__, new.__qualname__ = namespace["__module__"], f"{name}.__new__"
            new.__annotations__ = annotations
            getters = {field: _Getter(index, "") for index, field in enumerate(fields)}
            own = {"__slots__": (), "__new__": new, "_fields": fields, "_field_defaults": defaults}
            return type(name, (_Record,), {**namespace, **getters, **own, "__match_args__": fields})

    class NamedTuple(metaclass=_RecordType):
        """Base of a record: the class's annotations are its fields, in order; values in the class are defaults."""
