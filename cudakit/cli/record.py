"""The command ``cudakit record``: the SPEC of a bundle, of what a program uses."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cudakit.cli.parsers import command
from cudakit.cli.programs import add_program, program_of
from cudakit.types.shown import counted


def add(commands: Any) -> None:
    """Add the command."""
    text = "run a Python program, and write the SPEC of a bundle with the kernels that it used"
    record = command(commands, "record", _record, text, "app.py -o kernels.toml -- 100", "--check kernels.toml app.py")
    add_program(record)
    record.set_defaults(may_use_gpu=True)
    record.add_argument(
        "-o", "--output", type=Path, metavar="FILE", default=Path("kernels.toml"), help="SPEC; default: kernels.toml"
    )
    record.add_argument(
        "--check", type=Path, metavar="SPEC", help="write nothing; report what the run used that this SPEC lacks"
    )
    record.add_argument(
        "--arch", action="append", default=[], help="arch of the SPEC; may be repeated; default: that of the run"
    )


def _record(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no programs.
    from cudakit.adapters.program import run_process
    from cudakit.jit.bundle.used import recording

    if options.program is None and options.module is None and options.arguments:
        _split(options)
    output, checked = options.output.absolute(), options.check and options.check.absolute()  # the program may move
    program = program_of(options, "record")
    with recording() as uses:
        try:
            run_process(program)
        except SystemExit as error:
            if error.code:
                raise
        finally:
            status = _lacking(options, uses, checked) if checked else _write(options, uses, output)
    return status


def _split(options: argparse.Namespace) -> None:
    """Take the program from the words after ``--``, such as ``python app.py 100``."""
    words = list(options.arguments)
    if Path(words[0]).name.startswith("python"):
        del words[0]
    if words[:1] == ["-m"]:
        options.module, *options.arguments = words[1:] or [None]
    else:
        options.program, *options.arguments = words or [None]


def _write(options: argparse.Namespace, uses: list[Any], output: Path) -> int:
    from cudakit.bundles.record import text_of

    text, left = text_of(uses, output.parent.resolve(), options.arch)
    output.write_text(text, encoding="utf-8")
    count = text.count("\n  {")
    options.result = {"spec": str(output), "rows": count, "left_out": left}
    print(f"wrote {counted(count, 'row')} to {output}", file=sys.stderr)
    for name in left:
        print(f"left out, because no SPEC can have it: {name}", file=sys.stderr)
    return 0


def _lacking(options: argparse.Namespace, uses: list[Any], path: Path) -> int:
    from cudakit.bundles.record import lacking

    rows = lacking(uses, path)
    options.result = {"spec": str(path), "lacks": rows}
    for row in rows:
        print(f"{path.name} lacks  {row},", file=sys.stderr)
    if not rows:
        print(f"{path.name} has all that the run used", file=sys.stderr)
    return 1 if rows else 0
