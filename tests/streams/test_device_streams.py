"""What may be given as a stream, the objects of it, and the devices, with a stand-in for driver and libraries."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from cudakit.errors import ArgumentError, LaunchError
from cudakit.streams import devices, process, streams, witnesses
from cudakit.streams import witnesses as call_site_module

pytestmark = pytest.mark.emulator


class Core:
    """A stream as cuda.core's, which notes what it is given."""

    def __init__(self, handle: int = 0, device_id: int = 0) -> None:
        self.handle, self.is_closed = handle, False
        self.device = SimpleNamespace(device_id=device_id)
        self.given: list[Any] = []

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def wait(self, what: Any) -> None:
        self.given.append(("wait", what))

    def record(self, event: Any = None, options: Any = None) -> Any:
        self.given.append(("record", event, options))
        return event or f"event of {self.handle}"


class Foreign:
    """Another library's stream."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """One device, whose streams are `Core`; what is asked of it."""
    import cuda.core

    asked = SimpleNamespace(required=0, made_current=[], created=[], count=1)

    def create(foreign: Any) -> Core:
        asked.created.append(foreign)
        return Core(foreign.handle, 5)

    def require() -> None:
        asked.required += 1

    monkeypatch.setattr(cuda.core, "Stream", Core)
    monkeypatch.setattr(cuda.core, "LEGACY_DEFAULT_STREAM", Core(1))
    monkeypatch.setattr(cuda.core, "PER_THREAD_DEFAULT_STREAM", Core(2))
    monkeypatch.setattr(devices, "require_gpu", require)
    monkeypatch.setattr(devices, "make_current", lambda device_id=None: asked.made_current.append(device_id))
    monkeypatch.setattr(devices, "current_device", lambda: SimpleNamespace(create_stream=create))
    monkeypatch.setattr(devices, "device_count", lambda: asked.count)
    monkeypatch.setattr(streams, "_device_streams", {})
    monkeypatch.setattr(streams, "_objects", streams._Objects())
    return asked


def test_a_stream_is_cuda_cores_own_or_adopted(here: SimpleNamespace) -> None:
    core = Core(3)
    assert streams.as_stream(core) is core
    assert (here.required, here.made_current) == (1, [None])
    foreign = Foreign(7)
    adopted = streams.as_stream(foreign)
    assert streams.as_stream(foreign) is adopted
    assert here.created == [foreign]
    assert streams.as_stream(again := Foreign(7)) is not adopted
    assert here.created == [foreign, again]
    with pytest.raises(ArgumentError, match=r"expected a stream .*, got int"):
        streams.as_stream(3)


def test_default_streams_of_libraries_are_the_drivers(here: SimpleNamespace) -> None:
    import cuda.core

    legacy, per_thread = cuda.core.LEGACY_DEFAULT_STREAM, cuda.core.PER_THREAD_DEFAULT_STREAM
    assert [streams.as_stream(Foreign(handle)) for handle in (0, 1, 2)] == [legacy, legacy, per_thread]
    assert here.created == []
    assert [streams.of_handle(handle) for handle in (0, 1, 2)] == [legacy, legacy, per_thread]
    made: list[int] = []
    with mock.patch.object(Core, "from_handle", lambda handle: made.append(handle) or "made", create=True):
        assert streams.of_handle(9) == "made"
    assert made == [9]
    assert [streams.handle_of(Core(handle)) for handle in (0, 1, 2, 9)] == [1, 1, 2, 9]  # type: ignore[arg-type]


def test_streams_are_known_by_their_objects(here: SimpleNamespace) -> None:
    core = Core(0, 4)
    known = streams.device_stream(core)
    assert (known.stream, known.core, known.handle, known.device_id) == (core, core, 1, 4)
    assert streams.device_stream(core) is known
    assert here.required == 1, "it is looked up"
    streams._device_streams[id(other := Core(6))] = known  # an object that was given before, at the same address
    assert streams.device_stream(other).core is other
    core.is_closed = True
    with pytest.raises(LaunchError, match="the stream was closed; give another"):
        streams.device_stream(core)


def test_what_was_known_of_a_closed_stream_is_not_used(here: SimpleNamespace) -> None:
    foreign = Foreign(7)
    streams.device_stream(foreign).core.is_closed = True  # type: ignore[misc]
    streams._objects._adopted.clear()
    assert not streams.device_stream(foreign).core.is_closed
    assert here.created == [foreign, foreign]


def test_objects_of_many_streams_are_looked_up_anew(here: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_MOST_KNOWN", 3)
    given = [Foreign(10 + number) for number in range(4)]
    for number, each in enumerate(given):
        streams.device_stream(each)
        assert len(streams._device_streams) == len(streams._objects._adopted) == (number % 3) + 1
    assert here.created == given
    cupy = SimpleNamespace(cuda=SimpleNamespace(Stream=SimpleNamespace(null="null", from_external=lambda core: [core])))
    with mock.patch.dict("sys.modules", cupy=cupy):
        for number in range(4):
            streams._objects.of_cupy(Core(20 + number))  # type: ignore[arg-type]
            assert len(streams._objects._cupy) == (number % 3) + 1


def test_cupys_object_of_a_stream_is_the_same_each_time(here: SimpleNamespace) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(Stream=SimpleNamespace(null="null", from_external=lambda core: [core])))
    core: Any = Core(9)
    with mock.patch.dict("sys.modules", cupy=cupy):
        made: Any = streams.cupy_stream(core)
        assert made == [core]
        assert streams.cupy_stream(core) is made
        twin: Any = Core(9)
        assert streams.cupy_stream(twin) == [twin]
        assert streams.cupy_stream(Core(1)) == "null"  # type: ignore[arg-type]
        assert streams.cupy_stream(Core(0)) == "null"  # type: ignore[arg-type]


def test_cupy_works_on_the_streams_device_where_there_are_several(
    here: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []

    class Block:
        def __init__(self, name: Any, fails: bool = False) -> None:
            self.name, self.fails = name, fails

        def __enter__(self) -> None:
            log.append(("in", self.name))

        def __exit__(self, *error: Any) -> None:
            log.append(("out", self.name, error[0]))
            if self.fails:
                raise OSError

    here.count = 2
    stream = Block("stream")
    monkeypatch.setattr(streams._objects, "of_cupy", lambda core: stream)
    monkeypatch.setattr(devices, "on_device", lambda device_id: Block(device_id))
    with streams.cupy_stream(Core(9, 1)):  # type: ignore[arg-type]
        log.append("work")
    assert log == [("in", 1), ("in", "stream"), "work", ("out", "stream", None), ("out", 1, None)]
    log.clear()
    stream.fails = True
    with pytest.raises(OSError), streams.cupy_stream(Core(9, 1)):  # type: ignore[arg-type] # noqa: PT011
        raise ValueError
    assert log[2:] == [("out", "stream", ValueError), ("out", 1, ValueError)]


def test_a_stream_waits_for_a_stream_of_another_device_by_an_event(
    here: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[int] = []
    monkeypatch.setattr(devices, "on_device", lambda device_id: entered.append(device_id) or contextlib.nullcontext())

    def waited(count: int, handle: int) -> list[Any]:
        here.count = count
        core, source = Core(3), Core(handle, 6)
        streams.wait_for(core, source)  # type: ignore[arg-type]
        assert all(what is source or what == f"event of {handle}" for _, what in core.given)
        return ["event" if isinstance(what, str) else "stream" for _, what in core.given]

    assert [waited(*each) for each in ((1, 9), (2, 0), (2, 1), (2, 2))] == [["stream"]] * 4
    assert entered == []
    assert waited(2, 9) == ["event"]
    assert entered == [6]


def test_an_event_with_a_time_is_new_or_used_again() -> None:
    core: Any = Core(3)
    assert streams.timing_event(core, "spent") == "spent"  # type: ignore[arg-type]
    assert streams.timing_event(core) == "event of 3"
    (_, spent, none), (_, new, options) = core.given
    assert (spent, none, new) == ("spent", None, None)
    assert options.timing_enabled


def test_the_libraries_say_which_stream_they_work_on() -> None:
    pointer = SimpleNamespace(ptr=0)
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: pointer))
    torch = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device_id: 40 * device_id))
    with mock.patch.dict("sys.modules", cupy=cupy, torch=torch):
        assert streams.current_streams(["cupy", "torch"], 0) == [1, 1]
        pointer.ptr = 30
        assert streams.current_streams(["torch", "cupy"], 2) == [80, 30]
        assert streams.current_streams([], 2) == []


def test_a_new_streams_errors_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda.core

    synced: list[str] = []
    error: Exception | None = None

    class Plain:
        @classmethod
        def _init(cls, made: Any) -> Any:
            found = cls()
            found.of = made  # type: ignore[attr-defined]
            return found

        def sync(self) -> None:
            synced.append("sync")
            if error is not None:
                raise error

    monkeypatch.setattr(cuda.core, "Stream", Plain)
    monkeypatch.setattr(streams, "_checked", streams._checked.__wrapped__)
    made: Any = streams.create(SimpleNamespace(create_stream=lambda: "the device's"))  # type: ignore[arg-type]
    assert isinstance(made, Plain)
    assert made.of == "the device's"  # type: ignore[attr-defined]
    made.sync()
    assert synced == ["sync"]
    told: list[Exception] = []
    monkeypatch.setattr(streams, "raise_launch_error", told.append)
    error = RuntimeError("failed")
    with pytest.raises(RuntimeError, match="failed"):
        made.sync()
    assert told == [error]


# ── devices ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_devices_are_counted_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    count = devices.device_count.__wrapped__
    asked: list[int] = []
    initial, answer = [0], [(0, 3)]
    monkeypatch.setattr(driver, "cuInit", lambda flags: (asked.append(flags) or initial[0],))
    monkeypatch.setattr(driver, "cuDeviceGetCount", lambda: answer[0])
    assert count() == 3
    answer[0] = (1, 3)
    assert count() == 0
    initial[0], answer[0] = 100, (0, 3)
    assert count() == 0
    assert asked == [0, 0, 0]

    def missing(flags: int) -> Any:
        raise RuntimeError("no libcuda")

    monkeypatch.setattr(driver, "cuInit", missing)
    assert count() == 0


def test_a_gpu_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Any] = []
    monkeypatch.setattr(process, "in_child", children.append)
    monkeypatch.setattr(devices, "_forked", forked := threading.Event())
    devices._watch_forks.cache_clear()
    number = 0
    monkeypatch.setattr(devices, "device_count", lambda: number)
    assert not devices.has_gpu()
    with pytest.raises(LaunchError, match="no CUDA driver or no GPU here"):
        devices.require_gpu()
    assert children == []
    number = 1
    assert devices.has_gpu()
    devices.require_gpu()
    devices.require_gpu()
    assert children == [forked.set], "and told once of a fork"
    assert not devices.is_forked()
    children[0]()
    assert devices.is_forked()
    with pytest.raises(LaunchError, match="this process was forked"):
        devices.require_gpu()
    devices._watch_forks.cache_clear()


class Device:
    """cuda.core's device, as far as it is asked."""

    current = 0
    log: list[int] = []  # noqa: RUF012

    def __init__(self, device_id: int | None = None) -> None:
        self.device_id = Device.current if device_id is None else device_id
        self.name, self.compute_capability = f"card {device_id}", (9, 1)
        names = ("x", "y", "z")
        self.properties = SimpleNamespace(
            max_threads_per_block=1024,
            **{f"max_block_dim_{name}": 100 + k for k, name in enumerate(names)},
            **{f"max_grid_dim_{name}": 200 + k for k, name in enumerate(names)},
            max_shared_memory_per_block_optin=3000,
            multiprocessor_count=132,
            cooperative_launch=1,
        )

    def set_current(self) -> None:
        Device.current = self.device_id
        Device.log.append(self.device_id)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[Device]:
    import cuda.core

    monkeypatch.setattr(cuda.core, "Device", Device)
    monkeypatch.setattr(Device, "current", 0)
    monkeypatch.setattr(Device, "log", [])
    monkeypatch.setattr(devices, "_thread", threading.local())
    monkeypatch.setattr(devices, "require_gpu", lambda: None)
    return Device


def test_the_limits_of_a_device_are_its_properties(device: type[Device]) -> None:
    assert devices.limits.__wrapped__(3) == devices.Limits(
        name="card 3",
        arch="sm_91",
        compute_capability=(9, 1),
        threads_per_block=1024,
        block=(100, 101, 102),
        grid=(200, 201, 202),
        shared_bytes=3000,
        multiprocessors=132,
        cooperative=True,
    )


def test_the_current_device_is_made_current(device: type[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    Device.current = 2
    assert devices.current_device().device_id == 2
    assert Device.log == [2]

    def refuse() -> None:
        raise LaunchError("none")

    monkeypatch.setattr(devices, "require_gpu", refuse)
    with pytest.raises(LaunchError):
        devices.current_device()
    assert Device.log == [2]


@pytest.mark.parametrize(("status", "context", "had_none"), [(0, 0, True), (0, 7, False), (3, 7, True), (3, 0, True)])
def test_a_thread_is_given_a_context_once(
    device: type[Device], monkeypatch: pytest.MonkeyPatch, status: int, context: int, had_none: bool
) -> None:
    from cuda.bindings import driver

    asked: list[int] = []
    monkeypatch.setattr(driver, "cuCtxGetCurrent", lambda: asked.append(1) or (status, context))
    assert devices.make_current(4) is had_none
    assert Device.log == [4] * had_none
    assert devices.make_current(4) is False
    assert asked == [1]


def test_a_block_is_on_a_device_where_there_are_several(device: type[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(devices, "make_current", made.append)
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    with devices.on_device(1):
        assert Device.current == 0
    monkeypatch.setattr(devices, "device_count", lambda: 2)
    with devices.on_device(0):
        pass
    assert Device.log == []

    def failing() -> None:
        with devices.on_device(1):
            assert Device.current == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert Device.log == [1, 0]
    assert made == [1, 0, 1]


# ── captures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_open_capture_is_found_by_the_drivers_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    stream, capture, other = Foreign(8), mock.Mock(), mock.Mock()
    monkeypatch.setattr(streams, "_open", {})
    answer: list[Any] = [0, "active", 77, "more", "of", "it"]
    asked: list[int] = []
    monkeypatch.setattr(driver, "cuStreamGetCaptureInfo", lambda handle: asked.append(int(handle)) or tuple(answer))
    assert (streams.current(stream), streams.capture_and_number(stream)) == (None, (None, 0))
    assert not streams.is_any_open()
    streams.begin(capture, 77)
    streams.begin(other, 78)
    streams.begin(capture, 79)
    assert streams.is_any_open()
    assert asked == []
    assert streams.current(stream) is capture
    assert streams.capture_and_number(stream) == (capture, 77)
    assert asked == [8, 8]
    answer[2] = 5
    assert streams.capture_and_number(stream) == (None, 5)
    answer[0] = 1
    assert streams.capture_and_number(stream) == (None, 0)
    streams.end(capture)
    assert streams._open == {78: other}
    streams.end(capture)
    streams.end(other)
    assert not streams.is_any_open()


def test_the_driver_says_whether_a_stream_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(handle: int) -> int:
        if handle == 1:
            raise OverflowError("the legacy stream")
        return handle == 8

    monkeypatch.setattr(streams, "_question", lambda: (ask, OverflowError))
    assert [streams.is_captured(handle) for handle in (8, 9, 1)] == [True, False, False]
    assert streams.is_capturing(Foreign(8)) is True
    assert streams.is_capturing(Foreign(9)) is False


def test_the_question_is_cupys_or_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    question = streams._question.__wrapped__
    runtime = SimpleNamespace(streamIsCapturing="ask", CUDARuntimeError="refusal")
    with mock.patch.dict("sys.modules", {"cupy": mock.Mock(), "cupy.cuda": SimpleNamespace(runtime=runtime)}):
        assert question() == ("ask", "refusal")
    monkeypatch.setattr(driver, "cuStreamIsCapturing", lambda handle: (0, {3: None, 4: 0, 5: 1}[int(handle)]))
    with mock.patch.dict("sys.modules", {"cupy.cuda": None}):
        ask, refusal = question()
    assert ([ask(handle) for handle in (3, 4, 5)], refusal) == ([0, 0, 1], ())


# ── names, and who watches ──────────────────────────────────────────────────────────────────────────────────────────


def test_streams_have_names_until_they_are_taken_back() -> None:
    assert witnesses.name_of_stream(-5) is None
    witnesses.name_stream(-5, "mine")
    assert witnesses.name_of_stream(-5) == "mine"
    witnesses.name_stream(-5, None)
    witnesses.name_stream(-5, None)
    assert witnesses.name_of_stream(-5) is None


def test_shortcuts_are_told_when_the_first_comes_and_the_last_goes() -> None:
    class Shortcut:
        def __init__(self) -> None:
            self.told: list[bool] = []

        def watch(self, watched: bool) -> None:
            self.told.append(watched)

    early, late = Shortcut(), Shortcut()
    witnesses.add_shortcut(early)
    with witnesses.witnessing(witnesses.Witness()):
        witnesses.add_shortcut(late)
        assert witnesses.watched()
        with witnesses.witnessing(witnesses.Witness()):
            pass
        assert (early.told, late.told) == ([True], [True])
    assert (early.told, late.told) == ([True, False], [True, False])
    assert not witnesses.watched()


def test_the_call_site_is_outside_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = call_site_module._PACKAGE

    def frames(*files: str) -> Any:
        frame = None
        for line, file in enumerate(reversed(files), 1):
            frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=file), f_lineno=line, f_back=frame)
        return SimpleNamespace(_getframe=lambda depth: frame if depth == 1 else None)

    own = f"{package}/ops/sum.py"
    for files, expected in (
        ((own, "<launch of k>", contextlib.__file__, "program.py", own, "main.py"), "program.py:3"),
        (("program.py", own), "program.py:2"),
        ((own, own), f"{own}:1"),
    ):
        monkeypatch.setattr(call_site_module, "sys", frames(*files))
        assert call_site_module.call_site() == expected
