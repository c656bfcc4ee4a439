"""PTX of a bundle on a GPU: the driver translates it, once; an older driver says so. The driver is a stand-in here."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.load.translate import machine_code

driver = pytest.importorskip("cuda.bindings.driver")


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the driver was given; it answers with another text."""
    texts: list[bytes] = []
    answer = ctypes.create_string_buffer(b"machine code", 12)

    def add(state: Any, form: Any, data: bytes, size: int, *more: Any) -> tuple[Status]:
        texts.append(data[:size])
        refused = b"9.9" in data
        return (Status.CUDA_ERROR_UNSUPPORTED_PTX_VERSION if refused else Status.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLinkCreate", lambda *none: (Status.CUDA_SUCCESS, "state"))
    monkeypatch.setattr(driver, "cuLinkAddData", add)
    monkeypatch.setattr(driver, "cuLinkComplete", lambda state: (Status.CUDA_SUCCESS, ctypes.addressof(answer), 12))
    monkeypatch.setattr(driver, "cuLinkDestroy", lambda state: (Status.CUDA_SUCCESS,))
    return texts


def specialization(folder: Path) -> Any:
    options = ck.CompileOptions(cache=folder)
    return ck.Kernel("__global__ void k(float* x) { x[0] = 1; }", options=options).specialization(arch="sm_90")


def test_ptx_is_translated_once(linked: list[bytes], tmp_path: Path) -> None:
    compiled = Compiled(b".version 8.0", {"k": "k"}, "", "ptx")
    for _ in range(2):
        assert machine_code(specialization(tmp_path), compiled, (13, 0)) == Compiled(b"machine code", {"k": "k"})
    assert linked == [b".version 8.0\0"]
    machine_code(specialization(tmp_path), compiled, (13, 1))  # another driver may translate better
    assert len(linked) == 2


def test_a_driver_older_than_the_code_says_so(linked: list[bytes], tmp_path: Path) -> None:
    compiled = Compiled(b".version 9.9", {"k": "k"}, "", "ptx")
    message = r"k: the driver, for CUDA 12.4, does not translate .* CUDA_ERROR_UNSUPPORTED_PTX_VERSION.*older NVRTC"
    with pytest.raises(ck.LaunchError, match=message):
        machine_code(specialization(tmp_path), compiled, (12, 4))


def test_linked_texts_are_given_one_by_one(linked: list[bytes], tmp_path: Path) -> None:
    compiled = Compiled(b"// head\n.version 8.0\n.target sm_80\n\n// .version\n.version 8.0\nb", {"k": "k"}, "", "ptx")
    machine_code(specialization(tmp_path), compiled, (13, 0))
    assert linked == [b".version 8.0\n.target sm_80\n\n// .version\n\0", b".version 8.0\nb\0"]
