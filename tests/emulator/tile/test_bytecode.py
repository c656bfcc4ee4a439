"""The reader of Tile IR, beside CUDA's disassembler; what is damaged, and versions."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiles import kernel, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.tile.machine import TileLaunch, TileProgram
from cudakit.errors import CompileError
from cudakit.jit.compile import assemble, tile_bytecode, tile_ir

BODIES = {
    "loop": "float s = 0; for (auto i : ct::irange(0, n)) { if (i == 7) break; s = s + x[i]; } x[0] = s;",
    "while": "int k = 0; while (x[k] > 0) { ++k; if (k == n) return; } x[0] = k;",
    "nested": "if (n > 1) { if (n > 2) x[0] = 1; else x[1] = 2; } else if (n < 0) x[2] = 3;",
    "switch": "switch (n) { case 1: x[0] = 1; break; case 2: x[1] = 2; default: x[2] = 3; }",
    "reduce": "auto t = tiles_of<64>(x, n).load_masked(0); put(x, ct::sum(t, 0_ic));"
    " put(x + 1, ct::reduce_max(t, 0_ic));",
    "scan": "auto v = tiles_of<64>(x, n); v.store_masked(ct::partial_sum(v.load_masked(0), 0_ic), 0);",
    "which": "put(x, ct::max_element(tiles_of<64>(x, n).load_masked(0), 0_ic));",
    "print": 'printf("%d %f\\n", n, x[0]); assert(n > 0);',
    "atomic": "ct::atomic_add(x, 1.f, ct::memory_order_acq_rel_t{}, ct::thread_scope_device_t{});",
    "pointers": "auto p = x + ct::iota<ct::tile<int, ct::shape<8>>>(); ct::store_masked(p, ct::load(p), p != x);",
    "array": "float a[4] = {}; a[n & 3] = 1; x[0] = a[(n + 1) & 3];",
    "shapes": "auto t = tiles_of<64>(x, n).load_masked(0); auto u = ct::reshape(t, ct::shape<8, 8>{});"
    " put(x, ct::sum(ct::reshape(ct::extract(ct::transpose(ct::cat(u, u, 0_ic)), ct::shape<4, 4>{}, n, 0),"
    " ct::shape<16>{}), 0_ic));",
    "math": "auto t = tiles_of<64>(x, n).load_masked(0);"
    " tiles_of<64>(x, n).store_masked(ct::exp(t) + ct::rsqrt(t) * ct::pow(t, t) - ct::fma(t, t, t), 0);",
}
#: Store a tile of one element.
PUT = """template <typename T> __tile__ void put(float* x, T t) {
    ct::store(x + ct::zeros<ct::tile<int, ct::shape<1>>>(), ct::element_cast<float>(t));
}
"""


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


def _disassembler() -> Path:
    if why := why_no_assembler():
        pytest.skip(why)
    return Path(assemble.assembler().program).with_name("tileirdisasm")


def _code(body: str) -> bytes:
    code: bytes = kernel(body, template=PUT).compile(arch="sm_90", target="tileir").code
    return code


def _type(given: tile_ir.Type) -> str:
    if not isinstance(given, tile_ir.Tile):
        return "token" if isinstance(given, tile_ir.Token) else "view"
    element = f"ptr<{given.element}>" if given.is_pointer else given.element
    return f"tile<{''.join(f'{each}x' for each in given.shape)}{element}>"


def _written(text: str) -> list[tuple[str, int, list[str]]]:
    """Names, numbers of operands and types of results of a disassembly's operations that have no region."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s+(?:(%[^=]+) = )?(\w+)\b(.*)", line)
        if match is None or match[2] == "entry":
            continue
        results, name, rest = match.groups()
        values, _, types = rest.partition(" : ")
        values = re.sub(r'"(?:[^"\\]|\\.)*"', "", values)
        count = len(re.findall(r"%[\w#]+", values))
        _, arrow, last = types.rpartition("->")
        made = re.findall(r"tile<[^>]*>+|token", last)
        made = made if arrow else made[-1:]
        found.append((name, count, made if results else []))
    return found


@pytest.mark.parametrize("name", sorted(BODIES))
def test_read_as_the_disassembler_does(name: str, tmp_path: Path) -> None:
    program, code = _disassembler(), _code(BODIES[name])
    (tmp_path / "k").write_bytes(code)
    text = subprocess.run([program, tmp_path / "k"], capture_output=True, text=True, check=True).stdout
    (function,) = tile_bytecode.read(code).functions.values()
    ours = list(function.walk())
    theirs = [each for each in _written(text) if each[0] not in ("yield",) or each[1]]
    ours = [each for each in ours if each.name not in ("yield",) or each.operands]
    assert [each.name for each in ours] == [each[0] for each in theirs]
    for operation, (_, count, types) in zip(ours, theirs, strict=True):
        if operation.regions or operation.name in ("make_tensor_view",):
            continue
        assert len(operation.operands) + len(operation.optional) == count, operation
        made = [_type(each) for each in operation.types]
        if "view" not in made:
            assert sorted(set(made)) == sorted(set(types)), operation


@pytest.mark.slow
def test_what_is_damaged_is_an_error_or_another_module() -> None:
    code = _code(BODIES["loop"])
    for cut in range(len(code)):
        with pytest.raises(CompileError):
            tile_bytecode.read(code[:cut])
    rng = np.random.default_rng(0)
    for at in range(len(code)):
        for value in {0, 255, code[at] ^ 1, int(rng.integers(256))}:
            changed = bytearray(code)
            changed[at] = value
            with contextlib.suppress(CompileError):
                tile_bytecode.read(bytes(changed))


@pytest.mark.parametrize(("version", "message"), [((13, 6), "version 13.6"), ((14, 0), "14.0"), ((12, 9), "12.9")])
def test_versions_that_are_not_known(version: tuple[int, int], message: str) -> None:
    code = bytearray(_code(BODIES["loop"]))
    code[8:10] = version
    with pytest.raises(CompileError, match=message):
        tile_bytecode.read(bytes(code))


def test_nothing_is_no_bytecode() -> None:
    for code in (b"", b"\x7fTileIR\0", b"PTX", bytes(100)):
        with pytest.raises(CompileError, match="not Tile IR"):
            tile_bytecode.read(code)


def test_an_if_with_nothing_otherwise() -> None:
    x: Any = np.zeros(4, "f4")
    kernel("if (n > 3) x[0] = 1; if (n > 4) x[1] = 1;")(ck.emulator.stream(), ck.config(1), x, 4)
    assert x.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("version", [(13, 3), (13, 4)])
def test_bytecode_of_earlier_compilers_runs(version: tuple[int, int]) -> None:
    """Written by NVRTC 13.3 and 13.4: x = x * (y[0] + … + y[6]) + sum of x's tile, and y[8] + 1."""
    code = Path(__file__).with_name(f"loop-{version[0]}.{version[1]}.tilebc").read_bytes()
    module, memory, printed = tile_bytecode.read(code), Memory(), list[str]()
    assert module.version == version
    x, y = np.arange(100, dtype="f4"), np.ones(100, "f4")
    sums = np.repeat([x[:64].sum(), x[64:].sum()], [64, 36])
    want = x * 7 + sums
    addresses = [memory.add(each, name) for name, each in (("x", x), ("y", y))]
    program, (function,) = TileProgram(module, memory), module.functions.values()
    parameters = struct.pack("<QQi", *addresses, 100)
    TileLaunch(program, function, (2, 1, 1), parameters, printed.append, None, 0, "k", "{}:{}".format).run()
    np.testing.assert_array_equal(x, want.astype("f4"))
    assert y[8] == 2
    assert sorted("".join(printed).split(";")) == ["", "0", "1"]


@pytest.mark.parametrize("version", [(13, 1), (13, 2)])
def test_bytecode_of_another_compiler_runs(version: tuple[int, int]) -> None:
    """Written by cuTile 1.7: with s = a @ b, in tiles of 16 × 16, c = tanh(s) + exp(-s)."""
    code = Path(__file__).with_name(f"product-{version[0]}.{version[1]}.tilebc").read_bytes()
    module, memory, printed = tile_bytecode.read(code), Memory(), list[str]()
    assert module.version == version
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f2") / 4 for shape in ((32, 40), (40, 48)))
    c = np.zeros((32, 48), "f4")
    parameters = b""
    for place, each in enumerate((a, b, c)):
        address = memory.add(each, f"array {place}")
        parameters += bytes(-len(parameters) % 8) + struct.pack("<Q4i", address, *each.shape, each.shape[1], 1)
    (function,) = module.functions.values()
    program = TileProgram(module, memory)
    TileLaunch(program, function, (2, 3, 1), parameters, printed.append, None, None, "k", "{}:{}".format).run()
    total = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(c, np.tanh(total) + np.exp(-total), rtol=1e-4, atol=1e-5)
    assert "".join(printed) == "0;1;0;1;0;1;"
