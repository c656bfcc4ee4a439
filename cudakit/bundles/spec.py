"""The SPEC of a bundle: which kernels it has, with which template arguments, for which archs."""

from __future__ import annotations

import dataclasses
import itertools
import os
import runpy
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.jit.source import source
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, is_arch, linkable
from cudakit.kernel.kernel import Kernel, module_of_source, with_source

_FIELDS: Final = ("archs", "ptx", "options", "kernels", "tuned")
_KERNEL_FIELDS: Final = (
    *("file", "template", "text", "name", "arguments", "product", "types", "options", "host_code", "archs", "ptx"),
)
_ORIGINS: Final = ("file", "template", "text")


@dataclasses.dataclass(frozen=True)
class Instance:
    """A kernel with its template arguments, types of arguments, and the archs that it is compiled for.

    Attributes
    ----------
    kernel : Kernel
        Kernel with its template arguments bound.
    types : tuple
        Types of the kernel's arguments, as for `Kernel.specialization`; empty if the template arguments say all.
    archs, ptx : tuple of str
        Archs to compile machine code and PTX for.
    """

    kernel: Kernel
    types: tuple[Any, ...]
    archs: tuple[str, ...]
    ptx: tuple[str, ...]


class Spec(NamedTuple):
    """The content of a SPEC.

    Attributes
    ----------
    instances : tuple of Instance
        Kernels, each with its template arguments.
    tuned : tuple of pathlib.Path
        Files with results of tuning.
    """

    instances: tuple[Instance, ...]
    tuned: tuple[Path, ...]


def read(path: Path) -> Spec:
    """Read a SPEC, in TOML or Python. Paths in it are beside it.

    Raises
    ------
    CudakitError
        If the SPEC cannot be read, or a field of it is wrong.
    """
    try:
        fields = _python(path) if path.suffix == ".py" else tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the SPEC {path} cannot be read: {error}") from error
    _check_names(f"{path}", fields, _FIELDS)
    rows = fields.get("kernels")
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise ArgumentError(f"{path}: kernels are a list of at least one, got {shortened(rows)}")
    instances: list[Instance] = []
    for number, row in enumerate(rows):
        where = f"{path}: kernel {number + 1}"
        try:
            instances += instances_of(where, row, fields, path.resolve().parent)
        except CudakitError as error:
            text = str(error)
            raise type(error)(text if text.startswith(where) else f"{where}: {text}") from error
    tuned = fields.get("tuned", ())
    files = (tuned,) if isinstance(tuned, str) else tuned
    if not isinstance(files, Sequence) or not all(isinstance(file, str) for file in files):
        raise ArgumentError(f"{path}: tuned are files of cudakit tune --export, got {shortened(tuned)}")
    return Spec(tuple(instances), tuple(path.resolve().parent / file for file in files))


def _python(path: Path) -> dict[str, Any]:
    names = runpy.run_path(str(path), run_name="cudakit_bundle")
    return {name: names[name] for name in _FIELDS if name in names}


def _check_names(where: str, fields: Mapping[str, Any], expected: Sequence[str]) -> None:
    if unknown := [name for name in fields if name not in expected]:
        raise ArgumentError(f"{where} has {', '.join(unknown)}; the fields are {', '.join(expected)}")


def instances_of(where: str, row: Any, common: Mapping[str, Any], folder: Path) -> Iterator[Instance]:
    """Yield the instances of a row of kernels.

    Parameters
    ----------
    where : str
        Place of the row, for errors.
    row : mapping or Kernel
        The row.
    common : mapping
        Fields of the SPEC, which hold for all rows.
    folder : pathlib.Path
        Folder of the SPEC.

    Raises
    ------
    CudakitError
        If a field is wrong.
    """
    if isinstance(row, Kernel):
        archs, ptx = _targets(where, common)
        yield Instance(_renamed(row, folder), (), archs, ptx)
        return
    if not isinstance(row, Mapping):
        raise ArgumentError(f"{where} is a table with file and name, got {shortened(row)}")
    _check_names(where, row, _KERNEL_FIELDS)
    archs, ptx = _targets(where, {**common, **row})
    options = _options(where, {**common.get("options", {}), **row.get("options", {})}, folder)
    module = module_of_source(_origin(where, row, folder), options, row.get("host_code", "keep"))
    name = row.get("name")
    if name is None and len(module.kernels) == 1:
        name = module.kernels[0]
    if not isinstance(name, str):
        raise ArgumentError(f"{where}: name is one of {', '.join(module.kernels)}, got {shortened(name)}")
    types = tuple(map(_type, row.get("types", ())))
    for arguments in _arguments(where, row):
        kernel = module[name]
        yield Instance(kernel[arguments] if arguments != () else kernel, types, archs, ptx)


def _targets(where: str, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the archs of machine code, and those of PTX: by default the lowest of them."""
    archs = _archs(f"{where}: archs", fields.get("archs", ()))
    lowest = sorted(archs, key=lambda arch: (int(arch.strip("sm_af")), arch))[:1]
    ptx = _archs(f"{where}: ptx", fields.get("ptx", lowest))
    if not archs and not ptx:
        raise ArgumentError(f'{where} is for no arch; give archs = ["sm_80", "sm_90"], or ptx = ["sm_80"]')
    return archs, ptx


def _archs(where: str, value: Any) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(map(is_arch, values)):
        raise ArgumentError(f'{where} are names such as ["sm_80", "sm_90a"], got {shortened(value)}')
    return tuple(dict.fromkeys(values))


def _options(where: str, fields: Mapping[str, Any], folder: Path) -> CompileOptions:
    """Return the options of a kernel. Folders and files to link are beside the SPEC."""
    paths = fields.get("include_paths", ())
    paths = [paths] if isinstance(paths, str) else paths
    names = {field.name for field in dataclasses.fields(CompileOptions)} - {"cache", "bundle"}
    _check_names(f"{where}: options", fields, sorted(names))
    links = fields.get("link", ())
    inputs = map(linkable, [links] if isinstance(links, str) else links)
    linked = [folder / item if isinstance(item, Path) else item for item in inputs]
    return CompileOptions(**{**fields, "include_paths": [str(folder / path) for path in paths], "link": linked})


def _origin(where: str, row: Mapping[str, Any], folder: Path) -> Source:
    origins = [name for name in _ORIGINS if name in row]
    if len(origins) != 1 or not isinstance(row[origins[0]], str):
        raise ArgumentError(f"{where} has one of {', '.join(_ORIGINS)}, got {', '.join(origins) or 'none'}")
    value = row[origins[0]]
    if origins == ["template"]:
        return _neutral(source.from_template(value), f"{value}.cuh")
    if origins == ["text"]:
        return source.from_text(value)
    return _neutral(source.from_file(folder / value, None, row.get("host_code", "keep")), Path(value).as_posix())


def _neutral(origin: Source, name: str) -> Source:
    """Return a source whose name in its code is the same on every machine."""
    return dataclasses.replace(origin, name=f"{os.devnull}/{name}")


def _renamed(kernel: Kernel, folder: Path) -> Kernel:
    """Return a kernel of a SPEC in Python, without the bundle that it uses itself, and with a neutral name."""
    origin = kernel.source
    if origin.folder is not None:
        origin = _neutral(origin, os.path.relpath(origin.name, folder).replace(os.sep, "/"))
    return with_source(kernel, origin, kernel.options.replace(bundle=None, cache=None))


def _arguments(where: str, row: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the template arguments of each instance: those of `arguments`, then all combinations of `product`."""
    rows, product = row.get("arguments", ()), row.get("product", {})
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise ArgumentError(f'{where}: arguments are a list of instances, such as [["float", 256]], got {rows!r}')
    for arguments in rows:
        if isinstance(arguments, Mapping):
            yield arguments
        elif isinstance(arguments, Sequence) and not isinstance(arguments, str):
            yield tuple(arguments)
        else:
            yield (arguments,)
    if not isinstance(product, Mapping) or not all(
        isinstance(values, Sequence) and not isinstance(values, str) for values in product.values()
    ):
        raise ArgumentError(f'{where}: product has a list for each template parameter, as {{T = ["float"]}}')
    if product:
        for values in itertools.product(*product.values()):
            yield dict(zip(product, values, strict=True))
    if not rows and not product:
        yield ()


def _type(value: Any) -> Any:
    """Return a type of an argument, as `Kernel.specialization` takes it.

    A SPEC has a dtype's name, ``""`` for none, a dtype with a rank, the fields of a struct as pairs, or NumPy's table
    of a struct's names, formats, offsets and size.
    """
    if value == "" or value is None:
        return None
    if isinstance(value, Mapping):
        return _struct(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) == 2 and isinstance(value[1], int):
            return (value[0], value[1])
        return [tuple(field) for field in value]
    return value


def _struct(table: Mapping[str, Any]) -> np.dtype:
    def of(field: Any) -> Any:
        """Return the format of a field: a name, a struct, or a format and the shape of an array."""
        if isinstance(field, Mapping):
            return _struct(field)
        return (of(field[0]), tuple(field[1])) if isinstance(field, list) else field

    fields: Any = {**table, "formats": [of(field) for field in table["formats"]]}
    dtype: np.dtype = np.dtype(fields)
    return dtype
