"""What goes to other processes by pickle: small, whole, and right in another working directory; or refused in words."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import workers
from support.emulated import place

import cudakit as ck
from cudakit import pipeline as lines

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

#: Unpickles what it is given, does with it what the program says, and gives an array back.
CHILD = """
import pickle, sys
import numpy as np, cudakit as ck
from cudakit import pipeline as lines
stream = ck.stream() if sys.argv[1] == "gpu" else ck.emulator.stream()
given, x = pickle.load(sys.stdin.buffer)
with ck.using(stream) as xp:
    x = None if x is None else ck.to_device(x, stream)
    {}
    result = result if isinstance(result, np.ndarray) else ck.to_host(result, stream)
pickle.dump(result, sys.stdout.buffer)
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def elsewhere(folder: Path, program: str, given: Any, x: np.ndarray | None = X) -> np.ndarray:
    """What a process in another working directory makes of it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD.format(program), "gpu" if place.is_gpu else "emulator"],
        input=pickle.dumps((given, x)),
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": workers.PATH},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: np.ndarray = pickle.loads(done.stdout)
    return found


GENERATED: list[tuple[str, Any, np.ndarray]] = [
    ("elementwise", ck.elementwise("T x", "T z", "z = x + 1", name="more"), X + 1),
    ("reduction", ck.reduction("T x", "T z", "x", "a + b", identity="0", name="total"), X.sum()),
    ("scan", ck.scan("T x", "T z", "x", "a + b", identity="0", name="running"), X.ravel().cumsum()),
    ("fuse", workers.half_of_square, X * X / 2),
    ("ufunc", ck.math.add, X + 2),
    ("op", ck.ops.cumsum, X.ravel().cumsum()),
]


@pytest.mark.slow
def test_generated_functions(tmp_path: Path) -> None:
    """One process takes all of them, which makes each from its own pickle."""
    pickled = {name: pickle.dumps(function) for name, function, _ in GENERATED}
    assert {name: len(data) for name, data in pickled.items() if len(data) >= 1000} == {}
    program = """
    lines_of = {"scan": lambda f: f(x.ravel()), "op": lambda f: f(x.ravel()), "ufunc": lambda f: f(x, 2)}
    found = {name: lines_of.get(name, lambda f: f(x))(pickle.loads(data)) for name, data in given.items()}
    result = np.concatenate([np.ravel(ck.to_host(each, stream)) for each in found.values()])
    """
    found = elsewhere(tmp_path, program, pickled)
    for name, _, wanted in GENERATED:
        got, found = np.split(found, [wanted.size])
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted, err_msg=name)
    assert not found.size


def test_kernels_and_the_recipes_of_plans(stream: Any, xp: Any, tmp_path: Path) -> None:
    x = xp.asarray(X)
    plan = workers.square.plan(stream, ck.cover(x.size), x, xp.empty_like(x), x.size)
    with pytest.raises(ck.ArgumentError, match=r"plan of square<float> cannot be pickled.*Pickle plan\.recipe, and"):
        pickle.dumps(plan)
    assert plan.recipe is not None
    assert len(pickle.dumps(plan.recipe)) < len(workers.SQUARE) + 800
    program = "result = xp.empty_like(x); given.plan(stream, x, result, x.size)()"
    np.testing.assert_array_equal(elsewhere(tmp_path, program, plan.recipe), X * X)


def test_pipelines(tmp_path: Path) -> None:
    used = workers.squares()
    list(used([X]))
    for pipeline in (workers.squares(), used):
        assert len(pickle.dumps(pipeline)) < 1000
        found = elsewhere(tmp_path, "result = next(iter(given([ck.to_host(x, stream)])))", pipeline)
        np.testing.assert_array_equal(found, X * X)


def test_options_of_pipelines() -> None:
    given = ck.Pipeline([workers.stage], depth=3, streams=2, graph=True, on_error="skip")
    again = pickle.loads(pickle.dumps(given))
    assert (again.depth, again.streams, again.graph, again.on_error) == (3, 2, True, "skip")
    assert again.stages == given.stages


def test_stored_arrays_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    array = np.arange(400_000, dtype=np.float32).reshape(-1, 4)
    np.save("a.npy", array)
    given = lines.from_array("a.npy", 30_000, halo=2), lines.from_npy("a.npy")
    assert len(pickle.dumps(given)) < 1000
    program = "result = np.concatenate([given[0][1], given[1][0][-1:]])"
    found = elsewhere(there, program, given, None)
    np.testing.assert_array_equal(found, np.concatenate([array[29_998:60_002], array[-1:]]))


def test_zarr_arrays_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    array = np.arange(40, dtype=np.float32).reshape(-1, 4)
    zarr.save("a.zarr", array)
    source = lines.from_zarr("a.zarr", 4)
    assert source.is_stored
    np.testing.assert_array_equal(elsewhere(there, "result = given[1]", source, None), array[4:8])
    memory = zarr.array(array, store=zarr.storage.MemoryStore()) if hasattr(zarr.storage, "MemoryStore") else None
    assert memory is None or not lines.from_zarr(memory, 4).is_stored


def test_what_cannot_be_pickled_says_so(stream: Any, tmp_path: Path) -> None:
    with pytest.raises(ck.ArgumentError, match=r"with stream= it cannot be pickled.*Leave stream= out"):
        pickle.dumps(ck.Pipeline([workers.stage], stream=stream))
    ends = socket.socketpair()
    for sink in (lines.to_array(np.empty(3)), lines.to_socket(ends[0])):
        with pytest.raises(ck.ArgumentError, match="writes to memory or a connection of this process"):
            pickle.dumps(sink)
    with lines.to_npy(tmp_path / "a.npy") as sink:
        with pytest.raises(ck.ArgumentError, match=r"\(NpySink\) cannot be pickled: it is open"):
            pickle.dumps(sink)
        sink.write(np.ones((2, 2)))
    for end in ends:
        end.close()


@pytest.mark.emulator
def test_streams_stay_in_their_process() -> None:
    with pytest.raises(ck.ArgumentError, match="a stream cannot be pickled"):
        pickle.dumps(ck.emulator.stream())


def test_sinks_that_are_closed_go_by_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = pickle.loads(pickle.dumps(lines.to_npy("a.npy")))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with sink:
        sink.write(np.ones((2, 2)))
    assert (tmp_path / "a.npy").is_file()
