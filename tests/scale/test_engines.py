"""What engines tell the schedulers that they are given, on stand-ins for Dask and Ray."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cudakit as ck
from cudakit.scale import results
from cudakit.scale.results import Here, OnDask, OnExecutor, OnRay, Work, engine_of, number_in, work_at
from cudakit.streams import devices


def double(chunk: int) -> int:
    if chunk == 13:
        raise ValueError("unlucky")
    return 2 * chunk


class Doubling(Work):
    """A work that notes which worker each chunk was on."""

    def __init__(self, writes: bool = False) -> None:
        super().__init__(double)
        self.writes = writes
        self.workers: list[int] = []

    def __call__(self, number: int, chunk: Any, worker: int) -> list[Any]:
        self.workers.append(worker)
        return super().__call__(number, chunk, worker)


class Client:
    """Dask's client: works when a result is waited for, the last chunk first."""

    def __init__(self, threads: dict[str, int] | None = None, status: str = "running") -> None:
        self.status, self.loop = status, "the loop"
        self.threads = {"a": 1, "b": 2} if threads is None else threads
        self.given: list[tuple[Any, ...]] = []
        self.cancelled: list[Any] = []
        self.waited: list[tuple[Any, ...]] = []
        self.settings: list[Any] = []
        self.is_late = False

    def nthreads(self) -> dict[str, int]:
        return self.threads


class Task:
    """A future of Dask."""

    def __init__(self, run: Any) -> None:
        self.result = run


class Completed:
    """Dask's iterator over what is done."""

    def __init__(self, loop: Any) -> None:
        assert loop == "the loop"
        self.tasks: list[Any] = []

    def add(self, task: Any) -> None:
        self.tasks.append(task)

    def __next__(self) -> Any:
        return self.tasks.pop()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()

    @contextlib.contextmanager
    def set_(settings: dict[str, Any]) -> Iterator[None]:
        made.settings.append(settings)
        yield
        made.settings.pop()

    def wait(tasks: list[Any], timeout: float) -> None:
        made.waited.append((list(tasks), timeout))
        if made.is_late:
            raise TimeoutError

    def submit(function: Any, *given: Any, pure: bool) -> Any:
        assert not pure, "the same chunk twice is worked on twice"
        made.given.append((*given, list(made.settings)))
        return Task(lambda: function(*given))

    made.submit = submit  # type: ignore[method-assign]
    made.cancel = made.cancelled.append  # type: ignore[attr-defined]
    worker = SimpleNamespace(name="tcp-3")
    distributed = SimpleNamespace(Client=Client, as_completed=Completed, wait=wait, get_worker=lambda: worker)
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    monkeypatch.setitem(sys.modules, "dask", SimpleNamespace(config=SimpleNamespace(set=set_)))
    monkeypatch.delitem(sys.modules, "dask_cuda", raising=False)
    return made


def test_dask_is_given_the_work_with_the_first_chunks_and_then_its_token(client: Client) -> None:
    task = Doubling()
    engine = engine_of(client, task)
    assert isinstance(engine, OnDask)
    assert engine.width == 3
    for number in range(5):
        engine.send(number, 10 + number)
    limit = [{"distributed.admin.large-graph-warning-threshold": "1 TiB"}]
    assert client.given == [
        *[(task, number, 10 + number, limit) for number in range(3)],
        *[(task.token, number, 10 + number, limit) for number in (3, 4)],
    ]
    assert client.settings == []


def test_a_dask_worker_that_does_not_know_the_work_is_given_it(client: Client) -> None:
    task = Doubling()
    engine = engine_of(client, task)
    for number in range(4):
        engine.send(number, 10 + number)
    # The last one is done first: the worker does not know the token, and asks for the work.
    number, give = engine.receive()
    assert client.given[-1][:3] == (task, 3, 13)
    assert number == 3
    with pytest.raises(ValueError, match="unlucky"):
        give()
    assert [(number, give()) for number, give in (engine.receive() for _ in range(3))] == [
        *[(2, [24]), (1, [22]), (0, [20])]
    ]
    assert task.workers == [3, 3, 3, 3], "the number at the end of the worker's name"


def test_dask_cuda_shows_each_worker_its_own_gpu(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_cuda", ModuleType("dask_cuda"))
    task = Doubling()
    engine = engine_of(client, task)
    engine.send(0, 1)
    assert engine.receive()[1]() == [2]
    assert task.workers == [0]


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("writes", [True, False])
def test_what_dask_has_begun_to_write_is_waited_for(client: Client, writes: bool, is_late: bool) -> None:
    client.is_late = is_late
    engine = engine_of(client, Doubling(writes))
    assert isinstance(engine, OnDask)
    for number in range(3):
        engine.send(number, number)
    left = list(engine._under_way)
    engine.close()
    assert client.waited == [(left, 60)] * writes
    assert client.cancelled == [left]
    engine.close()
    assert len(client.waited) == writes
    assert client.cancelled == [left, []]


def test_a_dask_client_that_does_not_run_is_refused(client: Client) -> None:
    client.status = "closed"
    with pytest.raises(ck.ArgumentError, match="the client given as engine= is closed"):
        engine_of(client, Doubling())
    client.status, client.threads = "running", {}
    assert engine_of(client, Doubling()).width == 1


class Ray(ModuleType):
    """Ray: each actor works at once, and the first of the references that are waited for is done."""

    class exceptions:
        class RayTaskError(Exception):
            cause: Exception

    def __init__(self, free: dict[str, float], is_initialized: bool = True) -> None:
        super().__init__("ray")
        self.free, self.is_initialized = free, lambda: is_initialized
        self.needs: dict[str, Any] = {}
        self.actors: list[Any] = []
        self.killed: list[Any] = []
        self.ran: list[tuple[int, int, Any]] = []

    def available_resources(self) -> dict[str, float]:
        return self.free

    def remote(self, **needs: Any) -> Any:
        self.needs = needs

        def of(cls: Any) -> Any:
            def create(*given: Any) -> Any:
                place, actor = len(self.actors), cls(*given)

                def run(number: int, chunk: Any) -> Any:
                    self.ran.append((place, number, chunk))
                    return (lambda: actor.run(number, chunk),)

                self.actors.append(SimpleNamespace(run=SimpleNamespace(remote=run)))
                return self.actors[-1]

            return SimpleNamespace(remote=create)

        return of

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        try:
            return reference[0]()
        except ValueError as error:
            failure = self.exceptions.RayTaskError("far away")
            failure.cause = error
            raise failure from None

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


@pytest.mark.parametrize(
    ("free", "width", "needs"),
    [
        ({"GPU": 2.0, "CPU": 8.0}, 2, {"num_gpus": 1, "num_cpus": 0}),
        ({"CPU": 3.0}, 3, {"num_cpus": 1}),
        ({"CPU": 0.0}, 1, {"num_cpus": 1}),
        ({}, 1, {"num_cpus": 1}),
    ],
)
def test_ray_has_an_actor_for_each_gpu_or_cpu(free: dict[str, float], width: int, needs: dict[str, int]) -> None:
    ray = Ray(free)
    engine = engine_of(ray, Doubling())
    assert isinstance(engine, OnRay)
    assert engine.width == len(ray.actors) == width
    assert ray.needs == {"max_restarts": -1, "max_task_retries": -1, **needs}


def test_ray_gives_each_chunk_to_the_actor_with_the_fewest() -> None:
    ray, task = Ray({"CPU": 3.0}), Doubling()
    engine = engine_of(ray, task)
    for number in range(4):
        engine.send(number, 10 + number)
    assert ray.ran == [(0, 0, 10), (1, 1, 11), (2, 2, 12), (0, 3, 13)]
    assert [engine.receive()[0] for _ in range(3)] == [0, 1, 2]
    number, give = engine.receive()
    assert number == 3
    with pytest.raises(ValueError, match="unlucky"):
        give()
    engine.send(4, 5)
    engine.send(5, 6)
    assert ray.ran[4:] == [(0, 4, 5), (1, 5, 6)], "all had none"
    number, give = engine.receive()
    assert (number, give()) == (4, [10])
    assert task.workers == [0, 0], "each actor sees its own GPU as the first"
    engine.send(6, 7)
    engine.send(7, 8)
    engine.send(8, 9)
    assert [place for place, *_ in ray.ran[6:]] == [0, 2, 0]


def test_rays_actors_are_ended() -> None:
    ray = Ray({"CPU": 2.0})
    engine = engine_of(ray, Doubling())
    assert isinstance(engine, OnRay)
    engine.send(0, 1)
    engine.close()
    assert ray.killed == ray.actors
    assert engine._numbers == {}
    engine.close()
    assert len(ray.killed) == 2
    with pytest.raises(ck.ArgumentError, match=r"called ray\.init"):
        engine_of(Ray({}, is_initialized=False), Doubling())


def test_an_engine_is_one_of_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Doubling()
    assert isinstance(engine_of(None, task), Here)
    ray = Ray({"CPU": 1.0})
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert isinstance(engine_of(ray, task), OnRay)
    for wrong in (Ray({"CPU": 1.0}), 3, ModuleType("os"), Client()):
        monkeypatch.delitem(sys.modules, "distributed", raising=False)
        with pytest.raises(ck.ArgumentError, match=f"or None; got {type(wrong).__name__}"):
            engine_of(wrong, task)
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    with pytest.raises(ck.ArgumentError, match="got int"):
        engine_of(3, task)


def test_this_thread_works_when_it_is_asked() -> None:
    task = Doubling()
    engine = engine_of(None, task)
    assert engine.width == 1
    engine.send(4, 20)
    engine.send(5, 30)
    number, give = engine.receive()
    assert task.workers == []
    assert (number, give(), task.workers) == (4, [40], [0])
    engine.close()
    assert engine._sent == []  # type: ignore[attr-defined]


class Later(Executor):
    """An executor whose futures are done when a test says so."""

    def __init__(self) -> None:
        self.futures: deque[tuple[Future[Any], Any, tuple[Any, ...]]] = deque()

    def submit(self, function: Any, /, *given: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.futures.append((future, function, given))
        return future


def test_the_lowest_of_the_chunks_that_are_done_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    task, executor = Doubling(), Later()
    engine = engine_of(executor, task)
    assert isinstance(engine, OnExecutor)
    assert engine.width == 2
    for number in range(3):
        engine.send(number, number)
    assert [given for _, _, given in executor.futures] == [(task, 0, 0), (task, 1, 1), (task.token, 2, 2)]
    for future, _, given in reversed(executor.futures):
        future.set_result([given[1]])
    assert [engine.receive()[0] for _ in range(3)] == [0, 1, 2]
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert engine_of(Later(), task).width == 1


def test_what_an_executor_has_begun_is_waited_for() -> None:
    executor = Later()
    engine = engine_of(executor, Doubling())
    assert isinstance(engine, OnExecutor)
    engine.send(0, 1)
    engine.send(1, 2)
    (begun, *_), (waiting, *_) = executor.futures
    begun.set_running_or_notify_cancel()

    def finish() -> None:
        begun.set_result(None)
        waiting.set_running_or_notify_cancel()

    threading.Timer(0.05, finish).start()
    engine.close()
    assert begun.done()
    assert waiting.cancelled()
    assert engine._under_way == {}


def test_workers_of_an_executor_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Doubling()
    with ThreadPoolExecutor(2, "pool-7") as pool:
        engine = engine_of(pool, task)
        assert engine.width == 2
        engine.send(0, 1)
        assert engine.receive()[1]() == [2]
    assert task.workers == [0]
    monkeypatch.setattr(results, "current_process", lambda: SimpleNamespace(name="SpawnProcess-5"))
    assert results._in_pool(task, 1, 4) == [8]
    assert task.workers == [0, 5]


def test_work_that_cannot_be_sent_to_processes_is_refused() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(ck.ArgumentError, match="cannot be sent to processes"):
        engine_of(pool, Work(lambda chunk: chunk))


def test_the_latest_works_of_a_process_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_works", {})
    first = results._restored("token 0", double, None, None)
    assert first.token == "token 0"
    assert results._restored("token 0", double, None, None) is first
    others = [results._restored(f"token {number}", double, None, None) for number in range(1, 4)]
    assert results._restored("token 0", double, None, None) is first, "it is the latest again"
    results._restored("token 4", double, None, None)
    assert work_at("token 1", 0, 5, 0) is None
    assert work_at("token 0", 0, 5, 0) == work_at(others[2].token, 0, 5, 0) == [10]
    assert work_at(first, 0, 6, 0) == [12]


@pytest.mark.parametrize(
    ("name", "number"), [("tcp-3", 3), ("ThreadPoolExecutor-0_12", 12), ("worker", 0), ("", 0), ("7", 7), ("1a", 0)]
)
def test_a_workers_number_ends_its_name(name: str, number: int) -> None:
    assert number_in(name) == number


def test_workers_of_one_machine_take_turns_with_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(devices, "device_count", lambda: 3)
    monkeypatch.setattr(devices, "on_device", lambda number: entered.append(number) or contextlib.nullcontext())
    for worker in range(5):
        assert Work(double)(0, 4, worker) == [8]
    assert entered == [0, 1, 2, 0, 1]
    monkeypatch.setattr(devices, "has_gpu", lambda: False)
    assert Work(double)(0, 4, 1) == [8]
    assert len(entered) == 5


def test_results_end_once() -> None:
    closed: list[int] = []
    told: list[Any] = []
    results = ck.scale.map(double, range(3), progress=told.append)
    results._engine.close = lambda: closed.append(1)  # type: ignore[method-assign]
    assert next(results) == 0
    results.close()
    over = results.counters.elapsed_s
    results.close()
    assert (closed, len(told)) == ([1], 1)
    assert results.counters.elapsed_s == over
    with pytest.raises(StopIteration):
        next(results)
    assert closed == [1]


class Once:
    """Chunks that are over once: who asks again is told that something is wrong."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.is_over = False

    def __iter__(self) -> Once:
        return self

    def __next__(self) -> int:
        assert not self.is_over, "asked for a chunk behind the last"
        if not self.left:
            self.is_over = True
            raise StopIteration
        self.left -= 1
        return self.left


def test_results_count_what_became_of_the_chunks() -> None:
    results = ck.scale.map(double, Once(3), depth=2)
    assert (results.item, results.counters.items, results.counters.under_way) == (-1, 0, 0)
    assert list(results) == [4, 2, 0]
    assert results.item == 2
    given = [12, 13, 14, 13]
    skipping = ck.scale.map(double, given, on_error="skip")
    assert list(skipping) == [24, 28]
    counters = skipping.counters
    assert (counters.items, counters.failed, counters.dropped, counters.over) == (2, 2, 2, True)
    assert repr(skipping) == "<cudakit.scale.Results closed: 2 of 4 chunks>"
    instead = ck.scale.map(double, given, on_error=lambda error: -error.item)
    assert list(instead) == [24, -1, 28, -3]
    assert (instead.counters.items, instead.counters.failed, instead.counters.dropped) == (4, 2, 0)


def test_chunks_are_sent_as_many_as_are_wanted() -> None:
    executor = Later()
    results = ck.scale.map(double, range(10), engine=executor, depth=3)
    executor.submit = immediately(executor)  # type: ignore[method-assign]
    assert next(results) == 0
    assert results.counters.under_way == 2
    assert next(results) == 2
    assert [given[1] for _, _, given in executor.futures] == [0, 1, 2, 3]
    results.close()
    assert results.counters.under_way == 0


def immediately(executor: Later) -> Any:
    """An executor's `submit` that has the result at once."""

    def submit(function: Any, /, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given))
        executor.futures.append((future, function, given))
        return future

    return submit
