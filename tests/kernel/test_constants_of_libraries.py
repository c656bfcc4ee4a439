"""Tables and constants of libraries are in the code of every instance: no variables that instances must share."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import thinned

import cudakit as ck
from cudakit.jit.compile import elf
from cudakit.kernel.unit import Unit, _units

TEXTS = {
    "functions": "__global__ void k(double* x) { x[0] = sin(x[0]) + tgamma(x[1]) + j0(x[2]); }",
    "virtual": """
        struct A { __device__ virtual int f() { return 1; } };
        struct B : A { __device__ int f() override { return 2; } };
        __global__ void k(int* x) { B b; A* a = x[0] ? (A*)&b : new A; x[1] = a->f(); }
    """,
    "random numbers": """
        #include <curand_kernel.h>
        __global__ void k(unsigned* x) {
            curandStateXORWOW_t a; curand_init(1ull, threadIdx.x, 5, &a); x[0] = curand(&a);
            curandStateMRG32k3a_t b; curand_init(1, 2, 3, &b); x[1] = curand(&b); x[2] = curand_poisson(&a, 3.0);
        }
    """,
    "complex numbers": """
        #include <cuda/std/complex>
        __global__ void k(cuda::std::complex<double>* x) { x[0] = pow(x[0], x[1]) + exp(x[2]); }
    """,
}


@pytest.mark.parametrize("name", thinned(list(TEXTS), 3))
def test_what_libraries_have_is_not_shared(name: str) -> None:
    assert elf.variables_of(ck.Kernel(TEXTS[name], "k").compile(arch="sm_90").code) == ()


def test_what_the_text_has_is_shared() -> None:
    text = "__device__ int n; namespace s { static __constant__ int m; } __global__ void k(int* x) { *x = ++n + s::m; }"
    names = elf.variables_of(ck.Kernel(text, "k").compile(arch="sm_90").code)
    assert len(names) == 2


@pytest.mark.slow
def test_packaged_templates_have_no_variables() -> None:
    x = np.ones((4, 40), np.float32)
    for call in (ck.ops.sum, ck.ops.cumsum, ck.ops.softmax, ck.ops.argmax, ck.ops.norm, ck.ops.transpose, ck.math.sin):
        call(x)
    ck.elementwise("T x", "T z", "z = x")(x)
    ck.math.power(x, x)
    ck.reduction("T x", "T z", "x", "a + b", "0", name="added")(x)
    ck.scan("T x", "T z", "x", "a + b", "0", "z = item", name="scanned")(x)
    ck.fuse(lambda x: x - x.sum(axis=0))(x)
    units = [unit for unit in tuple(_units.by_key.values()) if unit.source.name != "<kernel text>"]
    own = [unit for unit in units if "cudakit/" in unit.source.text]
    assert own
    assert {unit.source.name: names for unit in own if (names := _variables(unit))} == {}


def _variables(unit: Unit) -> list[str]:
    return [name for image in unit._images.values() if image.codes for name in image.variables().names()]
