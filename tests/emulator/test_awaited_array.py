"""Host arrays that cudakit hands out under check: an error where what a stream has not brought yet is used."""

from __future__ import annotations

import copy
import io
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator import EmulatedStream

pytestmark = pytest.mark.emulator

ADD = ck.Kernel("__global__ void add(float* x, float by) { x[threadIdx.x] += by; }")
TWO, FOUR = ck.config(1, 2), ck.config(1, 4)


@pytest.fixture
def here() -> EmulatedStream:
    return ck.emulator.stream(strict=True)


def device(stream: EmulatedStream, *shape: int) -> Any:
    """An array of the device, of sevens."""
    return ck.to_device(np.full(shape or 4, 7, np.float32), stream)


def pinned_array(stream: EmulatedStream | None, count: int = 4) -> np.ndarray:
    made: np.ndarray = ck.empty(count, np.float32, kind="pinned", stream=stream)
    made[:] = 0
    return made


def early(verb: str = "read", work: str = "") -> pytest.RaisesExc[ck.EmulationError]:
    """The error, which names two lines of this file."""
    file = re.escape(__file__)
    return pytest.raises(
        ck.EmulationError,
        match=rf"at {file}:\d+: a host array .* is {verb} before {work}.* \({file}:\d+\) .*stream.sync\(\)",
    )


# ── what is handed out ──


def copied(stream: EmulatedStream) -> np.ndarray:
    return ck.to_host(device(stream), stream, wait=False)


def copied_to_pinned(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    assert ck.to_host(device(stream), stream, out=x, wait=False) is x
    return x


def copied_by_copy(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    ck.memory.copy(x, device(stream), stream)
    return x


def written_by_kernel(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    ADD(stream, FOUR, x, 7.0)
    return x


def written_by_plan(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    ADD.plan(stream, FOUR, x, 7.0)()
    return x


def written_by_graph(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    with ck.capture(stream) as graph:
        ADD(stream, FOUR, x, 3.0)
        ADD(stream, FOUR, x, 4.0)
    graph.launch(stream)
    return x


def written_by_in_out(stream: EmulatedStream) -> np.ndarray:
    x = pinned_array(stream)
    ADD(stream, FOUR, ck.InOut(x), 7.0)
    return x


def managed(stream: EmulatedStream) -> np.ndarray:
    x = ck.empty(4, np.float32, kind="managed", stream=stream)
    host = ck.memory.host_view(x)
    host[:] = 0
    ADD(stream, FOUR, x, 7.0)
    return host


def allocated(stream: EmulatedStream) -> np.ndarray:
    with ck.allocated(4, np.float32, kind="pinned", stream=stream) as frame:
        ck.to_host(device(stream), stream, out=frame, wait=False)
        return np.asarray(frame[:])


HANDED_OUT = [
    copied, copied_to_pinned, copied_by_copy, written_by_kernel, written_by_plan, written_by_graph, written_by_in_out,
    managed, allocated,
]  # fmt: skip


@pytest.mark.parametrize("hand_out", HANDED_OUT)
def test_arrays_that_are_handed_out(here: EmulatedStream, hand_out: Callable[[EmulatedStream], np.ndarray]) -> None:
    x = hand_out(here)
    for part in (x, x[1:], x[::-2], x.reshape(2, 2).T, x.view(np.int32), np.asarray(x), np.flip(x), x[...]):
        with early():
            part.tolist()
    here.sync()
    assert x.tolist() == x[:].tolist() == [7] * 4


def test_the_error_names_the_work(here: EmulatedStream) -> None:
    for hand_out, name in ((copied, "to_host on stream"), (written_by_kernel, "add"), (written_by_in_out, "InOut")):
        with early(work=name):
            print(hand_out(here))


# ── what reads ──

READS: dict[str, Callable[[Any], Any]] = {
    "index": lambda x: x[2],
    "index of two": lambda x: x.reshape(2, 2)[1, 0],
    "mask": lambda x: x[np.ones(4, bool)],
    "list of indices": lambda x: x[[0, 3]],
    "as index": lambda x: np.zeros(9)[x.view(np.int32) * 0],
    "iteration": lambda x: list(x),
    "unpacking": lambda x: dict(zip("abcd", x, strict=True)),
    "ufunc": lambda x: np.exp(x),
    "ufunc beside another": lambda x: np.ones(4) + x,
    "ufunc into another": lambda x: np.add(1, x, out=np.zeros(4, np.float32)),
    "where of a ufunc": lambda x: np.add(1, 1, where=x.view(bool)[:4], out=np.zeros(4)),
    "reduction": lambda x: np.add.reduce(x),
    "scatter": lambda x: np.add.at(np.zeros(4), [0], x[:1]),
    "comparison": lambda x: x == 7,
    "product": lambda x: x @ np.ones(4),
    "in": lambda x: 7 in x,
    "truth": lambda x: bool(x[:1]),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[:1].reshape(())),
    "text": lambda x: str(x),
    "repr": lambda x: repr(x),
    "format": lambda x: f"{x}",
    "print": lambda x: print(x, file=io.StringIO()),
    "sum of Python's": lambda x: sum(x),
    "max of Python's": lambda x: max(x),
    "sorted": lambda x: sorted(x),
    "concatenate": lambda x: np.concatenate([x, x]),
    "stack": lambda x: np.stack([np.ones(4), x]),
    "allclose": lambda x: np.allclose(x, 7),
    "array_equal": lambda x: np.array_equal(np.ones(4), x),
    "assert_array_equal": lambda x: np.testing.assert_array_equal(x, 7),
    "assert_allclose": lambda x: np.testing.assert_allclose(x, 7),
    "where": lambda x: np.where(True, x, 0),
    "median": lambda x: np.median(x),
    "sort": lambda x: np.sort(x),
    "copyto": lambda x: np.copyto(np.zeros(4), x),
    "array": lambda x: np.array(x),
    "array of a list": lambda x: np.array([x, x]),
    "conversion": lambda x: np.asarray(x, np.float64),
    "astype": lambda x: x.astype(np.int32),
    "copy": lambda x: x.copy(),
    "copied by copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": pickle.dumps,
    "ravel of columns": lambda x: x.reshape(2, 2).T.ravel(),
    "reshaped columns": lambda x: x.reshape(2, 2).T.reshape(4),
    "save": lambda x: np.save(io.BytesIO(), x),
    "savetxt": lambda x: np.savetxt(io.StringIO(), x),
    "put": lambda x: np.put(np.zeros(4), [0], x[:1]),
    "take": lambda x: np.take(x, [1]),
    "item": lambda x: x.item(3),
    "trace": lambda x: np.trace(x.reshape(2, 2)),
    "compress": lambda x: x.compress([True]),
    "real part": lambda x: x.view(np.complex64).real.tolist(),
    "round": lambda x: round(float(x.mean()), 2),
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in (
            "all", "any", "argmax", "argmin", "argsort", "cumsum", "flatten", "max", "mean", "min", "nonzero", "prod",
            "std", "sum", "tobytes", "tolist", "var",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_reads(here: EmulatedStream, name: str) -> None:
    x = copied(here)
    with early():
        READS[name](x)
    here.sync()
    READS[name](x)
    assert x.tolist() == [7] * 4


WRITES: dict[str, Callable[[Any], Any]] = {
    "one element": lambda x: x.__setitem__(0, 1),
    "all": lambda x: x.__setitem__(slice(None), np.ones(4)),
    "fill": lambda x: x.fill(1),
    "out": lambda x: np.add(1, 1, out=x),
    "sorting": lambda x: x.sort(),
    "put": lambda x: x.put([0], 1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(here: EmulatedStream, name: str) -> None:
    x = copied(here)
    with early("written"):
        WRITES[name](x)
    here.sync()
    WRITES[name](x)


def test_what_reads_no_elements(here: EmulatedStream) -> None:
    x, y = copied(here), copied_to_pinned(here)
    assert (x.shape, x.size, len(x), x.nbytes, x.dtype) == ((4,), 4, 4, 16, np.float32)
    assert np.shape(x) == np.reshape(x, (4,)).shape == np.zeros_like(x).shape == np.empty_like(y).shape == (4,)
    for view in (
        x[1:3], x[None], x[...], x.T, x.reshape(2, 2), x.ravel(), np.ravel(x), np.broadcast_to(x, (3, 4)),
        np.atleast_2d(x), np.split(x, 2)[1], np.expand_dims(x, 0), np.asarray(x), np.ascontiguousarray(y),
        x.astype(np.float32, copy=False), *x.reshape(2, 2),
    ):  # fmt: skip
        assert np.shares_memory(view, x if view.base is not y else y) or view.size == 4
        with early():
            view.sum()
    assert not np.may_share_memory(x, y)
    assert np.result_type(x, np.float64) == np.float64
    here.sync()
    assert x.sum() == y.sum() == 28


# ── right patterns, without a false alarm ──


def wait_by_event(stream: EmulatedStream) -> None:
    stream.record().sync()


def wait_by_question(stream: EmulatedStream) -> None:
    assert stream.record().is_done


def wait_by_copy(stream: EmulatedStream) -> None:
    ck.to_host(device(stream), stream)


def wait_by_another_stream(stream: EmulatedStream) -> None:
    other = stream.alike()
    other.wait(stream)
    other.sync()


def wait_by_another_streams_event(stream: EmulatedStream) -> None:
    other = stream.alike()
    other.wait(stream.record())
    ADD(other, FOUR, device(other), 1.0)
    other.record().sync()


def wait_by_declared_work(stream: EmulatedStream) -> None:
    """A kernel on another stream, which waits for what wrote the array that it reads, and the host for it."""
    x, other = device(stream), stream.alike()
    ADD(stream, FOUR, x, 1.0)
    ADD(other, FOUR, x, 1.0)
    other.sync()


WAITS = [
    EmulatedStream.sync, wait_by_event, wait_by_question, wait_by_copy, wait_by_another_stream,
    wait_by_another_streams_event, wait_by_declared_work,
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("hand_out", [copied, written_by_kernel])
def test_whoever_waits_reads_freely(here: EmulatedStream, hand_out: Any, wait: Any) -> None:
    x = hand_out(here)
    wait(here)
    assert x.tolist() == [7] * 4
    assert float(x.sum()) == 28


def test_parts_that_have_arrived(here: EmulatedStream) -> None:
    """A ring of two: the host works on one half while the stream brings the other."""
    ring = pinned_array(here, 8).reshape(2, 4)
    ck.to_host(device(here), here, out=ring[0], wait=False)
    first = here.record()
    ck.to_host(device(here), here, out=ring[1], wait=False)
    first.sync()
    assert ring[0].tolist() == [7] * 4
    assert (ring[0, 1], ring[:, 0][0], ring.item(2), ring.item(0, 3)) == (7, 7, 7, 7)
    assert ring[[0], [1]] == [7]
    assert ring.take([0, 1]).tolist() == np.take(ring, [2]).tolist() * 2
    ring[0] = 5
    for read in (lambda: ring[1], lambda: ring[:, 0], lambda: ring.reshape(8)[3:5]):
        with early():
            read().tolist()
    with early():
        _ = ring[1, 2]
    with early():
        ring.item(7)
    with early("written"):
        ring[:, 1] = 1
    here.sync()
    assert ring.tolist() == [[5] * 4, [7] * 4]


def test_elements_that_a_kernel_left_alone(here: EmulatedStream) -> None:
    x = pinned_array(here)
    ADD(here, TWO, x, 1.0)
    x[2:] = 5
    assert x[2:].tolist() == [5, 5]
    with early():
        x[1:].tolist()


def test_work_that_comes_later_takes_the_array(here: EmulatedStream) -> None:
    x, y = copied(here), written_by_kernel(here)
    ADD(here, FOUR, y, 1.0)
    other = here.alike()
    twice = [ck.to_device(array, stream) for array in (x, y) for stream in (here, other)]
    ck.memory.copy(y, device(other), other)
    z = np.zeros(4, np.float32)
    ADD(here, FOUR, ck.InOut(z), 1.0)
    here.sync()
    other.sync()
    assert [ck.to_host(array, here).tolist() for array in twice] == [[7] * 4] * 2 + [[8] * 4] * 2
    assert y.tolist() == [7] * 4


def test_pipelines(here: EmulatedStream) -> None:
    out = pinned_array(here)

    def work(x: Any, stream: Any) -> Any:
        ADD(stream, FOUR, x, 1.0)
        return x

    def keep(x: np.ndarray) -> np.ndarray:
        out[:] += x
        return x + out

    items = ck.Pipeline([work, ck.pipeline.host(keep)], stream=here)([pinned_array(here) for _ in range(3)])
    assert [float(item[0]) for item in items] == [2, 3, 4]
    assert out.tolist() == [3] * 4


def test_an_array_that_nothing_writes_is_as_any(here: EmulatedStream) -> None:
    x = pinned_array(here)
    x[:] = np.arange(4)
    y = ck.to_device(x, here)
    ADD(here, FOUR, y, 1.0)
    x += 1
    assert repr(x) == repr(np.arange(1, 5, dtype=np.float32))
    assert type(x + 1) is type(x.copy()) is type(pickle.loads(pickle.dumps(x))) is np.ndarray
    assert isinstance(x, np.ndarray)
    assert x.sum() == 10


# ── how the promise could be false ──


def test_a_view_that_was_taken_before_the_copy(here: EmulatedStream) -> None:
    x = pinned_array(here)
    views = [x[1:], np.asarray(x), x.reshape(2, 2)[1], x[:2].T]
    ck.to_host(device(here), here, out=x, wait=False)
    for view in views:
        with early():
            view.tolist()


def test_a_wait_that_is_none_for_it(here: EmulatedStream) -> None:
    other, before = here.alike(), here.record()
    x = copied(here)
    for wait in (other.sync, before.sync, other.record().sync, lambda: other.wait(here)):
        wait()
        with early():
            x.tolist()
    other.sync()
    assert x.tolist() == [7] * 4


def test_an_array_that_is_used_again(here: EmulatedStream) -> None:
    x = written_by_kernel(here)
    for value in (8, 9):
        here.sync()
        assert x[0] == value - 1
        ADD(here, FOUR, x, 1.0)
        with early():
            assert x[0] == value


def test_a_read_in_another_thread(here: EmulatedStream) -> None:
    x, errors = copied(here), []

    def read() -> None:
        try:
            x.tolist()
        except ck.EmulationError as error:
            errors.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert __file__ in errors[0]


def test_the_stream_is_gone() -> None:
    x = copied(ck.emulator.stream(strict=True))
    with early():
        x.tolist()


def test_a_copy_of_a_graph(here: EmulatedStream) -> None:
    x, y = pinned_array(here), device(here)
    with ck.capture(here) as graph:
        ck.to_host(y, here, out=x, wait=False)
    assert not x.any()
    graph.launch(here)
    with early():
        x.any()


def test_records_and_their_fields(here: EmulatedStream) -> None:
    x = ck.to_host(ck.to_device(np.ones(3, "i4,f8"), here), here, wait=False)
    for read in (lambda: x["f1"][1:].sum(), lambda: x[1], lambda: x.tolist(), lambda: x["f0"].item(0)):
        with early():
            read()
    here.sync()
    assert x["f1"].sum() == 3


def test_arrays_of_no_and_of_many_dimensions(here: EmulatedStream) -> None:
    for shape in ((), (2, 1, 3), (0,)):
        x = ck.to_host(ck.to_device(np.ones(shape), here), here, wait=False)
        if x.size:
            with early():
                x.sum()
        here.sync()
        assert x.sum() == x.size


def test_beside_an_array_of_the_device(here: EmulatedStream) -> None:
    for mix in (lambda x, y: x + y, lambda x, y: y + x, lambda x, y: np.concatenate([x, y])):
        with pytest.raises(ck.ArgumentError, match="beside one of the device"):
            mix(copied(here), device(here))


def test_a_kernel_takes_what_it_reaches(here: EmulatedStream) -> None:
    x, y = pinned_array(here), copied(here)
    for _ in range(3):
        ADD(here, FOUR, x, 1.0)
    with pytest.raises(ck.ArgumentError, match="in host memory"):
        ADD(here, FOUR, y, 1.0)
    here.sync()
    assert (x.tolist(), y.tolist()) == ([3] * 4, [7] * 4)


# ── where it is on ──


def test_nothing_changes_where_nobody_checks() -> None:
    plain = ck.emulator.stream()
    for array in (copied(plain), pinned_array(plain), managed(plain)):
        assert type(array) is np.ndarray
    x = copied_to_pinned(plain)
    assert x.tolist() == [0] * 4
    plain.sync()
    assert x.tolist() == [7] * 4


def test_streams_with_checks_and_blocks(here: EmulatedStream) -> None:
    checked = ck.emulator.stream(check="raise")
    with early():
        copied(checked).tolist()
    del checked
    with ck.using(here):
        x = pinned_array(None)
        ck.to_host(device(here), out=x, wait=False)
        with early():
            x.tolist()
    with ck.check(), early():
        copied(ck.emulator.stream()).tolist()


PROGRAM = """
import numpy as np
import cudakit as ck

stream = ck.stream()
x = ck.to_device(np.ones(4, np.float32), stream)
out = ck.empty(4, np.float32, kind="pinned")
ck.to_host(x, stream, out=out, wait=False)
print(out)
"""


@pytest.mark.slow
def test_a_program_that_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    for text, status in ((PROGRAM, 3), (PROGRAM.replace("print", "stream.sync()\nprint"), 0)):
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "cudakit", "check", str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        told = f"{path}:9: a host array of float32 with shape (4,) is read before to_host on stream"
        assert (told in done.stdout) == bool(status)
        assert (f"({path}:8)" in done.stdout) == bool(status)
