"""A right call of everything public, by its arguments' names: what tests of wrong calls change one argument of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cudakit as ck
from cudakit import hazards, memory, ops, pipeline, testing

_TEXT = """
template <typename T, int N = 2> __global__ void scale(T* x, T by, float4 v, int n) { if (threadIdx.x < n) x[0] = by; }
"""


class Right(NamedTuple):
    """A function and the arguments that it takes."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def without(self, name: str, value: Any) -> Any:
        """Call it with another value of one argument."""
        return self.function(**{**self.arguments, name: value})


def right_calls(stream: Any, xp: Any, folder: Path) -> dict[str, Right]:
    """By name, the calls, which make new arrays each."""
    calls: dict[str, Right] = {}

    def right(name: str, function: Callable[..., Any], /, **arguments: Any) -> None:
        calls[name] = Right(function, arguments)

    f, i, h = xp.ones((2, 3), np.float32), xp.arange(6, dtype=np.int32), np.ones(6, np.float32)
    line, square = xp.ones(6, np.float32), xp.ones((4, 4), np.float32)
    for name in ("sum", "prod", "mean", "var", "std", "max", "min", "argmax", "any", "all", "count_nonzero"):
        more: dict[str, Any] = {"out": None, "keepdims": False}
        more |= {"dtype": None} if name in ("sum", "prod", "mean", "var", "std", "argmax") else {}
        more |= {"where": None} if name not in ("argmax", "count_nonzero") else {}
        more |= {"initial": None} if name in ("sum", "prod", "max", "min") else {}
        more |= {"ddof": 0} if name in ("var", "std") else {}
        right(name, getattr(ops, name), x=f, axis=0, **more)
    for name in ("cumsum", "cummax"):
        more = {"exclusive": False, "reverse": False, "keys": None, "initial": None, "out": None}
        right(name, getattr(ops, name), x=f, axis=0, **more)
    for name in ("softmax", "log_softmax", "logsumexp", "flip"):
        right(name, getattr(ops, name), x=f, axis=0, out=None)
    right("norm", ops.norm, x=f, axis=0, ord=None, keepdims=False, out=None)
    right("layernorm", ops.layernorm, x=f, weight=None, bias=None, eps=1e-5, axis=-1, out=None)
    right("rmsnorm", ops.rmsnorm, x=f, weight=None, eps=1e-5, axis=-1, out=None)
    right("add", ops.add, x=f, y=f, out=None)
    right("cast", ops.cast, x=f, dtype=np.float64, saturate=False, out=None)
    right("copy", ops.copy, x=f, out=None)
    right("pad", ops.pad, x=f, width=1, mode="constant", value=0, end_values=0, stat_length=None, out=None)
    right("roll", ops.roll, x=f, shift=1, axis=0, out=None)
    right("transpose", ops.transpose, x=f, axes=None, out=None)
    right("concatenate", ops.concatenate, arrays=[f, f], axis=0, dtype=None, casting="same_kind", out=None)
    right("take", ops.take, x=f, indices=i[:2], axis=1, mode="wrap", out=None)
    right("compact", ops.compact, x=line, where=line > 0, out=None, count=None)
    right("sort", ops.sort, x=line, axis=-1, descending=False, out=None)
    right("argsort", ops.argsort, x=line, axis=-1, descending=False, dtype=None, out=None)
    right("sort_by_key", ops.sort_by_key, keys=line, values=i, axis=-1, descending=False, out=None)
    right("partition", ops.partition, x=line, kth=1, axis=-1, out=None)
    right("topk", ops.topk, x=line, k=2, axis=-1, largest=True, sorted=True, out=None)
    right("unique", ops.unique, x=line, return_index=False, return_counts=False, axis=None, equal_nan=True)
    right("run_length", ops.run_length, x=i, return_starts=False)
    right("searchsorted", ops.searchsorted, a=line, v=line, side="left", sorter=None, out=None)
    right("bincount", ops.bincount, x=i, weights=None, minlength=0, length=None, out=None)
    right("histogram", ops.histogram, x=line, bins=4, range=None, weights=None, density=False, out=None)
    right("dot", ops.dot, x=line, y=line, out=None)
    right("outer", ops.outer, x=line, y=line, out=None)
    right("matvec", ops.matvec, a=f, v=xp.ones(3, np.float32), out=None)
    more = {"bias": None, "activation": None, "scale": 1.0, "residual": None, "precision": None, "dtype": None}
    right("matmul", ops.matmul, a=square, b=square, by=None, out=None, **more)
    head = xp.ones((1, 1, 4, 16), np.float16)
    right("attention", ops.attention, q=head, k=head, v=head, causal=False, scale=None, by=None, out=None)
    border: dict[str, Any] = {"mode": "reflect", "value": 0, "axes": (-2, -1), "out": None}
    right("box_blur", ops.box_blur, image=square, size=3, **border)
    right("gaussian_blur", ops.gaussian_blur, image=square, size=3, sigma=1.0, **border)
    right("convolve2d", ops.convolve2d, image=square, kernel=np.ones((3, 3)), **border)
    right("median3", ops.median3, image=square, **border)
    right("erode", ops.erode, image=square, size=3, **border)
    right("sobel", ops.sobel, image=square, axis=0, **border)
    right("resize", ops.resize, image=square, shape=(2, 2), method="linear", axes=(-2, -1), out=None)
    turn = np.array([[1.0, 0, 0], [0, 1, 0]])
    more = {"inverse": False, "method": "linear", **border, "mode": "constant"}
    right("warp_affine", ops.warp_affine, image=square, matrix=turn, shape=None, **more)
    right("rgb_to_gray", ops.rgb_to_gray, image=xp.ones((4, 4, 3), np.uint8), axis=-1, out=None)
    right("equalize", ops.equalize, image=xp.ones((4, 4), np.uint8), out=None)

    right("default_rng", ck.random.default_rng, seed=1)
    rng = ck.random.default_rng(1)
    sized: dict[str, Any] = {"size": 3, "dtype": np.float32, "out": None}
    right("random", rng.random, **sized)
    right("standard_normal", rng.standard_normal, **sized)
    right("uniform", rng.uniform, low=0.0, high=1.0, **sized)
    right("normal", rng.normal, loc=0.0, scale=1.0, **sized)
    right("exponential", rng.exponential, scale=1.0, **sized)
    right("bernoulli", rng.bernoulli, p=0.5, size=3, dtype=bool, out=None)
    right("integers", rng.integers, low=0, high=9, size=3, dtype=np.int32, endpoint=False, out=None)
    right("choice", rng.choice, a=line, size=3, replace=True, p=None, axis=0, out=None)
    right("permutation", rng.permutation, x=line, axis=0)
    right("shuffle", rng.shuffle, x=line, axis=0)
    right("advance", rng.advance, delta=3)
    right("jumped", rng.jumped, jumps=1)
    right("spawn", rng.spawn, n_children=1)

    kernel = ck.Kernel(_TEXT)
    named: dict[str, Any] = {"name": "f_kernel", "preamble": "", "options": None}
    right(
        "kernel",
        lambda text, name, options, arch, host_code: ck.Kernel(
            text, name, options=options, arch=arch, host_code=host_code
        ),
        text=_TEXT,
        name="scale",
        options=None,
        arch=None,
        host_code="keep",
    )
    right("from_file", ck.Kernel.from_file, path=_written(folder, _TEXT), name=None)
    right("from_template", ck.Kernel.from_template, path="image/gray")
    right("specialise", lambda T, N: kernel[T, N], T=np.float32, N=3)
    right("module", lambda name: ck.Module(_TEXT)[name], name="scale")
    right("compile", kernel[np.float32].compile, arch="sm_90", target="ptx")
    right(
        "launch",
        lambda stream, config, x, by, v, n: kernel(stream, config, x, by, v, n),
        stream=stream,
        config=ck.config(1, 32),
        x=line,
        by=1.0,
        v=(1, 2, 3, 4),
        n=3,
    )
    right("launch on the host", lambda x, v: kernel(stream, ck.config(1, 32), x, 1.0, v, 3), x=ck.InOut(h), v=(1,) * 4)
    right(
        "plan",
        lambda config, x: kernel[np.float32].plan(stream, config, x, 1.0, (1, 2, 3, 4), 3),
        config=ck.config(1, 32),
        x=line,
    )
    right("config", ck.config, grid=1, block=32, shared_bytes=0, cluster=None, cooperative=False, programmatic=False)
    right("Config", ck.Config, grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, cluster=None, cooperative=False)
    right("cover", ck.cover, shape=9, block=None, tile=None)
    more = {"std": "c++17", "fast_math": False, "max_registers": None, "defines": (), "include_paths": (), "link": ()}
    right("CompileOptions", ck.CompileOptions, extra=(), cache=None, **more)
    right("In", ck.In, array=h, const=False)
    right("Out", lambda array: kernel(stream, ck.config(1, 32), ck.Out(array), 1.0, (1, 2, 3, 4), 3), array=h.copy())
    right("prewarm", ck.prewarm, kernels=[], archs=(), workers=None)
    right("elementwise", ck.elementwise, inputs="T x", outputs="T y", body="y = x", **named)
    scaled = ck.elementwise("T x, T by", "T y", "y = x * by")
    right(
        "elementwise call",
        lambda x, by, out, size, block_size: scaled(x, by, out=out, size=size, block_size=block_size),
        x=line,
        by=2.0,
        out=None,
        size=None,
        block_size=None,
    )
    right(
        "reduction",
        ck.reduction,
        inputs="T x",
        outputs="T y",
        map="x",
        reduce="a + b",
        identity="0",
        post=None,
        acc=None,
        **named,
    )
    right(
        "scan",
        ck.scan,
        inputs="T x",
        outputs="T y",
        map="x",
        reduce="a + b",
        identity="0",
        output=None,
        segments=None,
        acc=None,
        **named,
    )
    right(
        "stencil",
        ck.stencil,
        outputs="T out",
        body="u(1)",
        inputs=None,
        name="s_kernel",
        mode="reflect",
        cval=0.0,
        radius=None,
        preamble="",
        options=None,
    )
    right("fuse", ck.fuse, function=lambda x: x, static=(), name=None)
    fused, grown = ck.fuse(lambda x, y: x + y), ck.stencil("T out", "u(1)")
    right("fused", lambda x, y, out: fused(x, y, out=out), x=line, y=line, out=None)
    right("stencil call", lambda x, out, steps: grown(x, out=out, steps=steps), x=line, out=None, steps=1)
    total = ck.reduction("T x", "T y", "x", "a + b", "0")
    right(
        "reduction call",
        lambda x, axis, out, keepdims, initial: total(x, axis=axis, out=out, keepdims=keepdims, initial=initial),
        x=f,
        axis=0,
        out=None,
        keepdims=False,
        initial=None,
    )
    running = ck.scan("T x", "T y", "x", "a + b", "0")
    right(
        "scan call",
        lambda x, axis, out, initial: running(x, axis=axis, out=out, initial=initial),
        x=f,
        axis=0,
        out=None,
        initial=None,
    )
    right(
        "math",
        lambda x, y, out, dtype, casting, where: ck.math.add(x, y, out=out, dtype=dtype, casting=casting),
        x=line,
        y=line,
        out=None,
        dtype=None,
        casting="same_kind",
        where=True,
    )
    right(
        "ufunc.reduce",
        lambda x, axis, dtype, keepdims: ck.math.add.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims),
        x=f,
        axis=0,
        dtype=None,
        keepdims=False,
    )
    right("ufunc.at", lambda x, indices, y: ck.math.add.at(x, indices, y), x=line.copy(), indices=i[:2], y=1.0)

    right("empty", ck.empty, shape=3, dtype=np.float32, kind="device")
    right("empty_pitched", memory.empty_pitched, shape=(2, 3), dtype=np.float32)
    right("to_device", ck.to_device, array=h, stream=stream, out=None)
    right("to_host", ck.to_host, array=line, stream=stream, out=None, wait=True)
    right("memory.copy", memory.copy, target=line.copy(), source=line, stream=stream)
    right("memory.limit", memory.limit, size=None, kind="device")
    right("prefetch", memory.prefetch, array=ck.empty(3, np.float32, "managed"), stream=stream, to="device")
    right("register", memory.register, array=h)
    right("host_view", memory.host_view, array=ck.empty(3, np.float32, "managed"))
    right(
        "texture",
        ck.texture,
        array=square,
        filter="point",
        address="clamp",
        normalized=False,
        read="element",
        channels=1,
        memory="linear",
        layered=False,
    )
    right("surface", ck.surface, array=square.copy(), channels=1, layered=False)
    right(
        "tensor_map",
        ck.tensor_map,
        array=xp.ones((16, 16), np.float32),
        box=(8, 8),
        element_strides=None,
        swizzle="none",
        fill="zero",
        interleave="none",
        l2_promotion="none",
    )
    right("device_limits", ck.device_limits, stream=stream)
    right("using", ck.using, given=stream)
    right("Timer", ck.Timer, stream=stream)
    right("check", lambda schedules: ck.check(schedules=schedules).__enter__(), schedules=0)
    right("trace", ck.trace, streams=None, nvtx=None, max_spans=100)
    right(
        "prove",
        lambda kernel, statement, block, grid, timeout_s: ck.prove(
            kernel, statement, block=block, grid=grid, timeout_s=timeout_s
        ),
        kernel=kernel[np.float32],
        statement="n <= 1",
        block=32,
        grid=1,
        timeout_s=1.0,
    )
    right(
        "foreign",
        lambda stream, reads, name: hazards.foreign(stream, reads=reads, name=name).__enter__(),
        stream=stream,
        reads=[line],
        name="work",
    )
    right("ordered", hazards.ordered, stream=stream, after=stream, wait=True)

    def stage(x: Any, stream: Any) -> Any:
        return x

    more = {"depth": None, "graph": False, "progress": False, "on_error": "raise", "devices": None}
    right("Pipeline", ck.Pipeline, stages=[stage], stream=None, streams=None, **more)
    right(
        "run",
        lambda source, sink: ck.Pipeline([stage]).run(source, sink),
        source=[h],
        sink=pipeline.to_array(np.empty(6, np.float32)),
    )
    right("device", pipeline.device, function=stage, name=None)
    right("host", pipeline.host, function=lambda x: x, threads=1, name=None)
    right("from_array", pipeline.from_array, array=h, rows=2, halo=0)
    right("from_images", pipeline.from_images, paths="a.png", mode="RGB")
    right("from_npy", pipeline.from_npy, paths=[])
    right("to_array", pipeline.to_array, out=h.copy())
    right("to_images", pipeline.to_images, folder=str(folder), name="{:06d}.png")
    right("to_npy", pipeline.to_npy, path=str(folder / "a.npy"), stack=False)
    right("named", lambda pairs: list(pipeline.named(pairs)), pairs=[("a", h)])
    right("ahead", pipeline.ahead, source=[h])
    right(
        "scale.map",
        lambda function, chunks, engine, ordered, depth, on_error: ck.scale.map(
            function, chunks, engine=engine, ordered=ordered, depth=depth, on_error=on_error
        ),
        function=abs,
        chunks=[1],
        engine=None,
        ordered=True,
        depth=None,
        on_error="raise",
    )

    right("testing.arrays", testing.arrays, dtype="f4", shape=(3,), strided=False, finite=False)
    right("testing.configs", testing.configs, most_blocks=4, dims=1, threads=())
    right("testing.dtypes", testing.dtypes, among=("f4",))
    right("testing.shapes", testing.shapes, least_dims=1, most_dims=2, most_elements=9, least_side=0)
    right("testing.values", testing.values, dtype="f4", finite=False)
    more = {"step_budget": None, "output": None, "block_order": None, "machine": None, "check": "off", "schedule": None}
    right("emulator.stream", ck.emulator.stream, arch="sm_90", **more)
    right("counters", lambda stream: ck.emulator.counters(stream).__enter__(), stream=None)
    return calls


def _written(folder: Path, text: str) -> str:
    (folder / "right.cu").write_text(text)
    return str(folder / "right.cu")
