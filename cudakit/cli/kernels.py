"""Kernels of CUDA C++ files: ``cudakit compile FILE``, and ``cudakit run FILE.cu``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from cudakit import reports
from cudakit.cli import supervised
from cudakit.cli.parsers import Parser, command, split_arguments
from cudakit.errors import ArgumentError, shortened
from cudakit.types.shown import byte_size

if TYPE_CHECKING:
    from cudakit.kernel.kernel import Kernel

#: Suffixes of CUDA C++ files.
SUFFIXES: Final = (".cu", ".cuh")
_TARGETS: Final = ("cubin", "ptx", "ltoir", "object", "tileir")
_FORMS: Final = (
    "a file.npy, random:float32:1000, zeros:float32:100x20, ones:…, range:int32:5:10:2, a number, true, false or null"
)


def add(commands: Any) -> None:
    """Add the command ``compile``."""
    text = "compile a kernel of a CUDA C++ file for archs, with no GPU"
    parser = command(
        commands,
        "compile",
        _compile,
        text,
        "saxpy.cu --args float --arch sm_80 --arch sm_90a",
        "saxpy.cu --args float --arch sm_90 --target ptx -o saxpy.ptx",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="CUDA C++ file")
    parser.add_argument("--arch", action="append", required=True, help="arch, such as sm_90a; may be repeated")
    _add_kernel(parser)
    parser.add_argument(
        "--target", choices=_TARGETS, default="cubin", metavar="FORMAT", help=f"{', '.join(_TARGETS)}; default: cubin"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="file to write, or a folder; default: KERNEL.ARCH.FORMAT in the current folder",
    )
    supervised.add(parser)


def add_launch(parser: Parser) -> None:
    """Add the options of ``run FILE.cu`` to the parser of ``run``."""
    group = parser.add_argument_group("kernels of a CUDA C++ file", "These options follow FILE.cu.")
    _add_kernel(group)
    group.add_argument(
        "--arg",
        dest="values",
        action="append",
        default=[],
        metavar="[NAME=]VALUE",
        help=f"argument of the kernel, in its order or by name: {_FORMS}",
    )
    group.add_argument("--cover", metavar="SHAPE", help="threads, such as 1000 or 64x64; default: the largest array")
    group.add_argument("--grid", metavar="SHAPE", help="blocks, such as 8 or 8x4; with --block")
    group.add_argument("--block", metavar="SHAPE", help="threads of a block, such as 256 or 16x16")
    group.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory of a block")
    group.add_argument(
        "--save",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="write an array after the launch; NAME is the parameter, by default that of the file's name",
    )
    group.add_argument("--emulator", action="store_true", help="run on the emulator, also where there is a GPU")
    group.add_argument("--check", action="store_true", help="run on the emulator, with all checks")


def _add_kernel(parser: Any) -> None:
    """Add the arguments that choose a kernel of a file and its compiler options."""
    parser.add_argument("--kernel", metavar="NAME", help="name of the kernel, if the file has several")
    parser.add_argument(
        "--args", default="", metavar="LIST", help="template arguments, separated by commas, such as float,256"
    )
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="FOLDER", help="folder of headers")
    parser.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="macro")


def _kernel(path: Path, options: argparse.Namespace) -> Kernel:
    """Return the kernel that the options name, with its template arguments."""
    # Imported here: the other commands need no compiler.
    from cudakit.jit.specialise.options import CompileOptions
    from cudakit.kernel.kernel import Kernel

    pairs = [define.partition("=") for define in options.define]
    defines = [(name, value) if equals else name for name, equals, value in pairs]
    compiler = CompileOptions(include_paths=options.include, defines=defines)
    kernel = Kernel.from_file(path, options.kernel, options=compiler)
    arguments = split_arguments(options.args)
    return kernel[arguments if len(arguments) > 1 else arguments[0]] if arguments else kernel


def _compile(options: argparse.Namespace) -> int:
    kernel = _kernel(options.file, options)
    output: Path | None = options.output
    rows = options.result["kernels"] = []
    if output is not None and len(options.arch) > 1 and not output.is_dir():
        options.parser.error(f"-o {output}: several archs are written to a folder, which must exist")
    for arch in options.arch:
        compiled = kernel.compile(arch=arch, target=options.target)
        path = output if output is not None and not output.is_dir() else None
        path = path or (output or Path()) / f"{kernel.name}.{arch}.{options.target}"
        path.write_bytes(compiled.code)
        row: dict[str, Any] = {"arch": arch, "target": options.target, "file": str(path), "bytes": len(compiled.code)}
        row["lowered"] = dict(compiled.lowered)
        text = f"{arch}: {', '.join(compiled.lowered) or kernel.name}: {path}, {byte_size(len(compiled.code))}"
        if options.target == "cubin":
            resources = kernel.explain(arch=arch)
            row |= {name: getattr(resources, name) for name in ("registers", "spill_bytes", "shared_bytes")}
            text += f", {resources.registers} registers, {resources.shared_bytes} bytes shared"
            text += f", {resources.spill_bytes} bytes spilled" if resources.spill_bytes else ""
        rows.append(row)
        if not options.json:
            print(text)
    return 0


# ── launches ──


def launch(options: argparse.Namespace) -> int:
    """Launch the kernel of ``cudakit run FILE.cu`` once, and print its arrays. Return the exit status."""
    # Imported here: the other commands need no GPU and no emulator.
    import cudakit as ck

    kernel = _kernel(Path(options.program), options)
    is_emulated = options.emulator or options.check or not ck.has_gpu()
    stream: Any = ck.emulator.stream() if is_emulated else ck.stream()
    positional, named = [], {}
    for text in options.values:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value)
        elif named:
            options.parser.error(f"--arg {text}: arguments without a name come before those with one")
        else:
            positional.append(_value(text))
    names = list(kernel.__signature__.parameters)[2:]
    arguments = dict(zip(names, positional, strict=False)) | named
    arrays = {name: ck.to_device(x, stream) for name, x in arguments.items() if isinstance(x, np.ndarray)}
    config = _config(options, [x.shape for x in arguments.values() if isinstance(x, np.ndarray)])
    values = [arrays.get(names[k], x) if k < len(names) else x for k, x in enumerate(positional)]
    with ck.check() if options.check else contextlib.nullcontext() as report:
        kernel(stream, config, *values, **{name: arrays.get(name, x) for name, x in named.items()})
        results = {name: ck.to_host(array, stream) for name, array in arrays.items()}
    if report is not None:
        options.problems += reports.problems_of(report.findings)
    where = "on the emulator" if is_emulated else f"on the GPU, {ck.device_limits().name}"
    specialization = kernel.specialization_of(stream, *(arrays.get(n, arguments[n]) for n in names if n in arguments))
    options.result |= {"kernel": specialization.name_expression, "where": where}
    lines = [f"{specialization.name_expression} ran {where}"]
    lines += [f"{name}  {x.dtype} {x.shape}  {_shown(x)}" for name, x in results.items()]
    lines += [str(finding) for finding in (report.findings if report is not None else ())]
    rows = options.result["arrays"] = []
    for name, x in results.items():
        rows.append({"name": name, "dtype": str(x.dtype), "shape": x.shape, "values": x.ravel()[:16].tolist()})
    for path, name in _saved(options, results):
        np.save(path, results[name])
        lines.append(f"wrote {name} to {path}")
    if not options.json:
        print("\n".join(lines))
    return reports.status_of(options.problems)


def _shown(x: np.ndarray) -> str:
    return np.array2string(x, threshold=8, edgeitems=3, precision=4).replace("\n", "")


def _saved(options: argparse.Namespace, results: dict[str, np.ndarray]) -> Iterator[tuple[str, str]]:
    """Yield file and array of each ``--save``."""
    for text in options.save:
        name, equals, path = text.rpartition("=")
        name = name if equals else Path(path).stem
        if name not in results:
            options.parser.error(
                f"--save {text}: the kernel has no array {name}; it has {', '.join(results) or 'none'}"
            )
        yield path, name


def _config(options: argparse.Namespace, shapes: list[tuple[int, ...]]) -> Any:
    from cudakit.jit.load.config import config, cover

    if options.grid is not None and (options.block is None or options.cover is not None):
        options.parser.error("--grid comes with --block, and without --cover")
    if options.grid is not None:
        return config(_shape(options.grid), _shape(options.block), shared_bytes=options.shared)
    if options.cover is None and not shapes:
        options.parser.error("expected --cover, or --grid and --block: the kernel has no array to cover")
    extents = _shape(options.cover) if options.cover is not None else (max(int(np.prod(shape)) for shape in shapes),)
    return cover(extents, _shape(options.block) if options.block is not None else None)


def _shape(text: str) -> tuple[int, ...]:
    """Return the numbers of a text such as ``100x20``."""
    try:
        return tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise ArgumentError.of("a shape", "is numbers such as 1000 or 64x64", shortened(text)) from None


class _Form(NamedTuple):
    """A form of arrays: the values of a dtype and the parts after it."""

    least: int
    most: int
    make: Callable[..., np.ndarray]


def _random(dtype: np.dtype, shape: str, seed: str = "0") -> np.ndarray:
    values = np.random.default_rng(int(seed))
    if dtype.kind in "iu":
        return values.integers(0, min(100, np.iinfo(dtype).max), _shape(shape), endpoint=True).astype(dtype)
    return values.random(_shape(shape)).astype(dtype)


def _range(dtype: np.dtype, *bounds: str) -> np.ndarray:
    return np.arange(*(float(bound) if dtype.kind == "f" else int(bound) for bound in bounds)).astype(dtype)


_MAKERS: Final = {
    "random": _Form(1, 2, _random),
    "zeros": _Form(1, 1, lambda dtype, shape: np.zeros(_shape(shape), dtype)),
    "ones": _Form(1, 1, lambda dtype, shape: np.ones(_shape(shape), dtype)),
    "full": _Form(2, 2, lambda dtype, shape, value: np.full(_shape(shape), float(value)).astype(dtype)),
    "range": _Form(1, 3, _range),
}
_WORDS: Final = {"true": True, "false": False, "null": None}


def _value(text: str) -> Any:
    """Return the argument that a text describes: an array, a number, a truth value or None.

    Raises
    ------
    ArgumentError
    """
    name, *parts = text.split(":")
    if name in _MAKERS and parts:
        form = _MAKERS[name]
        try:
            if form.least <= len(parts) - 1 <= form.most:
                return form.make(np.dtype(parts[0]), *parts[1:])
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ArgumentError.of("--arg", f"is {_FORMS}", shortened(text), str(error)) from None
    elif text.endswith(".npy"):
        try:
            return np.load(text, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ArgumentError(f"--arg: {text} cannot be read: {error}").detailed(file=text) from None
    elif text in _WORDS:
        return _WORDS[text]
    else:
        for number in (lambda: int(text, 0), lambda: float(text)):
            with contextlib.suppress(ValueError):
                return number()
    raise ArgumentError.of("--arg", f"is {_FORMS}", shortened(text))
