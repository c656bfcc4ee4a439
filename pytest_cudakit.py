"""The pytest plugin that comes with cudakit: where kernels of tests run, and counters of what they do.

Nothing of cudakit is imported before a test asks for a fixture; it stands beside the package for that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudakit.emulator.counters.report import Report


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
    stream = ck.stream() if on_gpu else ck.emulator.stream()
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
