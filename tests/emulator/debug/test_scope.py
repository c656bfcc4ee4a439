"""What names mean for the lanes of a warp: where each variable is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.emulator.debug.dwarf import Entry, Location, Place, Symbols, Variable
from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.machine.kernel_memory import SharedLayout
from cudakit.emulator.machine.memory import AccessError
from cudakit.errors import ArgumentError

INT = Entry("base", {"encoding": 5, "size": 4})
SHORT = Entry("base", {"encoding": 5, "size": 2})
ROW = Entry("array", {"type": INT}, [Entry("extent", {"count": 2})])
THREADS, LANES = 4, np.array([5, 6])
BLANK = np.zeros(1, "u4")


def scope_of(*variables: Variable, code: int = 5, program: list[Variable] | None = None, **parts: Any) -> Scope:
    """A scope of lanes 1 and 2 of the second block of four threads."""
    words = np.arange(8 * 16, dtype="u1").reshape(8, 16)
    context = SimpleNamespace(
        numbers={"%r1": 0, "%r2": 1, "%rd1": 2, "%r3": 3},
        blank={0: BLANK, 1: BLANK, 2: BLANK, 3: BLANK},
        local={"depot": 4},
        parameter_offsets={"kernel_param": 8},
        symbols=SimpleNamespace(storage={"table": np.arange(100, 140, dtype="u1")}),
    )
    function = SimpleNamespace(name="f", labels={"from": 4, "to": 6}, code=[None] * 10, variables={})
    shared = SimpleNamespace(name="tile", size=4), SimpleNamespace(name="many", size=0)
    module = SimpleNamespace(
        functions=[function],
        context=lambda _: context,
        program=SimpleNamespace(variables={each.name: each for each in shared}),
    )
    frame = SimpleNamespace(
        registers=[np.arange(8, dtype="u4"), BLANK, np.arange(8, dtype="u8") + (1 << 40), np.asarray([9], "u4")],
        local_base=np.arange(8) % 2 * 4,
        parameters={"one": words[:1], "each": words},
    )
    memory = SimpleNamespace(
        local=words, shared=words[:2], shared_bytes=14, parameters=np.arange(50, 82, dtype="u1").reshape(1, 32), **parts
    )
    stepper: Any = SimpleNamespace(
        module=module,
        launch=SimpleNamespace(shared=SharedLayout({"tile": 4, "many": 8}, 14, 14)),
        memory=memory,
        frame=lambda depth, number: frame,
        block_of=np.arange(8) // THREADS,
        special={"tid.x": np.arange(8) % THREADS, "ctaid.y": np.arange(8) // THREADS, "ntid.z": np.asarray(1)},
    )
    front: Any = SimpleNamespace(lanes=LANES, function=0, depth=0, code=code)
    symbols = Symbols({"f": list(variables)}, program or [])
    return Scope(Program(symbols, "__shared__ int tile;", {}), stepper, front)


def kept(place: Place, of: Entry | None = INT, name: str = "x") -> Variable:
    return Variable(name, of, 1, (Location(place),))


def bytes_at(*first: int) -> list[int]:
    """Integers of four bytes that count up."""
    return [int.from_bytes(bytes(range(each, each + 4)), "little") for each in first]


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (Place("depot"), (5 * 16 + 8, 6 * 16 + 4)),
        (Place("depot", 4), (5 * 16 + 12, 6 * 16 + 8)),
        (Place("tile"), (16 + 4, 16 + 4)),
        (Place("tile", 2), (16 + 6, 16 + 6)),
        (Place("table"), (100, 100)),
        (Place("table", 3), (103, 103)),
        (Place("kernel_param"), (58, 58)),
        (Place("kernel_param", 4), (62, 62)),
        (Place("one"), (0, 0)),
        (Place("one", 2), (2, 2)),
        (Place("each"), (5 * 16, 6 * 16)),
        (Place("each", 4), (5 * 16 + 4, 6 * 16 + 4)),
    ],
)
def test_variables_in_memory(place: Place, first: tuple[int, int]) -> None:
    value = scope_of(kept(place)).variable("x")
    assert value.data.tolist() == bytes_at(*first)
    assert (value.data.dtype, value.has_value, value.target) == (np.dtype("i4"), None, None)


def test_a_parameter_that_was_not_yet_handed_over_is_zero() -> None:
    assert scope_of(kept(Place("later"))).variable("x").data.tolist() == [0, 0]


def test_variables_of_several_elements() -> None:
    value = scope_of(kept(Place("table", 1), ROW)).variable("x")
    assert value.data.tolist() == [bytes_at(101, 105)] * 2


@pytest.mark.parametrize(
    ("name", "of", "values", "known"),
    [
        ("%r1", INT, [5, 6], None),
        ("%r1", SHORT, [5, 6], None),
        ("%r3", INT, [9, 9], None),
        ("%rd1", INT, [5, 6], None),
        ("%rd1", Entry("base", {"encoding": 7, "size": 8}), [(1 << 40) + 5, (1 << 40) + 6], None),
        ("%r1", Entry("base", {"encoding": 7, "size": 8}), [5, 6], None),
        ("%r2", INT, [0, 0], [False, False]),
        ("%r9", INT, [0, 0], [False, False]),
    ],
)
def test_variables_in_registers(name: str, of: Entry, values: list[int], known: list[bool] | None) -> None:
    value = scope_of(kept(Place(name, 0, True), of)).variable("x")
    assert value.data.tolist() == values
    assert (value.has_value if value.has_value is None else value.has_value.tolist()) == known


def test_variables_that_are_kept_nowhere_have_no_value() -> None:
    value = scope_of(Variable("x", ROW, 1, ())).variable("x")
    assert value.data.tolist() == [[0, 0]] * 2
    assert value.has_value is not None
    assert value.has_value.tolist() == [False, False]
    value = scope_of(kept(Place("table"), None)).variable("x")
    assert (value.data.tolist(), value.data.dtype) == ([0, 0], np.dtype("u1"))
    assert value.has_value is not None
    assert value.has_value.tolist() == [False, False]


@pytest.mark.parametrize(
    ("code", "names"), [(3, ["a", "c"]), (4, ["a", "b", "c"]), (5, ["a", "b", "c"]), (6, ["a", "c"])]
)
def test_variables_are_seen_in_their_scope(code: int, names: list[str]) -> None:
    place = (Location(Place("table")),)
    variables = [Variable("a", INT, 1, place), Variable("b", INT, 2, place, "from", "to"), Variable("c", INT, 3, place)]
    assert scope_of(*variables, code=code).names() == names


def test_a_label_that_is_not_there_is_the_function_s_begin_or_end() -> None:
    place = (Location(Place("table")),)
    variables = [Variable("a", INT, 1, place, "nowhere", "to"), Variable("b", INT, 1, place, "from", "nowhere")]
    assert scope_of(*variables, code=0).names() == ["a"]
    assert scope_of(*variables, code=9).names() == ["b"]


def test_the_innermost_variable_of_a_name_is_meant_and_its_last_place() -> None:
    outer = Variable("x", INT, 1, (Location(Place("table")),))
    inner = Variable(
        "x",
        INT,
        2,
        (Location(Place("table", 4)), Location(Place("table", 8)), Location(Place("table", 12), "to", "end")),
    )
    assert scope_of(outer, inner).variable("x").data.tolist() == bytes_at(108, 108)
    assert scope_of(outer, inner).names() == ["x"]


def test_names_that_are_built_in() -> None:
    scope = scope_of()
    assert scope.variable("threadIdx.x").data.tolist() == [1, 2]
    assert scope.variable("blockIdx.y").data.tolist() == [1, 1]
    assert scope.variable("blockDim.z").data.tolist() == [1, 1]
    assert scope.variable("warpSize").data.tolist() == [32]
    assert scope.variable("%r1").data.tolist() == [5, 6]
    assert scope.variable("tile").data.tolist() == bytes_at(20, 20)
    with pytest.raises(ArgumentError, match="no register %r9 is in f"):
        scope.variable("%r9")
    with pytest.raises(
        ArgumentError, match=r"no variable threadIdx\.w is known here; those seen from this line are tile, many"
    ):
        scope.variable("threadIdx.w")


def test_variables_of_the_program() -> None:
    scope = scope_of(program=[kept(Place("other")), kept(Place("table"), name="y")])
    assert scope.variable("y").data.tolist() == bytes_at(100, 100)


def test_shared_memory_of_a_block() -> None:
    scope = scope_of()
    assert scope.shared("tile", 0).tolist() == bytes_at(4)[0]
    assert scope.shared("tile", 1).tolist() == bytes_at(20)[0]
    assert scope.shared("many", 1).tolist() == list(range(24, 30))
    told = Entry("array", {"type": INT}, [Entry("extent")])
    scope = scope_of(program=[kept(Place("other")), kept(Place("many"), told)])
    assert scope.shared("many", 1).tolist() == bytes_at(24)


def test_what_a_pointer_points_to() -> None:
    pointer = Entry("pointer", {"type": SHORT})

    def load(space: str, addresses: np.ndarray, dtype: np.dtype, lanes: np.ndarray) -> np.ndarray:
        assert (space, dtype, len(lanes)) == ("generic", np.dtype("u1"), 2)
        if lanes[0] == 6:
            raise AccessError("out of bounds")
        return (addresses % 256).astype("u1")

    scope = scope_of(kept(Place("%rd1", 0, True), pointer), load=load)
    value = scope.variable("x")
    assert value.target is SHORT
    found = scope.pointed(value, np.array([2]))
    assert found.data.tolist() == [9 + 256 * 10, 0]
    assert found.target is None
    assert found.has_value is not None
    assert found.has_value.tolist() == [True, False]
    assert value.has_value is None
    nothing = scope.pointed(value._replace(has_value=np.array([False, False])), np.array([0]))
    assert nothing.data.tolist() == [0, 0]
    with pytest.raises(ArgumentError, match="what this pointer points to is not known"):
        scope.pointed(value._replace(target=None), np.array([0]))
