"""What tests of tile kernels need: a compiler that knows them, and texts."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import cudakit as ck
from cudakit.jit.compile import assemble

HEAD = '#include "cuda_tile.h"\n#include <cuda_bf16.h>\nnamespace ct = cuda::tiles;\nusing namespace ct::literals;\n'
#: One dimension of n elements as tiles.
VIEW = """
template <int TILE, typename T> __tile__ auto tiles_of(T* p, int n) {
    return ct::partition_view{ct::tensor_span{p, ct::extents<int, ct::dynamic_extent>{n}}, ct::shape<TILE>{}};
}
"""


class Toolchain:
    """Whether the tests' tile kernels were made elsewhere; `conftest` says it once, for all tests."""

    is_elsewhere = False


toolchain = Toolchain()


@functools.cache
def why_no_tiles() -> str:
    """What is missing for tile kernels; empty where nothing is."""
    if toolchain.is_elsewhere:
        return ""
    try:
        ck.Kernel(HEAD + "__tile_global__ void k(float* x) {}").compile(arch="sm_90", target="tileir")
    except ck.CudakitError as error:
        return str(error).splitlines()[0]
    return ""


@functools.cache
def why_no_assembler() -> str:
    try:
        assemble.assembler()
    except ck.CudakitError as error:
        return str(error)
    return why_no_tiles()


def kernel(body: str, head: str = "float* __restrict__ x, int n", template: str = "") -> Any:
    """A tile kernel of a body."""
    return ck.Kernel(f"{HEAD}{VIEW}{template}\n__tile_global__ void k({head}) {{ {body} }}")


class Together:
    """Tile kernels that are compiled in one program: twenty take as long as one, which is mostly its headers.

    A test module declares them as it is imported, and takes them when its tests run.

    Parameters
    ----------
    head : str
        Text before the kernels.
    """

    def __init__(self, head: str = "") -> None:
        self.head, self.texts = head, dict[tuple[str, str], str]()

    def declare(self, body: str, head: str = "float* __restrict__ x, int n") -> None:
        """Add the tile kernel of a body."""
        self.texts.setdefault((body, head), f"k{len(self.texts)}")

    @functools.cached_property
    def module(self) -> ck.Module:
        """All of them; its text is read once."""
        kernels = (f"__tile_global__ void {name}({head}) {{ {body} }}\n" for (body, head), name in self.texts.items())
        return ck.Module(f"{HEAD}{VIEW}{self.head}\n{''.join(kernels)}")

    def __call__(self, body: str, head: str = "float* __restrict__ x, int n") -> Any:
        """Return a declared kernel."""
        return self.module[self.texts[body, head]]


def needs_compiler() -> None:
    """Where kernels were taken in from elsewhere, there need be none."""
    if toolchain.is_elsewhere:
        pytest.skip("tile kernels are compiled elsewhere")
    try:
        kernel("x[0] = 17;").compile(arch="sm_90", target="tileir")
    except ck.CompileError as error:
        pytest.skip(str(error).splitlines()[0])


def needs_tiles(on_gpu: bool = False) -> None:
    if why := why_no_assembler() if on_gpu else why_no_tiles():
        pytest.skip(f"tile kernels: {why}")
