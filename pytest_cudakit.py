"""The pytest plugin that comes with cudakit: where kernels of tests run, and counters of what they do.

Nothing of cudakit is imported before a test asks for a fixture; it stands beside the package for that.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudakit.emulator.checks.findings import Report as Found
    from cudakit.emulator.counters.report import Report

#: What a search found in the kernels of a test.
_FOUND: pytest.StashKey[Found] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the emulator looks for in the kernels of tests, and how often with threads in another order."""
    group = parser.getgroup("cudakit", "cudakit")
    group.addoption(
        "--cudakit-check",
        choices=("raise", "warn", "off"),
        default="raise",
        help="what is done with races, reads of what nobody wrote and the like on cuda_stream; default: raise",
    )
    group.addoption(
        "--cudakit-strict",
        choices=("on", "off"),
        default="on",
        help="whether cuda_stream of the emulator tells arrays of the host and of the device apart; default: on",
    )
    group.addoption(
        "--cudakit-schedules",
        type=int,
        default=0,
        metavar="N",
        help="look for a fault of each launch on cuda_stream in up to N further orders of its threads",
    )
    group.addoption(
        "--cudakit-schedule",
        type=_order,
        metavar="SEED[,SWITCH…]",
        help="run kernels of cuda_stream with threads in this order, as a failure under --cudakit-schedules names it",
    )


def _order(given: str) -> int | tuple[int, ...]:
    """An order of threads as it is written: ``7``, or a seed and its switches, ``3,0,12``; of none of them ``3,``."""
    numbers = [each.strip() for each in given.strip("()").removesuffix(",").split(",")]
    if not all(each.isdecimal() for each in numbers):
        raise argparse.ArgumentTypeError(f"a seed, or a seed and the numbers of its switches, as 3,0,12; got {given!r}")
    return tuple(map(int, numbers)) if "," in given else int(numbers[0])


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that mean nothing together."""
    if config.getoption("--cudakit-schedules") < 0:
        raise pytest.UsageError("--cudakit-schedules takes a number from 0 up")
    if config.getoption("--cudakit-schedules") and config.getoption("--cudakit-check") == "off":
        raise pytest.UsageError("--cudakit-schedules looks by the checks, which --cudakit-check=off turns off")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say beside a failure that a search found how to run it again."""
    report = yield
    found = item.stash.get(_FOUND, None)
    orders = [each.schedule for each in found.findings if each.schedule is not None] if found is not None else []
    if report.failed and call.when == "call" and orders:
        order = str(orders[0]).strip("()").replace(" ", "")
        again = f"pytest --cudakit-schedule={order} '{item.nodeid}'"
        report.sections.append(("cudakit", f"the same order of threads again: {again}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add ``--gpu``, unless a project's conftest or another plugin has an option of that name: that one counts then."""
    yield
    try:
        _, unknown = parser.parse_known_and_unknown_args(["--gpu"])
    except pytest.UsageError:
        return  # there is one, which takes a value
    if "--gpu" in unknown:
        what = "run kernels of cuda_stream on a GPU; finding none is a failure"
        parser.getgroup("cudakit", "cudakit").addoption("--gpu", action="store_true", help=what)


@pytest.fixture
def cuda_stream(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A stream: of the emulator or, under ``--gpu``, of the GPU; arrays that are made meanwhile are of its place."""
    import cudakit as ck

    on_gpu = bool(request.config.getoption("--gpu", False))
    if on_gpu and not ck.has_gpu():
        pytest.fail("--gpu was given, but there is no CUDA driver or no GPU here", pytrace=False)
    if on_gpu:
        stream: Any = ck.stream()
    else:
        check, schedule, strict = (request.config.getoption(f"--cudakit-{n}") for n in ("check", "schedule", "strict"))
        stream = ck.emulator.stream(check=check, schedule=schedule, strict=strict == "on")
    count = 0 if on_gpu else request.config.getoption("--cudakit-schedules")
    with contextlib.ExitStack() as entered:
        if count:
            request.node.stash[_FOUND] = entered.enter_context(ck.check(schedules=count))
        entered.enter_context(ck.using(stream))
        yield stream
    stream.sync()


@pytest.fixture
def cuda_counters(cuda_stream: Any) -> Iterator[Report]:
    """The counters of what the test's kernels do on `cuda_stream`; a GPU has none that a program may read."""
    import cudakit as ck

    if not isinstance(cuda_stream, ck.emulator.EmulatedStream):
        pytest.skip("counters are the emulator's")
    with ck.emulator.counters(cuda_stream) as report:
        yield report
