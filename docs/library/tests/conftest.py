"""Where the tests run: on the emulator, and under ``--gpu`` on a GPU."""

import pytest

import cudakit as ck


def pytest_addoption(parser):
    """Add the switch."""
    parser.addoption("--gpu", action="store_true", help="run kernels on a GPU; finding none is a failure")


def pytest_configure(config):
    """A run that asks for a GPU has one."""
    if config.getoption("--gpu") and not ck.has_gpu():
        raise pytest.UsageError("--gpu was given, and there is no GPU here")


@pytest.fixture
def stream(request):
    """A stream of the place."""
    return ck.stream() if request.config.getoption("--gpu") else ck.emulator.stream()


@pytest.fixture
def xp(stream):
    """NumPy or CuPy, on that stream."""
    with ck.using(stream) as module:
        yield module
