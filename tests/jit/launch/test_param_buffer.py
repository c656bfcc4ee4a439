"""Parameters as raw bytes: what cuda.core gives to its own launch only."""

from __future__ import annotations

import struct

import cuda.core
import pytest

from cudakit.jit.launch.param_buffer import native_bytes, tensor_map_bytes


def test_complex_numbers() -> None:
    assert native_bytes(1 - 2j) == struct.pack("<2d", 1, -2)


def test_cuda_core_still_shows_the_bytes_of_tensor_maps() -> None:
    # Not made by the driver, which is not needed so: all zeros.
    descriptor = cuda.core.TensorMapDescriptor.__new__(cuda.core.TensorMapDescriptor)
    try:
        found = tensor_map_bytes(descriptor)
    except ImportError as error:
        pytest.fail(
            f"cuda.core {cuda.core.__version__} has no ParamHolder any more ({error}): find another way to a tensor "
            "map's bytes in cudakit.jit.launch.param_buffer.tensor_map_bytes, a public one if there is one now"
        )
    assert found == bytes(128)
