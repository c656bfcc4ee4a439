"""Trials in a process of their own: a launch that hangs or faults costs its candidate, and the search goes on.

The parent sends the arguments once, then for each candidate the kernel and the configuration. A process that dies or
does not answer in time is replaced.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, CompileError, LaunchError, TemplateError
from cudakit.jit.compile.worker import answer_channel, command, environment
from cudakit.memory.memory import to_host
from cudakit.places import DEVICES, place_of
from cudakit.places import stream as default_stream
from cudakit.tuning.arrays import on_place
from cudakit.tuning.candidate import Candidate
from cudakit.tuning.compiling import Ahead
from cudakit.tuning.objectives import objectives_of
from cudakit.tuning.space import Point
from cudakit.tuning.trials import Trials
from cudakit.types.arguments import texture_handle

#: Longest start of a process, in seconds: imports, a CUDA context, copies of the arguments. Then it answers so.
_START_S, _READY = 60.0, "ready"


class IsolatedTrials(Trials):
    """Trials whose launches run in another process.

    Parameters
    ----------
    time_limit_s : float
        Longest time of a candidate, in seconds.
    l2 : str
        State of the L2 cache before a timed launch.
    """

    def __init__(self, *arguments: Any, time_limit_s: float, l2: str, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._time_limit_s, self._l2 = time_limit_s, l2
        self._child: _Child | None = None
        self._reference: Point | None = None

    def evaluate(self, point: Point, ahead: Ahead) -> Candidate:
        """Evaluate a point in the process. A new process first runs the reference again."""
        try:
            with self.timed("compile"):
                ahead.wait(point)
            with self.timed("process"):
                result = self._ask("evaluate", [point])
        except LaunchError as error:  # of the configuration
            result = Candidate(point, "invalid", why=str(error))
        except (CompileError, TemplateError) as error:
            result = str(error)
        candidate = result if isinstance(result, Candidate) else Candidate(point, "failed", why=result)
        self.candidates.append(candidate)
        if self._reference is None and candidate.state == "right":
            self._reference = point
        return candidate

    def compare_in_turns(self, finalists: Sequence[Candidate]) -> None:
        """Measure the best candidates again in one process."""
        if len(finalists) < 2:
            return
        points = [candidate.point for candidate in finalists]
        results = self._ask("compare", points)
        if isinstance(results, list):
            for candidate, result in zip(finalists, results, strict=True):
                vars(candidate).update(vars(result))

    def confirm(self, candidate: Candidate, seed: int) -> dict[str, str]:
        """Confirm a candidate in the process."""
        result = self._ask("confirm", [candidate.point], seed)
        if isinstance(result, str):
            candidate.state, candidate.why = "wrong", result
            return {"process": result}
        outcomes: dict[str, str] = result[1]
        vars(candidate).update(state=result[0].state, why=result[0].why)
        for name, make in (self._others if candidate.state == "right" else {}).items():
            outcomes[name] = self._with_others(make, candidate, seed)
            if candidate.state != "right":
                candidate.why = f"{name}: {candidate.why}"
                break
        return outcomes

    def _with_others(self, make: Callable[[], Sequence[Any]], candidate: Candidate, seed: int) -> str:
        """Run a candidate with other arguments, in a process of their own."""
        if self._check is not None and not callable(self._check):
            return "left out: the expected arrays are of the passed data only"
        parts = self.variants, make(), self.stream, self.objective, self._check, self._tolerance
        points = [candidate.point] if self._check is not None or self._reference is None else [self._reference]
        points += [candidate.point] * (points[0] != candidate.point)
        trials = IsolatedTrials(*parts, time_limit_s=self._time_limit_s, l2=self._l2)
        with trials, Ahead(trials.specializations, 0, 0) as ahead:
            result = [trials.evaluate(point, ahead) for point in points][-1]
        if result.state in ("right", "slow"):
            return "right"
        if result.state == "invalid":
            return f"left out: {result.why}"
        candidate.state, candidate.why = "wrong", result.why
        return result.why

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _ask(self, request: str, points: Sequence[Point], *more: Any) -> Any:
        """Return the process's answer to a request for points; a text says why there is none."""
        rows = self._rows(points)
        try:
            return self._answer(request, rows, *more)
        except KeyboardInterrupt:
            self.close()  # the answer may still come, and would be taken for that to the next request
            raise

    def _answer(self, request: str, rows: list[tuple[Point, Any, Any]], *more: Any) -> Any:
        limit_s = self._time_limit_s * (10 if request == "compare" else 1)
        if self._child is None:
            self._child = _Child(self._message())
            start = self._child.answer(_START_S)
            if start != _READY:
                self.close()
                return f"no process started: {start}"
            if self._reference is not None:
                self._child.ask(("evaluate", self._rows([self._reference])), limit_s)
        answer = self._child.ask((request, rows, *more), limit_s)
        if not isinstance(answer, tuple):
            self._child.end()
            self._child = None
            return answer
        result, is_alive = answer
        if not is_alive:
            self.close()
        if isinstance(result, BaseException):
            raise result
        return result

    def _rows(self, points: Sequence[Point]) -> list[tuple[Point, Any, Any]]:
        return [(point, self.variants.kernel(point), self.variants.config(point, self._values)) for point in points]

    def _message(self) -> dict[str, Any]:
        """Return what a new process needs to know."""
        arguments, is_poisoned = on_place(self._arguments, self.stream)
        copies = {id(value): to_host(value, self.stream) for value in arguments if getattr(value, "shape", ())}
        host = [copies.get(id(value), value) for value in arguments]
        if any(texture_handle(value) is not None for value in arguments):
            raise ArgumentError("with isolated=True no argument is a texture: it belongs to this process")
        check = self._check
        try:
            pickle.dumps(check)
        except Exception:  # a function of this process: its results are sent
            check = check(*[np.array(value) if isinstance(value, np.ndarray) else value for value in host])
        return {
            "arguments": host,
            "is_poisoned": self._is_poisoned | is_poisoned,
            "on_gpu": place_of(self.stream) is DEVICES,
            "objective": [objective.name for objective in (self.objective, *self.further)],
            "check": check,
            "tolerance": self._tolerance,
            "l2": self._l2,
        }


class _Child:
    """A process that runs candidates."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            command(__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        self._answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._send(message)

    def ask(self, request: Any, limit_s: float) -> Any:
        """Return the answer to a request, a pair; or a text if the process died or was too slow."""
        self._send(request)
        return self.answer(limit_s)

    def answer(self, limit_s: float) -> Any:
        """Return the next answer, or a text if the process died or was too slow."""
        try:
            return self._answers.get(timeout=limit_s)
        except queue.Empty:
            return f"no result after {limit_s:g} s; its process was ended"

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError, AttributeError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed
            while True:
                try:
                    self._answers.put(pickle.load(self._process.stdout))
                except (EOFError, pickle.UnpicklingError):
                    self._answers.put(f"its process died (exit status {self._process.wait()})")
                    return


class _Sent:
    """The variants of the points that were sent: kernels and configurations."""

    of_call = ()

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: Sequence[tuple[Point, Any, Any]]) -> list[Point]:
        for point, kernel, config in rows:
            self.rows[repr(point)] = kernel, config
        return [point for point, _, _ in rows]

    def values(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return {}

    def packaged(self, path: str) -> Any:
        return type(next(iter(self.rows.values()))[0]).from_template(path)

    def kernel(self, point: Point) -> Any:
        return self.rows[repr(point)][0]

    def specializations(self, point: Point, stream: Any, arguments: Sequence[Any]) -> list[Any]:
        return [self.kernel(point).specialization_of(stream, *arguments)]

    def config(self, point: Point, values: Mapping[str, Any]) -> Any:
        return self.rows[repr(point)][1]


def serve() -> None:
    """Answer requests from standard input until it ends."""
    # Ctrl-C reaches all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = answer_channel()
    message = pickle.load(sys.stdin.buffer)
    from cudakit.emulator import face

    stream = default_stream() if message["on_gpu"] else face.stream()
    sent: Any = _Sent()
    first, *further = objectives_of(message["objective"], stream, message["l2"])
    trials = Trials(
        sent,
        on_device(message["arguments"], stream),
        stream,
        first,
        message["check"],
        message["tolerance"],
        message["is_poisoned"],
        further=further,
    )
    pickle.dump(_READY, answers)
    answers.flush()
    while True:
        try:
            request, rows, *more = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        points = sent.add(rows)
        try:
            result = _result(trials, request, points, *more)
        except Exception as error:
            result = _sendable(error)
        pickle.dump((result, not trials.broken), answers)
        answers.flush()


def _sendable(error: Exception) -> Exception:
    """Return an error that the parent can read."""
    try:
        pickle.dumps(error)
        copy.copy(error)  # is made as the parent would
        return error
    except Exception:
        text = f"{type(error).__name__}: {error}"
        return MemoryError(text) if isinstance(error, MemoryError) else RuntimeError(text)


def _result(trials: Trials, request: str, points: Sequence[Point], *more: Any) -> Any:
    candidates = []
    with Ahead(trials.specializations, 0, 0) as ahead:
        for point in points:
            former = next((row for row in trials.candidates if row.point == point), None)
            candidates.append(former or trials.evaluate(point, ahead))
    if request == "evaluate":
        return candidates[0]
    if request == "compare":
        trials.compare_in_turns(candidates)
        return candidates
    outcomes = trials.confirm(candidates[0], *more)
    return candidates[0], outcomes


def on_device(arguments: Sequence[Any], stream: Any) -> list[Any]:
    """Return arguments with copies of arrays at the stream's place."""
    from cudakit.memory.memory import to_device

    copies = {id(value): to_device(value, stream) for value in arguments if isinstance(value, np.ndarray)}
    return [copies.get(id(value), value) for value in arguments]


if __name__ == "__main__":
    serve()
