"""The pytest plugin of cudakit: fixtures for a stream and for counters, and options of the emulator's checks.

The plugin is a module beside the package, so that cudakit is imported only when a test uses a fixture.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudakit.emulator.checks.findings import Report as Findings
    from cudakit.emulator.counters.report import Report

#: Findings of the search in further orders of threads, of a test.
_FINDINGS: pytest.StashKey[Findings] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the emulator's checks."""
    group = parser.getgroup("cudakit", "cudakit")
    group.addoption(
        "--cudakit-check",
        choices=("raise", "warn", "off"),
        default="raise",
        help="how races, reads of unwritten memory and other findings on cuda_stream are reported; default: raise",
    )
    group.addoption(
        "--cudakit-strict",
        choices=("on", "off"),
        default="on",
        help="whether cuda_stream of the emulator refuses host arrays where a GPU would; default: on",
    )
    group.addoption(
        "--cudakit-schedules",
        type=int,
        default=0,
        metavar="N",
        help="repeat each launch on cuda_stream in up to N further orders of its threads",
    )
    group.addoption(
        "--cudakit-schedule",
        type=_order,
        metavar="SEED[,SWITCH…]",
        help="run kernels of cuda_stream in this order of threads, which a failure under --cudakit-schedules reports",
    )


def _order(text: str) -> int | tuple[int, ...]:
    """Parse an order of threads: a seed, ``7``, or a seed and its switches, ``3,0,12``; without switches ``3,``."""
    numbers = [number.strip() for number in text.strip("()").removesuffix(",").split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"a seed, or a seed and the numbers of its switches, as 3,0,12; got {text!r}")
    return tuple(map(int, numbers)) if "," in text else int(numbers[0])


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that contradict each other."""
    if config.getoption("--cudakit-schedules") < 0:
        raise pytest.UsageError("--cudakit-schedules takes a number from 0 up")
    if config.getoption("--cudakit-schedules") and config.getoption("--cudakit-check") == "off":
        raise pytest.UsageError("--cudakit-schedules needs the checks, which --cudakit-check=off turns off")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that repeats a failure to its report."""
    report = yield
    findings = item.stash.get(_FINDINGS, None)
    orders = [finding.schedule for finding in findings.findings if finding.schedule is not None] if findings else []
    if report.failed and call.when == "call" and orders:
        order = str(orders[0]).strip("()").replace(" ", "")
        command = f"pytest --cudakit-schedule={order} '{item.nodeid}'"
        report.sections.append(("cudakit", f"the same order of threads again: {command}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add ``--gpu``, unless a project's conftest or another plugin has an option of this name."""
    yield
    try:
        _, unknown = parser.parse_known_and_unknown_args(["--gpu"])
    except pytest.UsageError:
        return  # there is one, which takes a value
    if "--gpu" in unknown:
        text = "run kernels of cuda_stream on a GPU; without a GPU the tests fail"
        parser.getgroup("cudakit", "cudakit").addoption("--gpu", action="store_true", help=text)


@pytest.fixture
def cuda_stream(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A stream of the emulator or, with ``--gpu``, of the GPU; it is the current stream of the test."""
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
            request.node.stash[_FINDINGS] = entered.enter_context(ck.check(schedules=count))
        entered.enter_context(ck.using(stream))
        yield stream
    stream.sync()


@pytest.fixture
def cuda_counters(cuda_stream: Any) -> Iterator[Report]:
    """Counters of the test's kernels on `cuda_stream`; with ``--gpu`` the test is skipped."""
    import cudakit as ck

    if not isinstance(cuda_stream, ck.emulator.EmulatedStream):
        pytest.skip("only the emulator has counters")
    with ck.emulator.counters(cuda_stream) as report:
        yield report
