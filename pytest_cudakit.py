"""The pytest plugin that comes with cudakit: where kernels of tests run, and counters of what they do.

Nothing of cudakit is imported before a test asks for a fixture; it stands beside the package for that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudakit.emulator.counters.report import Report


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
        "--cudakit-schedules",
        type=int,
        default=0,
        metavar="N",
        help="run each test that takes cuda_stream N times, with threads in an order of another seed each time",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each schedule; its name has the seed."""
    count = metafunc.config.getoption("--cudakit-schedules")
    if count and "cuda_stream" in metafunc.fixturenames and not metafunc.config.getoption("--gpu", False):
        names = [f"schedule{seed}" for seed in range(count)]
        metafunc.parametrize("cuda_stream", range(count), indirect=True, ids=names)


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
        check = request.config.getoption("--cudakit-check")
        stream = ck.emulator.stream(check=check, schedule=getattr(request, "param", None))
    with ck.using(stream):
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
