"""A kernel of Triton's, compiled without a GPU; Triton reads the text of its functions from a file."""

from __future__ import annotations

from typing import Any


def compiled(triton: Any) -> Any:
    """``z = x + y`` for float32, 256 at a time."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    globals()["tl"] = tl

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = i < n
        tl.store(z + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)

    signature = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return triton.compile(
        ASTSource(fn=add, signature=signature, constexprs={"BLOCK": 256}), target=GPUTarget("cuda", 90, 32)
    )
