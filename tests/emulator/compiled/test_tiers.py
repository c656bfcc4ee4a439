"""Code is found on disk by what it is made of, with no IR written; and by nothing less than all of that."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.kernel_memory import SharedLayout
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import parse
from cudakit.jit.cache.cache import Cache

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
from cudakit.emulator.compiled import Refusal, kernel, machine, native, source
from cudakit.emulator.compiled.layout import Layout

pytestmark = pytest.mark.emulator

TEXT = """.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 kept[64];
.visible .entry f(.param .u64 to) {
  .reg .b32 %r<3>;
  mov.u32 %r1, 7;
  st.shared.u32 [kept+8], %r1;
  bar.sync 0;
  ret;
}
.visible .entry g(.param .u64 to) {
  .reg .b32 %r<3>;
  mov.u32 %r1, 9;
  st.shared.u32 [kept], %r1;
  ret;
}
"""
LAYOUT = Layout(8, True, True)
HERE = native.processor()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, fresh_cache: Cache) -> list[str]:
    """The kernels whose IR is written, with an empty cache."""
    names, make = list[str](), kernel.make

    def counted(context: Any, layout: Layout, baseline: bool = False) -> kernel.KernelIR:
        names.append(context.function.name)
        return make(context, layout, baseline)

    monkeypatch.setattr(kernel, "make", counted)
    return names


def taken(text: str = TEXT, name: str = "f", layout: Layout = LAYOUT, short: int = 100, at: int = 0) -> native.Tier:
    """The code of a kernel of a text that is read anew, with a shared variable `at` an offset."""
    module = Module(parse(text), Memory())
    module._shared[name] = SharedLayout({"kept": at}, at + 64, at + 64)
    return native.code_of(source.Source(module, name), layout, short)


def test_what_was_made_is_found_without_a_look_at_an_instruction(
    written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = taken()
    assert written == ["f"]
    assert made.facts.sites
    assert made.facts.barriers
    monkeypatch.setattr(source, "Inlined", None)
    assert taken() == made
    assert written == ["f"]


class _Features(dict[str, bool]):
    def flatten(self) -> str:
        return "+all"


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], dict[str, Any]]] = {
    "text": lambda patch: {"text": TEXT.replace("7", "8")},
    "kernel": lambda patch: {"name": "g"},
    "place of a shared variable": lambda patch: {"at": 16},
    "lanes": lambda patch: {"layout": Layout(16, True, True)},
    "block of no whole vectors": lambda patch: {"layout": Layout(8, True, False)},
    "accesses that are noted": lambda patch: {"layout": Layout(8, True, True, watched=True)},
    "strips": lambda patch: {"layout": Layout(8, True, True, strips=True)},
    "masks": lambda patch: {"layout": Layout(8, True, True, masks=False)},
    "gathers": lambda patch: {"layout": Layout(8, True, True, gathers=True)},
    "processor": lambda patch: _patched(patch, native, "processor", lambda: HERE._replace(name="generic")),
    "features": lambda patch: _patched(
        patch, native, "processor", lambda: HERE._replace(features=f"{HERE.features},-sse4a")
    ),
    "llvmlite": lambda patch: _patched(patch, native.llvmlite, "__version__", "0.0"),
    "LLVM": lambda patch: _patched(patch, native.llvm, "llvm_version_info", (1, 2, 3)),
    "passes": lambda patch: _patched(patch, native, "_EXTRA_PASSES", native._EXTRA_PASSES[:1]),
    "compiler's source": lambda patch: _patched(patch, native, "_compiler", lambda: "another"),
    "what is optimised at once": lambda patch: {"short": 0},
}


def _patched(patch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> dict[str, Any]:
    patch.setattr(owner, name, value)
    return {}


@pytest.mark.parametrize("change", CHANGES)
def test_code_of_other_circumstances_is_not_taken(
    change: str, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken()
    more = CHANGES[change](monkeypatch)
    taken(**more)
    assert len(written) == 2, "the first code was taken"
    taken(**more)
    assert len(written) == 2, "the second was not kept"


def test_the_compilers_source_is_that_of_all_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    digest = native._compiler.__wrapped__
    monkeypatch.setattr(native, "__file__", str(tmp_path / "compiled" / "tiers.py"))
    assert digest() != digest(), "two versions without their source look alike"
    for folder in ("compiled", "machine"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text("a = 1")
    digests = [digest()]
    (tmp_path / "machine" / "one.py").write_text("a = 2")
    digests.append(digest())
    (tmp_path / "machine" / "one.py").rename(tmp_path / "machine" / "other.py")
    digests.append(digest())
    (tmp_path / "compiled" / "new.py").write_text("")
    digests.append(digest())
    assert len({*digests}) == 4
    assert digest() == digests[-1]


@pytest.mark.parametrize("kind", ["machinecode", "native"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", None], ids=["cut", "empty", "gone"])
def test_what_is_damaged_or_gone_is_made_again(
    kind: str, damage: Callable[[bytes], bytes] | None, written: list[str], fresh_cache: Cache
) -> None:
    made = taken()
    assert fresh_cache._store is not None
    for file in list(fresh_cache._store.files()):
        if file.category == kind:
            path = Path(file.path)
            path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    assert taken() == made
    assert written == ["f", "f"]


def test_a_kernel_that_is_refused_is_refused_again(written: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(Refusal, match="a call to elsewhere"):
            taken(TEXT.replace("  ret;", "  call.uni elsewhere, ();\n  ret;", 1))


def test_optimised_code_is_taken_before_what_was_made_quickly(written: list[str]) -> None:
    origin = source.Source(Module(parse(TEXT), Memory()), "f")
    assert native.code_of(origin, LAYOUT, 0).is_baseline
    best = native.make(origin, LAYOUT, 0, True)
    assert not best.is_baseline
    again = native.code_of(source.Source(Module(parse(TEXT), Memory()), "f"), LAYOUT, 0)
    assert again == best
    assert again.facts.size == 4
    assert written == ["f", "f"]


PROGRAM = """
#include <cstdio>
__device__ int total[64];
__global__ void adds(int* x, int n) {
    __shared__ int held[64];
    int i = threadIdx.x;
    if (n > 99) x[i + (1 << 20)] = 0;
    held[i] = x[i];
    __syncthreads();
    x[i] = total[i] += held[63 - i];
    if (i == n) printf("%d of %d\\n", x[i], n);
}"""


def test_code_from_disk_runs_with_other_addresses_and_finds_its_lines(
    code: str, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables lie elsewhere in each module; errors and what the system gives name instructions by number."""
    printed, errors, i = list[str](), set[str](), np.arange(64, dtype=np.int32)
    stream = emulator.stream(machine="compiled", output=printed.append)
    for turn in range(3):
        monkeypatch.setattr(machine, "_machine", machine.Machine())  # nothing is known of a kernel
        adds = ck.Module(f"{PROGRAM} // {code}{turn // 2}")["adds"]  # the third is another module of the same PTX
        x = i.copy()
        adds(stream, ck.config(1, 64), x, 5)
        np.testing.assert_array_equal(x, (63 - i) * (1, 2, 1)[turn])
        with pytest.raises(ck.EmulationError) as error:
            adds(stream, ck.config(1, 64), x, 100)
        # What lies near the address differs: an array of the call, or the device's heap.
        errors.add(re.sub("0x[0-9a-f]+.*", "…", str(error.value), flags=re.DOTALL))
    assert len(written) == 1
    assert printed == ["58 of 5\n", "116 of 5\n", "58 of 5\n"]
    assert len(errors) == 1, errors
    assert "adds: st.global.u32 (PTX line" in errors.pop()
