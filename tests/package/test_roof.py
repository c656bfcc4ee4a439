"""The modules at the top of the package: names that are loaded late, errors, ready functions, and places."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pickle
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import errors, places
from cudakit.places import DEVICES, default_place, device_limits, is_capturing, place_of, refuse_capture

pytestmark = pytest.mark.emulator


def test_names_that_are_loaded_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*ck.__all__, "__version__", "__all__", "__doc__", "__name__"} == {*dir(ck)}
    assert dir(ck) == sorted(dir(ck))
    assert ck.jax.__name__ == "cudakit.jax"
    assert (dir(ck.torch), dir(ck.jax)) == (["like", "op"], ["call"])
    with pytest.raises(AttributeError, match="module 'cudakit' has no attribute 'krenel'") as raised:
        _ = ck.krenel  # type: ignore[attr-defined]
    assert (raised.value.name, raised.value.obj) == ("krenel", ck)
    assert ck.__version__ == importlib.metadata.version("cudakit")

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert ck.__version__ == "0+unknown"


def test_universal_functions_by_numpys_names() -> None:
    assert ck.math.sin is ck.math.sin
    assert ck.math.abs is ck.math.absolute
    assert ck.math.divide is ck.math.true_divide
    assert isinstance(ck.math.add, ck.math.Ufunc)
    for name in ck.math.MISSING:
        if isinstance(getattr(np, name, None), np.ufunc):
            with pytest.raises(AttributeError, match=f"^ck.math has no {name}: "):
                getattr(ck.math, name)
    for name in ("sine", "zeros", "ndarray"):
        with pytest.raises(AttributeError, match=f"module 'cudakit.math' has no attribute '{name}'") as raised:
            getattr(ck.math, name)
        assert (raised.value.name, raised.value.obj) == (name, ck.math)
    names = dir(ck.math)
    assert names == sorted(names)
    assert {*ck.math.TABLE} <= {*names}
    assert "abs" in names
    assert not {"zeros", "pi", "ndarray", *ck.math.MISSING} & {*names}


def test_errors_are_of_pythons_kinds_too() -> None:
    error = ck.CompileError("said", log="log", source="text", options=("-a",), template_arguments="f<int>")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), type(again)) == ("said", ck.CompileError)
    assert (again.log, again.source, again.options, again.template_arguments) == ("log", "text", ("-a",), "f<int>")
    bare = ck.CompileError("said")
    assert (bare.log, bare.source, bare.options, bare.template_arguments) == ("", "", (), "")
    failed = errors.PipelineError("said", stage="blur", item=3, name="c.png")
    assert (str(failed), failed.stage, failed.item, failed.name) == ("said", "blur", 3, "c.png")
    bare_failed = errors.PipelineError("said")
    assert (bare_failed.stage, bare_failed.item, bare_failed.name) == ("", -1, None)
    assert str(errors.AxisError("axis 3")) == "axis 3"
    assert str(errors.UnknownNameError("no 'x'")) == "no 'x'"


class CUDAError(Exception):
    """An error of the driver's, as cuda.core has it."""


class CUDARuntimeError(RuntimeError):
    """One of CuPy's."""


FATAL = [
    *("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS"),
    *("CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_HARDWARE_STACK_ERROR"),
    *("CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT", "cudaErrorIllegalAddress"),
    *("cudaErrorLaunchFailure", "cudaErrorAssert", "cudaErrorMisalignedAddress"),
]


@pytest.mark.parametrize("text", FATAL)
def test_errors_that_destroy_the_context(text: str) -> None:
    for kind in (CUDAError, CUDARuntimeError):
        found = errors.lost_context(kind(f"{text}: what that means"))
        assert found is not None
        assert f"this process's CUDA context is lost with it: {text}: what that means. Every" in str(found)
    assert errors.lost_context(ValueError(text)) is None
    assert errors.lost_context(CUDAError(" " * 200 + text)) is None
    with pytest.raises(ck.LaunchError, match="context is lost") as raised:
        errors.raise_launch_error(CUDARuntimeError(text), "f")
    assert isinstance(raised.value.__cause__, CUDARuntimeError)


def test_errors_of_the_driver_are_launch_errors() -> None:
    reason = CUDAError("CUDA_ERROR_INVALID_VALUE")
    assert errors.lost_context(reason) is None
    with pytest.raises(ck.LaunchError, match=r"^f: the driver refused the launch: CUDA_ERROR_INVALID_VALUE") as raised:
        errors.raise_launch_error(reason, "f")
    assert raised.value.__cause__ is reason
    with pytest.raises(ck.LaunchError, match=r"^the driver refused the launch: CUDA_ERROR_INVALID_VALUE\. An error of"):
        errors.raise_launch_error(reason)
    own = ck.LaunchError("own")
    with pytest.raises(ck.LaunchError) as raised:
        errors.raise_launch_error(own)
    assert raised.value is own
    errors.raise_launch_error(ValueError("no driver's"))
    with pytest.raises(ck.LaunchError, match=r"^f: the driver refused the launch: cudaErrorInvalidValue"):
        errors.raise_launch_error(CUDARuntimeError("cudaErrorInvalidValue"), "f")


# ── places ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Gpu:
    """Streams and devices of a GPU that is not there; `done` is what was asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.forked = False
        streams, devices = places.streams, places.devices

        def put(module: Any, **values: Any) -> None:
            for name, value in values.items():
                monkeypatch.setattr(module, name, value)

        put(
            streams,
            as_stream=lambda given: SimpleNamespace(of=given, device=SimpleNamespace(device_id=given), handle=given),
            handle_of=lambda core: ("handle", core.handle),
            device_stream=lambda given: SimpleNamespace(device_id=("device of", given)),
            require_stream=lambda given: self.done.append(("require", given)),
            create=lambda device: ("new stream", device),
            of_handle=lambda handle: SimpleNamespace(handle=handle, of="outer"),
            cupy_stream=lambda core: self.block(("cupy", core.of)),
            timing_event=lambda given, spent: ("event", given, spent),
        )
        put(
            devices,
            limits=lambda device: ("limits", device),
            current_device=lambda: SimpleNamespace(device_id=7),
            require_gpu=lambda: self.done.append("gpu"),
            on_device=lambda device: self.block(("on", device)),
            make_current=lambda device: self.done.append(("current", device)),
        )
        put(places, order=lambda: SimpleNamespace(join=lambda *given: self.done.append(("join", *given))))
        put(places.streams, current=lambda given: ("capture", given), is_capturing=lambda given: ("is", given))
        cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=5))
        self.cupy = SimpleNamespace(cuda=cuda)
        monkeypatch.setitem(__import__("sys").modules, "cupy", self.cupy)

    @contextlib.contextmanager
    def block(self, what: Any) -> Iterator[None]:
        self.done.append(("enter", what))
        yield
        self.done.append(("leave", what))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def test_what_the_gpus_are_asked(gpu: Gpu) -> None:
    assert (DEVICES.unit, DEVICES.xp) == ("ms", gpu.cupy)
    assert DEVICES.check(3).of == 3
    assert DEVICES.identity(3) == ("handle", 3)
    assert DEVICES.limits() == ("limits", 7)
    assert DEVICES.limits(3) == ("limits", ("device of", 3))
    assert gpu.done == []
    assert DEVICES.code(3).device_id == ("device of", 3)
    assert gpu.done == [("require", 3), "gpu", "gpu"]
    assert DEVICES.default_code("sm_90").device_id == 7
    gpu.done.clear()
    assert DEVICES.current().ptr == 5
    assert gpu.done == ["gpu"]
    assert DEVICES.describe(3).family == "number"
    assert DEVICES.elapsed_ms(2, 5.5) == 3.5  # type: ignore[arg-type]
    assert (DEVICES.capture(3), DEVICES.is_capturing(3)) == (("capture", 3), ("is", 3))


def test_streams_and_events_of_a_gpu(gpu: Gpu) -> None:
    made: Any = DEVICES.stream()
    assert made[1].device_id == 7
    assert gpu.done == []
    made = DEVICES.stream(3)
    assert made[1].device_id == 3
    assert gpu.done == [("enter", ("on", 3)), ("leave", ("on", 3))]
    gpu.done.clear()
    assert DEVICES.mark(3, 4) == ("event", 3, 4)  # type: ignore[arg-type]
    assert gpu.done == [("enter", ("on", ("device of", 3))), ("leave", ("on", ("device of", 3)))]
    gpu.done.clear()
    DEVICES.order(3, 4, False)
    ((_, later, earlier, wait),) = gpu.done
    assert (later.of, earlier.of, wait) == (3, 4, False)


def test_cupys_work_is_in_order_with_the_streams(gpu: Gpu) -> None:
    with DEVICES.using(3) as xp:
        assert xp is gpu.cupy
        assert [step[0] for step in gpu.done] == ["current", "join", "enter"]
    current, before, enter, leave, after = gpu.done
    assert (current, enter, leave) == (("current", 3), ("enter", ("cupy", 3)), ("leave", ("cupy", 3)))
    assert (before[1].of, before[2].of) == (3, "outer")
    assert (after[1].of, after[2].of) == ("outer", 3)
    gpu.done.clear()
    with pytest.raises(KeyError), DEVICES.using(3):
        raise KeyError
    assert gpu.done[-1][0] == "join"
    gpu.done.clear()
    with DEVICES.using(5):  # which CuPy works on already
        pass
    assert [step[0] for step in gpu.done] == ["current", "enter", "leave"]


def test_which_place_a_stream_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = ck.emulator.stream("sm_80")
    assert place_of(emulated) is places.emulator()
    assert place_of(3) is DEVICES
    assert device_limits(emulated).arch == "sm_80"
    for has_gpu, is_forked, on_gpu in ((True, False, True), (False, True, True), (False, False, False)):
        monkeypatch.setattr(places.devices, "has_gpu", lambda has_gpu=has_gpu: has_gpu)
        monkeypatch.setattr(places.devices, "is_forked", lambda is_forked=is_forked: is_forked)
        assert (default_place() is DEVICES) == on_gpu
    assert device_limits().arch == places.emulator().limits().arch


def test_a_stream_of_the_emulator_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "default_place", places.emulator)
    places.say_emulated.cache_clear()
    with pytest.warns(ck.errors.EmulatorWarning, match="there is no CUDA driver or no GPU here: .*, as sm_") as told:
        made = ck.stream()
    assert told[0].filename == __file__
    assert isinstance(made, ck.emulator.EmulatedStream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ck.stream()


def test_the_warning_of_a_pipelines_stream_names_the_callers_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "default_place", places.emulator)
    places.say_emulated.cache_clear()
    pipeline = ck.Pipeline([lambda item, stream: item])
    with pytest.warns(ck.errors.EmulatorWarning, match="there is no CUDA driver") as caught:
        assert len(list(pipeline(np.zeros((2, 3), np.float32)))) == 2
    assert caught[0].filename == __file__


def test_what_cannot_be_captured_is_refused() -> None:
    stream = ck.emulator.stream()
    refuse_capture(stream, "the op", "it waits", "call it before")
    assert not is_capturing(stream)
    with ck.capture(stream):
        assert is_capturing(stream)
        with pytest.raises(ck.LaunchError, match=r"^the op cannot be captured: it waits; call it before$"):
            refuse_capture(stream, "the op", "it waits", "call it before")
