"""Loads and stores of every width, generic addresses, vector atomics: PTX ISA 9.7.9 and 9.7.13."""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Form

_FILL = "st.shared.v2.b64 [{s}], { {0}, {1} };"
_GENERIC = "cvt.u64.u32 %l0, {s}; cvta.shared.u64 %l0, %l0;"


def _names(mark: str, count: int) -> str:
    return "{ " + ", ".join(f"{{{mark}{n}}}" for n in range(count)) + " }"


def loads() -> Iterator[Form]:
    """Into registers as wide as the type, or wider: extended by the type's sign."""
    for kind in ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "f32", "b64", "f64"):
        size = int(kind[1:])
        widths = [bits for bits in (16, 32, 64) if bits == size or (bits > size and kind[0] != "f")]
        for bits in widths:
            name = f"ld.shared.{kind}"
            body = f"{_FILL} {name} {{d}}, [{{s}}+{size // 8}]"
            yield Form(f"{name} into {bits} bits", "memory", body, ("b64", "b64"), (f"b{bits}",))
        for count in (2, 4):
            if size * count <= 128:
                name = f"ld.shared.v{count}.{kind}"
                body = f"{_FILL} {name} {_names('d', count)}, [{{s}}]"
                yield Form(name, "memory", body, ("b64", "b64"), (f"b{max(16, size)}",) * count)
    for space, end in (("", ""), ("volatile.", ""), ("relaxed.gpu.", ""), ("acquire.cta.", "")):
        body = f"{_FILL} {_GENERIC} ld.{space}b32{end} {{d}}, [%l0+4]"
        yield Form(f"ld.{space}b32 generic", "memory", body, ("b64", "b64"), ("b32",))
    for space in ("global", "shared", "local", "const"):
        body = f"{_GENERIC} isspacep.{space} {{d0}}, %l0; isspacep.{space} {{d1}}, %in"
        yield Form(f"isspacep.{space}", "memory", body, (), ("pred", "pred"))
    for kind, result in (("b128 pack", "b64"),):
        body = ".reg .b128 %q; mov.b128 %q, { {1}, {0} }; mov.b128 { {d0}, {d1} }, %q"
        yield Form(f"mov.{kind}", "memory", body, ("b64", "b64"), (result, result))


def stores() -> Iterator[Form]:
    """The low part of a register, as wide as the type."""
    for kind in ("u8", "s8", "b8", "u16", "b16", "b32", "b64"):
        size = int(kind[1:])
        for bits in (16, 32, 64):
            if bits >= size:
                name = f"st.shared.{kind}"
                body = f"{_FILL} {name} [{{s}}+8], {{2}}; ld.shared.v2.b64 {{ {{d0}}, {{d1}} }}, [{{s}}]"
                yield Form(f"{name} of {bits} bits", "memory", body, ("b64", "b64", f"b{bits}"), ("b64", "b64"))
        for count in (2, 4):
            if size * count <= 128:
                name = f"st.shared.v{count}.{kind}"
                items = ", ".join(f"{{{2 + n}}}" for n in range(count))
                body = f"{_FILL} {name} [{{s}}], {{ {items} }}; ld.shared.v2.b64 {{ {{d0}}, {{d1}} }}, [{{s}}]"
                yield Form(name, "memory", body, ("b64", "b64", *(f"b{max(16, size)}",) * count), ("b64", "b64"))
    body = f"{_GENERIC} st.b64 [%l0], {{0}}; ld.shared.b64 {{d}}, [{{s}}]"
    yield Form("st.b64 generic", "memory", body, ("b64",), ("b64",))


def vector_atomics() -> Iterator[Form]:
    """Each lane at its own place."""
    for kind, count in (("f32", 2), ("f16x2", 2), ("bf16x2", 2)):
        for operation in ("add",) if kind == "f32" else ("add.noftz", "min.noftz", "max.noftz"):
            name = f"atom.global.{operation}.v{count}.{kind}"
            # The lane's place is eight bytes of the first result.
            body = (
                "mov.b64 %l0, { {0}, {1} }; st.global.b64 [{m}], %l0;"
                f" {name} {{ {{d1}}, {{d2}} }}, [{{m}}], {{ {{2}}, {{3}} }}"
            )
            yield Form(name, "atomic", body, (kind,) * 4, ("@b64", kind, kind))
    for operation in ("exch", "cas"):
        given = "%q" if operation == "exch" else "%q, %r"
        name = f"atom.shared.{operation}.b128"
        body = (
            f"{_FILL} .reg .b128 %o, %q, %r; mov.b128 %q, {{ {{2}}, {{1}} }}; mov.b128 %r, {{ {{3}}, {{0}} }};"
            f" {name} %o, [{{s}}], {given}; mov.b128 {{ {{d0}}, {{d1}} }}, %o;"
            " ld.shared.v2.b64 { {d2}, {d3} }, [{s}]"
        )
        yield Form(name, "atomic", body, ("few64",) * 4, ("b64",) * 4)


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (loads, stores, vector_atomics):
        yield from family()
