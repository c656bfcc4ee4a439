"""Operations among the lanes of a warp, and atomics whose results no order changes: PTX ISA 9.7.9.6 and 9.7.13."""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Form

#: Part of a warp's lanes: those whose input is odd, as %p0, their mask in %t0.
ODD = "and.b32 %t1, {0}, 1; setp.ne.u32 %p0, %t1, 0; vote.sync.ballot.b32 %t0, %p0, -1;"


def shuffles() -> Iterator[Form]:
    """shfl."""
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        body = f"{name} {{d0}}|{{d1}}, {{0}}, {{1}}, {{2}}, -1"
        yield Form(name, "warp", body, ("b32", "lane", "clamp"), ("b32", "pred"))
        for by, clamp in ((1, 0 if mode == "up" else 31), (5, 0x1800 if mode == "up" else 0x181F)):
            body = f"{name} {{d0}}|{{d1}}, {{0}}, {by}, {clamp}, -1"
            yield Form(f"{name} {by} {clamp:#x}", "warp", body, ("b32",), ("b32", "pred"))
    # Every odd lane reads one that takes part: itself, or the lowest that does.
    body = (
        f"{ODD} mov.b32 {{d0}}, 7; brev.b32 %t2, %t0; bfind.shiftamt.u32 %t2, %t2; bfind.u32 %t3, %t0;"
        " @%p0 shfl.sync.idx.b32 {d0}, {1}, %t3, 31, %t0"
    )
    yield Form("shfl.sync.idx.b32 part", "warp", body, ("b32", "b32"), ("b32",))


def votes() -> Iterator[Form]:
    """vote, match, redux, elect, activemask."""
    for mode in ("all", "any", "uni"):
        for source, compare in (("few", "ne"), ("b32", "ge")):
            body = f"setp.{compare}.s32 %p1, {{0}}, 0; vote.sync.{mode}.pred {{d}}, %p1, -1"
            yield Form(f"vote.sync.{mode}.pred {source}", "warp", body, (source,), ("pred",))
        body = (
            f"{ODD} setp.ge.s32 %p1, {{1}}, 0; setp.ne.u32 {{d}}, %t1, 0; @%p0 vote.sync.{mode}.pred {{d}}, !%p1, %t0"
        )
        yield Form(f"vote.sync.{mode}.pred part", "warp", body, ("b32", "few"), ("pred",))
    body = "setp.ge.s32 %p1, {0}, 0; vote.sync.ballot.b32 {d}, %p1, -1"
    yield Form("vote.sync.ballot.b32", "warp", body, ("b32",), ("b32",))
    body = f"{ODD} setp.ge.s32 %p1, {{1}}, 0; mov.b32 {{d}}, 5; @%p0 vote.sync.ballot.b32 {{d}}, %p1, %t0"
    yield Form("vote.sync.ballot.b32 part", "warp", body, ("b32", "b32"), ("b32",))
    for bits in ("32", "64"):
        few = "few" if bits == "32" else "few64"
        yield Form(f"match.any.sync.b{bits}", "warp", f"match.any.sync.b{bits} {{d}}, {{0}}, -1", (few,), ("b32",))
        body = f"match.all.sync.b{bits} {{d0}}|{{d1}}, {{0}}, -1"
        yield Form(f"match.all.sync.b{bits}", "warp", body, (few,), ("b32", "pred"))
        body = f"{ODD} mov.b32 {{d}}, 9; @%p0 match.any.sync.b{bits} {{d}}, {{1}}, %t0"
        yield Form(f"match.any.sync.b{bits} part", "warp", body, ("b32", few), ("b32",))
    # All lanes of a warp have one value: the highest of its lane numbers.
    body = "vote.sync.ballot.b32 %t2, 1, -1; match.all.sync.b32 {d0}|{d1}, %t2, -1"
    yield Form("match.all.sync.b32 same", "warp", body, (), ("b32", "pred"))
    for kind in ("u32", "s32", "b32"):
        for operation in ("and", "or", "xor") if kind == "b32" else ("add", "min", "max"):
            name = f"redux.sync.{operation}.{kind}"
            yield Form(name, "warp", f"{name} {{d}}, {{0}}, -1", ("b32",), ("b32",))
            body = f"{ODD} mov.b32 {{d}}, 3; @%p0 {name} {{d}}, {{1}}, %t0"
            yield Form(f"{name} part", "warp", body, ("b32", "b32"), ("b32",))
    yield Form("elect.sync", "warp", "elect.sync {d0}|{d1}, -1", (), ("b32", "pred"))
    body = f"{ODD} mov.b32 {{d0}}, 77; setp.eq.u32 {{d1}}, %t1, 9; @%p0 elect.sync {{d0}}|{{d1}}, %t0"
    yield Form("elect.sync part", "warp", body, ("b32",), ("b32", "pred"))
    for mode in ("popc.u32", "and.pred", "or.pred"):
        name, result = f"bar.red.{mode}", "b32" if mode[0] == "p" else "pred"
        body = f"setp.ge.s32 %p1, {{0}}, 0; {name} {{d}}, 0, %p1"
        yield Form(name, "warp", body, ("b32",), (result,))
        operation, kind = mode.split(".")
        name = f"barrier.cta.red.{operation}.aligned.{kind}"
        body = f"setp.ge.s32 %p1, {{0}}, -2147483648; {name} {{d}}, 1, !%p1"
        yield Form(name, "warp", body, ("b32",), (result,))
    yield Form("activemask.b32", "warp", "activemask.b32 {d}", (), ("b32",))
    body = f"{ODD} mov.b32 {{d}}, 0; @!%p0 bra past_{{n}}; activemask.b32 {{d}}; past_{{n}}: bar.warp.sync -1"
    yield Form("activemask.b32 part", "warp", body, ("b32",), ("b32",))


#: Operations by type.
ATOMIC = {
    "u32": ("add", "min", "max", "inc", "dec"), "s32": ("add", "min", "max"), "b32": ("and", "or", "xor", "exch"),
    "u64": ("add", "min", "max"), "s64": ("min", "max"), "b64": ("and", "or", "xor", "exch"),
    "f32": ("add",), "f64": ("add",),
}  # fmt: skip
HALVES = {"f16": "add.noftz", "bf16": "add.noftz", "f16x2": "add.noftz", "bf16x2": "add.noftz"}


def _result(kind: str) -> str:
    return kind if kind[0] == "f" else f"b{kind[1:]}"


def atomics() -> Iterator[Form]:
    """Each lane at its own place: the old value and the new one."""
    for space in ("global", "shared"):
        for kind, operations in ATOMIC.items():
            for operation in operations:
                yield _alone(space, operation, kind, _result(kind))
        for kind, operation in HALVES.items():
            yield _alone(space, operation, kind, kind)
        for bits in (16, 32, 64):
            few = {16: "b16", 32: "few", 64: "few64"}[bits]
            store, load = _memory(space, f"b{bits}")
            where = "{m}" if space == "global" else "{s}"
            body = f"{store} atom.{space}.cas.b{bits} {{d1}}, [{where}], {{1}}, {{2}}; {load}"
            result = (f"@b{bits}" if space == "global" else f"b{bits}", f"b{bits}")
            yield Form(f"atom.{space}.cas.b{bits}", "atomic", body, (few, few, f"b{bits}"), result)
    for scope in ("relaxed.cta", "acq_rel.gpu", "release.sys", "acquire.gpu"):
        name = f"atom.{scope}.global.add.u32"
        body = f"st.global.b32 [{{m}}], {{0}}; {name} {{d1}}, [{{m}}], {{1}}"
        yield Form(name, "atomic", body, ("b32", "b32"), ("@b32", "b32"))
    body = "st.global.b32 [{m}], {0}; atom.add.u32 {d1}, [{m}], {1}"
    yield Form("atom.add.u32", "atomic", body, ("b32", "b32"), ("@b32", "b32"))


def _memory(space: str, kind: str) -> tuple[str, str]:
    """Where a lane's place is made its first input, and read at the end."""
    bits = f"b{32 if kind.endswith('x2') else int(kind.lstrip('busf'))}"
    if space == "global":
        return f"st.global.{bits} [{{m}}], {{0}};", ""
    return f"st.shared.{bits} [{{s}}], {{0}};", f"ld.shared.{bits} {{d0}}, [{{s}}]"


def _alone(space: str, operation: str, kind: str, result: str) -> Form:
    store, load = _memory(space, kind)
    where = "{m}" if space == "global" else "{s}"
    body = f"{store} atom.{space}.{operation}.{kind} {{d1}}, [{where}], {{1}}; {load}"
    first = f"@{result}" if space == "global" else result
    return Form(f"atom.{space}.{operation}.{kind}", "atomic", body, (result, result), (first, result))


def collisions() -> Iterator[Form]:
    """All lanes at 16 places of shared memory: what is there when all are done."""
    for kind, operations in ATOMIC.items():
        for operation in operations:
            if operation == "exch":
                continue
            bits = int(kind[1:])
            source = f"small_{kind}" if kind[0] == "f" else f"b{bits}"
            if operation in ("inc", "dec"):
                source = "none"
            for opcode in ("red", "atom"):
                result = "%l1, " if bits == 64 else "%t2, "
                name = f"{opcode}.shared.{operation}.{kind}"
                given = "{1}" if source != "none" else "9"
                start = {"min": "{1}", "max": "{1}"}.get(operation, "0")
                # Every lane of a place begins it with the same value.
                body = (
                    f"and.b32 %t0, {{0}}, 15; mad.lo.u32 %t0, %t0, 16, {{t}}; st.shared.b{bits} [{{s}}], "
                    f"{start if start == '0' else '7'};"
                    f" bar.sync 0; {opcode}.shared.{operation}.{kind} "
                    f"{result if opcode == 'atom' else ''}[%t0], {given};"
                    f" bar.sync 0; ld.shared.b{bits} {{d}}, [%t0]"
                )
                sources = ("index", source) if source != "none" else ("index",)
                yield Form(f"{name} collide", "atomic", body, sources, (_result(kind),))


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (shuffles, votes, atomics, collisions):
        yield from family()
