"""Ops called again with the same kinds of arguments: the short way does what the ordinary way did; without a device."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

from cupy.cuda import UnownedMemory
from support.without_device import OTHER, STREAM, Array, Memory, own_order, repeats_of, stand_in

from cudakit import ops
from cudakit.arrays import place
from cudakit.arrays.place import ArrayPlace
from cudakit.arrays.repeated import CallRecorder, repeated
from cudakit.arrays.replay import is_alike
from cudakit.emulator.launch import limits_of
from cudakit.jit.launch.bind import Fragment
from cudakit.ops import count
from cudakit.places import DEVICES
from cudakit.random import Generator
from cudakit.streams import devices
from cudakit.streams.order import Order
from cudakit.streams.witnesses import Witness, witnessing

pytestmark = pytest.mark.emulator


class Bench:
    """Ops on arrays without a device: what is launched, ordinarily or straight, is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = STREAM
        self.order = own_order(monkeypatch)
        self.module = stand_in(monkeypatch, lambda: self.current)
        self.ordinary: list[Any] = []
        self.straight: list[Any] = []
        self.kept = Array((64,), "u1")
        self.holders: weakref.WeakSet[Any] = weakref.WeakSet()
        monkeypatch.setattr(ArrayPlace, "launch", lambda *given, sources=(): self.launch(*given))
        for kind in ("workspace", "status"):
            monkeypatch.setattr(ArrayPlace, kind, lambda place, size: self.kept)
        self.edges = Array((17,), "f4")
        monkeypatch.setattr(count, "_even_edges", lambda *_: self.edges)
        monkeypatch.setattr("cudakit.arrays.replay._shape_of", self.shape_of)
        monkeypatch.setattr(devices, "limits", lambda device: limits_of("sm_90"))
        monkeypatch.setattr(Memory, "done", self.straight)

    def launch(self, place: ArrayPlace, kernel: Any, config: Any, *arguments: Any) -> None:
        self.ordinary.append((kernel.name, hex(id(kernel)), config, *map(self.passed, arguments)))

    def shape_of(self, step: Any) -> Any:
        head = step.kernel.name, hex(id(step.kernel)), step.config
        return SimpleNamespace(
            fragments=tuple(map(self.fragment, step.arguments)),
            device_id=0,
            run=lambda core, config, kernel, *values: self.straight.append((*head, *values)),
            loaded=SimpleNamespace(kernel="kernel", launch_config=lambda *_: "config", holders=self.holders),
            ranges=lambda *_: ((), ()),
        )

    def passed(self, value: Any) -> Any:
        """What a kernel is given for an argument."""
        if isinstance(value, Array):
            if value.flags.c_contiguous:
                return value.data.ptr
            return value.data.ptr.to_bytes(8, "little") + np.array([value.shape, value.strides]).tobytes()
        return value.tobytes() if isinstance(value, np.generic) else value

    def fragment(self, value: Any) -> Fragment:
        guard = "{a}._c_contiguous" if isinstance(value, Array) and value.flags.c_contiguous else "True"
        return Fragment(guard, "{k}passed({a})", "q", {"passed": self.passed})

    def done(self, call: Callable[..., Any], *args: Any, **named: Any) -> tuple[Any, Any, Any]:
        """What a call launched ordinarily and straight, addresses told by the call's own arrays, and its result."""
        self.ordinary.clear()
        self.straight.clear()
        first = Array.made
        result = call(*args, **named)
        given = [each for value in (*args, *named.values()) for each in (value if type(value) is list else [value])]
        starts = {array.data.ptr: f"argument {k}" for k, array in enumerate(given) if isinstance(array, Array)}
        starts |= {0x7F0000000000 + k * 0x100000: f"new {k - first}" for k in range(first + 1, Array.made + 1)}
        starts[self.kept.data.ptr], starts[self.edges.data.ptr] = "kept", "edges"

        def told(value: Any) -> Any:
            if isinstance(value, bytes) and 0x7F0000000000 <= int.from_bytes(value[:8], "little") < 0x7F8000000000:
                return told(int.from_bytes(value[:8], "little")), value[8:]
            if type(value) is int and value >= 0x7F0000000000:
                start = max((start for start in starts if start <= value), default=0)
                near = min(starts, key=lambda start: abs(start - value))
                start = near if abs(near - value) < 0x80000 else start
                return starts.get(start), value - start
            if isinstance(value, Array):
                return told(value.data.ptr), value.shape, value.strides, value.dtype
            return tuple(map(told, value)) if isinstance(value, tuple | list) else value

        return told(self.ordinary), told(self.straight), told(result)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(monkeypatch)
    for recorder in recorders():
        recorder._calls = 0
        forget(recorder.replay)
        found.order.watch(recorder.replay)
    return found


@functools.cache
def recorders() -> list[CallRecorder]:
    """What takes the calls of each op."""
    modules = {Generator, *(inspect.getmodule(getattr(ops, name)) for name in ops.__all__)}
    values = [value for module in modules for value in vars(module).values()]
    return [
        repeats_of(op) for op in values if hasattr(op, "__wrapped__") and "ordinary" in getattr(op, "__globals__", {})
    ]


def forget(calls: Any) -> None:
    """Let an op be as it was at first."""
    calls._counts.clear()
    if calls._replays:  # else its code is that of no replay
        calls._replays, calls._recorded = [], 0
        calls.function.__code__ = calls._compile().__code__


def f4(*shape: int) -> Callable[[], Any]:
    return lambda: Array(shape, "f4")


def of(dtype: str, *shape: int, strides: Any = None, at: int = 0) -> Callable[[], Any]:
    """Makes arrays of a kind, each `at` so many bytes after the beginning of its memory."""

    def make() -> Any:
        Array.made += 1
        return Array(shape, dtype, 0x7F0000000000 + Array.made * 0x100000 + at, strides)

    return make


def joined(*makers: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: [make() for make in makers]


#: An op, what makes its arrays, its other arguments, and what makes its out.
CALLS: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("copy", [f4(32, 32)], {}, f4(32, 32)),
    ("copy", [of("f4", 8, 8, strides=(64, 4))], {}, f4(8, 8)),
    ("copy", [of("f4", 8, 8, strides=(-32, 4), at=224)], {}, of("f4", 8, 8, strides=(64, 4))),
    ("copy", [of("V16", 8)], {}, of("V16", 8)),
    ("transpose", [f4(32, 32)], {}, f4(32, 32)),
    ("transpose", [f4(4, 8, 16)], {"axes": (2, 0, 1)}, f4(16, 4, 8)),
    ("cast", [f4(64)], {"dtype": "f8"}, of("f8", 64)),
    ("cast", [f4(64)], {"dtype": np.int8, "saturate": True}, of("i1", 64)),
    ("cast", [of("f4", 8, 8, strides=(64, 8))], {"dtype": np.dtype("f2")}, of("f2", 8, 8)),
    ("flip", [f4(8, 8)], {"axis": 1}, f4(8, 8)),
    ("roll", [f4(8, 8)], {"shift": 3}, f4(8, 8)),
    ("roll", [f4(8, 8)], {"shift": (1, 2), "axis": (0, 1)}, f4(8, 8)),
    ("roll", [of("f4", 8, 8, strides=(64, 4))], {"shift": 3}, f4(8, 8)),
    ("pad", [f4(8, 8)], {"width": ((1, 2), (0, 3)), "mode": "wrap"}, f4(11, 11)),
    ("pad", [f4(8)], {"width": 1, "value": 2.5}, f4(10)),
    ("concatenate", [joined(f4(8), f4(4))], {}, f4(12)),
    ("concatenate", [joined(f4(8, 2), f4(8, 4))], {"axis": 1}, f4(8, 6)),
    ("concatenate", [joined(f4(8), of("f8", 4))], {}, of("f8", 12)),
    ("concatenate", [joined(f4(8), f4(4))], {}, of("f4", 12, strides=(8,))),
    ("take", [f4(32), of("i8", 8)], {}, f4(8)),
    ("take", [f4(8, 8), of("i4", 4)], {"axis": 1, "mode": "clip"}, f4(8, 4)),
    ("take", [of("f4", 8, 8, strides=(64, 8)), of("i4", 4, strides=(8,))], {"axis": 0}, f4(4, 8)),
    ("histogram", [f4(64)], {"bins": 16, "range": (0.0, 1.0)}, of("i8", 16)),
    ("histogram", [f4(64)], {"bins": 16}, of("i8", 16)),
    ("histogram", [f4(64)], {"bins": 600}, of("i8", 600)),
    ("histogram", [of("u1", 64)], {"bins": 16}, of("i8", 16)),
    ("histogram", [of("f4", 8, 8, strides=(64, 4))], {"bins": 16}, of("i8", 16)),
    ("histogram", [f4(64), of("f8", 17)], {}, of("i8", 16)),
    ("bincount", [of("i4", 64)], {"length": 16}, of("i8", 16)),
    ("bincount", [of("u1", 64), f4(64)], {"length": 16}, of("f8", 16)),
    ("softmax", [f4(4, 256)], {}, f4(4, 256)),
    ("softmax", [f4(4, 256)], {"axis": 0}, f4(4, 256)),
    ("softmax", [of("f4", 8, 8, strides=(4, 32))], {"axis": 1}, f4(8, 8)),
    ("softmax", [of("f4", 8, 8, strides=(64, 4), at=4)], {"axis": 1}, f4(8, 8)),
    ("log_softmax", [f4(1, 100_000)], {}, f4(1, 100_000)),
    ("logsumexp", [f4(4, 256)], {"axis": (0, 1), "keepdims": True}, f4(1, 1)),
    ("layernorm", [f4(4, 256), f4(256), f4(256)], {"eps": 1e-6}, f4(4, 256)),
    ("rmsnorm", [f4(4, 256), of("f2", 256)], {}, f4(4, 256)),
    ("sum", [f4(64)], {}, f4()),
    ("sum", [f4(1000, 100)], {"axis": 1, "keepdims": True, "dtype": "f8"}, of("f8", 1000, 1)),
    ("sum", [of("f4", 8, 8, strides=(-32, 4), at=224)], {"axis": (0, 1)}, f4()),
    ("mean", [of("i4", 64)], {}, of("f8")),
    ("count_nonzero", [of("u1", 64)], {}, of("i8")),
    ("max", [f4(8, 8)], {"axis": 0}, f4(8)),
    ("argmin", [f4(64)], {}, of("i8")),
    ("dot", [f4(64), f4(64)], {}, f4()),
    ("var", [f4(64)], {"ddof": 1}, f4()),
    ("norm", [f4(64)], {}, f4()),
    ("cumsum", [f4(64)], {}, f4(64)),
    ("cumsum", [f4(100_000)], {"reverse": True}, f4(100_000)),
    ("cumprod", [f4(8, 8)], {}, f4(64)),
    ("cummax", [f4(8, 8)], {"axis": 0, "exclusive": True}, f4(8, 8)),
]


@pytest.mark.parametrize("given", [False, True], ids=["new", "out"])
@pytest.mark.parametrize(("name", "makers", "options", "out"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_the_short_way_does_what_the_ordinary_way_did(
    bench: Bench, name: str, makers: list[Any], options: dict[str, Any], out: Any, given: bool
) -> None:
    op = getattr(ops, name)

    def call() -> tuple[Any, Any, Any]:
        named = {**options, **({"out": out()} if given else {})}
        return bench.done(op, *[make() for make in makers], **named)

    traces = [call() for _ in range(6)]
    ordinary, straight, result = traces[0]
    assert ordinary
    for trace in traces[:3]:
        assert trace == (ordinary, straight, result)
    for trace in traces[3:]:
        # Memory that is set or copied is among what is done straight, in its order.
        assert trace[0] == ()
        assert [entry for entry in trace[1] if entry[0] not in ("memset", "copy")] == list(ordinary)
        assert [entry for entry in trace[1] if entry[0] in ("memset", "copy")] == list(straight)
        assert trace[2] == result


@pytest.mark.parametrize(("name", "makers", "options", "out"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_the_same_arrays_again(bench: Bench, name: str, makers: list[Any], options: dict[str, Any], out: Any) -> None:
    op, args, target = getattr(ops, name), [make() for make in makers], out()
    ordinary = bench.done(op, *args, out=target, **options)[0]
    for _ in range(3):
        bench.done(op, *args, out=target, **options)
    trace = bench.done(op, *args, out=target, **options)
    assert trace[0] == ()
    assert [entry for entry in trace[1] if entry[0] not in ("memset", "copy")] == list(ordinary)


#: A generator's method, its arguments, and the dtype of its result.
DRAWS: list[tuple[str, dict[str, Any], str]] = [
    ("random", {}, "f8"),
    ("uniform", {"low": 1.0, "high": 3.5}, "f4"),
    ("standard_normal", {}, "f4"),
    ("normal", {"loc": 2, "scale": 0.5}, "f2"),
    ("exponential", {"scale": 3.0}, "f8"),
    ("integers", {"low": 0, "high": 10}, "i8"),
    ("bernoulli", {"p": 0.25}, "?"),
    ("permutation", {"x": 100}, "i8"),
]


@pytest.mark.parametrize("is_given", [False, True], ids=["new", "out"])
@pytest.mark.parametrize(("name", "options", "dtype"), DRAWS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_generator_draws_on_the_short_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], dtype: str, is_given: bool
) -> None:
    monkeypatch.setattr("cudakit.generate.call.default_place", lambda: DEVICES)
    nothing = Array((0,), "f8")
    bench.module.empty = lambda size: nothing
    one, same = Generator(7), Generator(7)
    one.state = same.state = {**one.state, "stream": 5}
    new = options if name == "permutation" else {**options, "size": 100, "dtype": dtype}
    calls = []
    for k in range(7):
        if k == 5:  # what it goes on with is the generator's, whichever that is
            one, same = one.jumped(), same.jumped()
            one.state = same.state = {**one.state, "key": 11}
        outs = [{**options, "out": of(dtype, 100)()} if is_given else new for _ in range(2)]
        ordinary = functools.partial(getattr(Generator, name).__wrapped__, one)
        want = bench.done(ordinary, **outs[0], stream=STREAM)
        calls.append((want, bench.done(getattr(same, name), **outs[1])))
        assert one.state == same.state
    assert len({want[0] for want, _ in calls}) == 7
    assert [got[0] == () for _, got in calls] == [False] * 3 + [True] * 4
    for want, got in calls:
        assert (got[0] or got[1], got[2]) == (want[0], want[2])


def test_a_small_call_of_a_generator_enters_about_as_few_functions_as_an_ops(bench: Bench) -> None:
    x, out, generator = f4(64)(), f4(64)(), Generator(7)
    counts = []
    for call in (lambda: ops.add(x, x, out=out), lambda: generator.uniform(out=out)):
        entered: list[str] = []
        for _ in range(4):
            call()
        sys.setprofile(lambda frame, event, _: entered.append(f"{event} {frame.f_code.co_filename}"))  # noqa: B023
        call()
        sys.setprofile(None)
        assert bench.done(call)[0] == ()
        counts.append(sum(event.startswith("call ") and "tests" not in event for event in entered))
    assert counts == [2, 2]


def replayed(bench: Bench, op: Any, *args: Any, **named: Any) -> None:
    for _ in range(3):
        op(*args, **named)
    assert bench.done(op, *args, **named)[0] == ()


def test_a_replayed_call_holds_its_kernels(bench: Bench) -> None:
    x, z = f4(64)(), f4(64)()
    ops.copy(x, out=z)
    assert not bench.holders
    replayed(bench, ops.copy, x, out=z)
    assert len(bench.holders) == 1, "their module does not load them anew"


def test_an_op_that_calls_another(bench: Bench) -> None:
    @repeated("out")
    def both(x: Any, *, out: Any = None, stream: Any = None) -> Any:
        return ops.flip(ops.copy(x, stream=stream), out=out, stream=stream)

    x, z = f4(64)(), f4(64)()
    replayed(bench, ops.copy, x)
    ordinary = bench.done(both.__wrapped__, x, out=z, stream=STREAM)[0]  # type: ignore[attr-defined]
    assert len(ordinary) == 2
    replayed(bench, both, x, out=z)
    assert bench.done(both, x, out=z)[1] == ordinary


def test_every_op_is_repeated() -> None:
    inner = {"compact": "_chosen", "take": "_gathered", "histogram": "_binned", "bincount": "_bincount"}
    inner |= dict.fromkeys(("run_length", "unique"), "_find_runs")
    for name in set(ops.__all__) - {"add"}:  # which is a generated function
        op = getattr(inspect.getmodule(getattr(ops, name)), inner.get(name, name))
        assert hasattr(op, "__wrapped__"), name


def test_signatures_stay() -> None:
    assert str(inspect.signature(ops.copy)).startswith("(x: 'Any', *, out: 'Any' = None, stream: 'Any' = None)")
    assert "speed of the memory" in (ops.copy.__doc__ or "")
    with pytest.raises(TypeError, match=r"copy\(\) missing 1 required positional argument: 'x'"):
        ops.copy()  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
def test_what_is_of_another_kind_takes_the_ordinary_way(bench: Bench) -> None:
    x, z = f4(8, 8)(), f4(8, 8)()
    replayed(bench, ops.transpose, x, out=z)
    others = (of("f8", 8, 8)(), f4(4, 16)(), of("f4", 8, 8, strides=(64, 4))(), f4(64)())
    for other in others:
        target = Array(other.shape[::-1], other.dtype)
        ordinary, straight, _ = bench.done(ops.transpose, other, out=target)
        assert ordinary
        assert not straight
    for named in ({"axes": (1, 0), "out": z}, {"out": z, "stream": bench.current}):
        ordinary, straight, _ = bench.done(ops.transpose, x, **named)
        assert ordinary
        assert not straight
    x.shape = (64,)
    assert bench.done(ops.transpose, x)[0]


class Other(Array):
    """An array of another class."""


def test_arrays_of_another_class_or_layout(bench: Bench) -> None:
    x = of("f4", 8, 8, strides=(64, 4))()
    for _ in range(2):
        replayed(bench, ops.copy, x)
        assert not bench.done(ops.copy, of("f4", 8, 8, strides=(64, 4))())[0]
        assert bench.done(ops.copy, of("f4", 8, 8, strides=(128, 4))())[0]
    replayed(bench, ops.copy, f4(8, 8)())
    assert bench.done(ops.copy, Other((8, 8), "f4"))[0]


def test_arrays_of_another_device(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    current, x, z = 0, f4(64)(), f4(64)()
    monkeypatch.setattr(devices, "device_count", lambda: 2)
    bench.module.cuda.runtime = SimpleNamespace(getDevice=lambda: current)
    replayed(bench, ops.copy, x, out=z)
    memory = Memory(UnownedMemory(x.data.ptr + 0x80000, 4096, None, device_id=1), 0)
    assert bench.done(ops.copy, Array((64,), "f4", memory), out=z)[0]
    replayed(bench, ops.copy, x, out=z)
    current = 1
    assert bench.done(ops.copy, x, out=z)[0]


def test_calls_that_are_all_different_are_looked_at_seldom(bench: Bench) -> None:
    looks = []
    for size in range(1, 300):
        ops.copy(f4(size)())
        looks.append(len(repeats_of(ops.copy).replay._counts))
    assert looks[99] == 100
    assert looks[-1] - looks[199] < 15
    x = f4(1000)()
    for _ in range(30):
        ops.copy(x)
    assert not bench.done(ops.copy, x)[0]


def test_a_longer_list(bench: Bench) -> None:
    x, y = f4(8)(), f4(8)()
    replayed(bench, ops.concatenate, [x, y])
    assert bench.done(ops.concatenate, [x, y, x])[0]
    assert bench.done(ops.concatenate, (x, y))[0]


def test_inputs_that_interleave(bench: Bench) -> None:
    for _ in range(10):
        whole = f4(8, 16)()
        x, y = (Array((8, 8), "f4", whole.data.ptr + at, (64, 4)) for at in (0, 32))
        # Which of the two an address belongs to cannot be told.
        assert bench.done(ops.concatenate, [x, y], axis=1)[0]


def test_options_must_be_the_same(bench: Bench) -> None:
    x = f4(8, 8)()
    replayed(bench, ops.pad, x, 1, value=1000.5)
    assert not bench.done(ops.pad, x, int("1"), value=float("1000.5"))[0]
    with pytest.raises(Exception, match="whole numbers are wanted"):
        ops.pad(x, True, value=1000.5)
    for width, value in ((2, 1000.5), (1, 1001.5), (1, np.float64(1000.5)), ((1, 1), 1000.5)):
        assert bench.done(ops.pad, x, width, value=value)[0], (width, value)
    replayed(bench, ops.pad, x, 1, value=0.0)
    assert bench.done(ops.pad, x, 1, value=-0.0)[0]


def test_a_list_may_change(bench: Bench) -> None:
    x, shifts = f4(8, 8)(), [1, 2]
    replayed(bench, ops.roll, x, shifts, axis=(0, 1))
    assert not bench.done(ops.roll, x, [1, 2], axis=(0, 1))[0]
    shifts[0] = 3
    assert bench.done(ops.roll, x, shifts, axis=(0, 1))[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 2), (1, True)), ((1,), [1]), (0.0, -0.0), ((1, 2), (1, 2, 3)), (1, 1.0), (("a", (0.0,)), ("a", (-0.0,)))],
)
def test_values_that_are_not_alike(one: Any, other: Any) -> None:
    assert not is_alike(one, other)
    assert is_alike(one, one)


def test_alignment_decides_a_kernel(bench: Bench) -> None:
    x, z = f4(4, 256)(), f4(4, 256)()
    replayed(bench, ops.softmax, x, out=z)
    for shift in (4, 8):
        shifted = of("f4", 4, 256, at=shift)()
        assert bench.done(ops.softmax, shifted, out=z)[0]
        assert bench.done(ops.softmax, x, out=of("f4", 4, 256, at=shift)())[0]
    assert not bench.done(ops.softmax, of("f4", 4, 256, at=16)(), out=z)[0]


def test_outputs_that_overlap(bench: Bench) -> None:
    x, z = f4(4, 256)(), f4(4, 256)()
    replayed(bench, ops.softmax, x, out=z)
    for shift in (-16, 16):
        ordinary, straight, _ = bench.done(ops.softmax, Array((4, 256), "f4", z.data.ptr + shift), out=z)
        # Elsewhere, and then copied.
        assert len(ordinary) == 2
        assert not straight
    assert not bench.done(ops.softmax, Array((4, 256), "f4", z.data.ptr + 4096), out=z)[0]
    assert not bench.done(ops.softmax, Array((4, 256), "f4", z.data.ptr - 4096), out=z)[0]
    # In place is told apart.
    assert bench.done(ops.softmax, x, out=x)[0]
    replayed(bench, ops.softmax, x, out=x)
    y = f4(4, 256)()
    assert not bench.done(ops.softmax, y, out=y)[0]


def test_one_array_for_two_inputs(bench: Bench) -> None:
    x, weight, bias = f4(4, 256)(), f4(256)(), f4(256)()
    replayed(bench, ops.layernorm, x, weight, weight)
    (entry,) = bench.done(ops.layernorm, x, weight, bias)[0]
    assert ("argument 1", 0) in entry
    assert ("argument 2", 0) in entry
    replayed(bench, ops.layernorm, x, weight, bias)
    ordinary, straight, _ = bench.done(ops.layernorm, x, bias, bias)
    (entry,) = (*ordinary, *straight)
    assert ("argument 1", 0) not in entry
    assert entry.count(("argument 2", 0)) == 2


def test_arrays_that_interleave(bench: Bench) -> None:
    whole = f4(8, 16)()
    x = Array((8, 8), "f4", whole.data.ptr, (64, 4))
    z = Array((8, 8), "f4", whole.data.ptr + 32, (64, 4))
    for _ in range(10):
        # Which of the two an address belongs to cannot be told.
        ordinary, straight, _ = bench.done(ops.cast, x, "f4", out=z)
        assert ordinary
        assert not straight


def test_what_ends_the_short_way(bench: Bench) -> None:
    x, z = f4(64)(), f4(64)()
    replayed(bench, ops.copy, x, out=z)
    bench.current = OTHER
    assert bench.done(ops.copy, x, out=z)[0]
    bench.current = STREAM
    with witnessing(Witness()):
        for _ in range(5):
            assert bench.done(ops.copy, x, out=z)[0]
    for _ in range(100):
        ops.copy(x, out=z)
    assert not bench.done(ops.copy, x, out=z)[0]
    bench.order.unsettle()
    assert bench.done(ops.copy, x, out=z)[0]
    replayed(bench, ops.copy, x, out=z)


def test_a_capture_takes_the_ordinary_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    x, z = f4(64)(), f4(64)()
    replayed(bench, ops.copy, x, out=z)
    bench.order.unsettle()  # as the beginning of a capture does
    monkeypatch.setattr(Order, "settle", lambda *_: False)
    for _ in range(5):
        assert bench.done(ops.copy, x, out=z)[0]


def test_several_streams_leave_known_addresses(bench: Bench) -> None:
    x, z = f4(64)(), f4(64)()
    bench.order.single = False
    replayed(bench, ops.copy, x, out=z)
    assert bench.done(ops.copy, f4(64)(), out=z)[0]
    assert bench.done(ops.copy, x, out=f4(64)())[0]
    assert not bench.done(ops.copy, Array((64,), "f4", x.data.ptr), out=Array((64,), "f4", z.data.ptr))[0]
    for _ in range(5):
        assert bench.done(ops.copy, x)[0]  # each of these is elsewhere
    bench.order.unsettle()
    assert bench.done(ops.copy, x, out=z)[0]


def test_several_streams_leave_what_is_settled(bench: Bench) -> None:
    x, z = f4(64)(), f4(64)()
    bench.order.single = bench.order.is_going_on = False
    for _ in range(5):
        assert bench.done(ops.copy, x, out=z)[0]
    assert not repeats_of(ops.copy).replay._replays


def test_workspaces_that_are_gone(bench: Bench) -> None:
    x, z = f4(1, 100_000)(), f4(1, 100_000)()
    replayed(bench, ops.log_softmax, x, out=z)
    ordinary, straight, _ = bench.done(ops.log_softmax, x, out=z)
    assert not ordinary
    if any(("kept", 0) in entry for entry in straight):
        bench.kept = Array((64,), "u1")
        assert bench.done(ops.log_softmax, x, out=z)[0]


def test_numbers_that_the_host_reads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"int64": np.array(5), "int32": np.array([0, 7]), "uint32": np.array([0], np.uint32)}
    monkeypatch.setattr(ArrayPlace, "download", lambda self, array: answers[array.dtype.name])
    x, where, numbers = f4(64)(), of("?", 64)(), of("i4", 64)()
    for _ in range(4):
        assert ops.compact(x, where).shape == (5,)
        assert ops.bincount(numbers).shape == (8,)
        assert ops.take(x, numbers, mode="raise").shape == (64,)
    for op, args, options in ((ops.compact, (x, where), {}), (ops.bincount, (numbers,), {})):
        ordinary, straight, _ = bench.done(op, *args, **options)
        assert not ordinary
        assert straight
    assert not bench.done(ops.take, x, numbers, mode="raise")[0]
    answers["int32"] = np.array([-1, 7])
    with pytest.raises(Exception, match="negative value, -1"):
        ops.bincount(numbers)
    answers["uint32"] = np.array([1], np.uint32)
    with pytest.raises(Exception, match="out of bounds for 64 elements"):
        ops.take(x, numbers, mode="raise")


def test_work_that_no_log_tells_is_not_replayed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayPlace, "upload", lambda self, array: Array(array.shape, array.dtype))
    monkeypatch.setattr(place, "_both_contiguous", lambda *_: False)
    monkeypatch.setattr(Array, "__setitem__", lambda *_: None)
    x = f4(64)()
    for _ in range(8):
        assert bench.done(ops.histogram, x, [0.0, 0.5, 1.0])[0]
        assert bench.done(ops.histogram, x, 16, (0.0, 1.0), x)[0]
