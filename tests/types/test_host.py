"""Arrays in host memory of any library, and where their memory lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.errors import ArgumentError
from cudakit.types.arguments import as_numpy, pointer_of, refuse_masked

pytestmark = pytest.mark.emulator


class Own(np.ndarray):
    """A subclass, whose instances have attributes besides."""


@pytest.mark.parametrize("kind", ["whole", "view", "turned", "nothing", "scalar", "readonly", "mapped", "subclass"])
def test_it_is_what_numpy_says(kind: str, tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    others = {"view": x[1:, ::2], "turned": x[::-1, ::-1], "nothing": x[:0], "scalar": x[2:3, 3:4].reshape(())}
    given: np.ndarray = others.get(kind, x)
    if kind == "mapped":
        given = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 6))
    if kind == "readonly":
        given.flags.writeable = False
    if kind == "subclass":
        given = given.view(Own)
        given.more = 1  # type: ignore[attr-defined]
    assert pointer_of(given) == given.ctypes.data


# ── host arrays of any library ───────────────────────────────────────────────────────────────────────────────────────


class Exported:
    """An object that exports an array by NumPy's interface."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


class DLPack:
    """An object that exports an array by DLPack, from memory of a kind."""

    def __init__(self, array: np.ndarray, kind: int) -> None:
        self.array, self.kind = array, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__()


class Tensor:
    """A tensor as torch has it."""

    __module__ = "torch"
    is_cuda = False

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        self.array, self.dtype, self.shape = array, dtype, array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)


def test_host_arrays_of_any_library_share_their_memory() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[1:, ::2]
    plain = x.copy()
    pinned = DLPack(plain, 3)
    for given, own in (
        (x, x),
        (Exported(x), x),
        (DLPack(plain, 1), plain),
        (pinned, plain),
        (Tensor(x, "torch.float32"), x),
    ):
        found = as_numpy(given)
        assert found is not None
        assert (found.dtype, found.shape, found.strides) == (own.dtype, own.shape, own.strides)
        assert found.ctypes.data == own.ctypes.data
    assert as_numpy(x) is x


def test_torch_s_types_that_numpy_lacks() -> None:
    x = np.array([1, 2.5, -3]).astype(ml_dtypes.bfloat16)
    found = as_numpy(Tensor(x, "torch.bfloat16"))
    assert found is not None
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found, x)
    with pytest.raises(ArgumentError, match=r"torch.qint8, which has no C\+\+ equivalent"):
        as_numpy(Tensor(x, "torch.qint8"))


def test_what_is_no_host_array() -> None:
    x = np.zeros(3)
    on_device = Tensor(x, "torch.float64")
    on_device.is_cuda = True
    record = np.zeros((), [("a", "i4")])
    for value in (1, 2.5, "text", None, [1, 2], np.float32(1), record, DLPack(x, 2), on_device):
        assert as_numpy(value) is None
    assert as_numpy(np.zeros((), np.float32)) is not None, "of no dimensions, yet an array"


def test_masked_arrays_are_refused() -> None:
    for refuse in (as_numpy, refuse_masked):
        with pytest.raises(ArgumentError, match="mask would be lost"):
            refuse(np.ma.array([1, 2]))
    refuse_masked(np.zeros(2))
    refuse_masked(np.zeros(2).view(Own))
