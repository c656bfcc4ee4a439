"""The command ``cudakit prove``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudakit import reports
from cudakit.cli.parsers import command
from cudakit.cli.programs import add_program, program_of
from cudakit.errors import CudakitError, Details, named

if TYPE_CHECKING:
    from cudakit.adapters.program_proofs import ProgramProof
    from cudakit.proof.prove import Proof


def add(commands: Any) -> None:
    """Add the command."""
    text = "prove for all sizes that kernels stay in bounds and do not race"
    prove = command(commands, "prove", _prove, text, "scale.cu", "app.py --kernel scale -- 100")
    add_program(prove, text="CUDA C++ file, or Python program whose kernels are proved")
    prove.add_argument("--kernel", metavar="NAME", help="name of a kernel; default: all kernels of the file")
    prove.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time limit of the solver for one question, on a common machine; default: 10",
    )
    prove.add_argument("--arch", default="sm_90", help="arch to compile for; default: sm_90")


def _prove(options: argparse.Namespace) -> int:
    # Imported here: the other commands need neither the compiler nor a solver.
    from cudakit.proof.prove import proofs_of

    path = Path(options.program or "")
    proofs: Iterator[Proof | ProgramProof]
    if options.program is None or path.suffix == ".py" or path.is_dir():
        proofs = _proofs_of_program(options)
    else:
        proofs = proofs_of(path, options.kernel, options.timeout, options.arch)
    verdicts, records = [], []
    for proof in proofs:
        verdicts.append(bool(proof))
        records.append(record := proof.to_json())
        for finding in record.get("findings", ()):
            details = Details(**named(record["kernel"]), file=finding["file"], line=finding["line"])  # type: ignore[arg-type]  # names alone
            text = f"{finding['verdict']}: {finding['text']}"
            options.problems.append(reports.problem_of("unproved", text, details, fact=finding["kind"]))
        if not options.json:
            print(proof, flush=True)
    options.result = {"proofs": records}
    return 0 if all(verdicts) else 1


def _proofs_of_program(options: argparse.Namespace) -> Iterator[ProgramProof]:
    """Yield a proof of each kernel that a Python program launches.

    Raises
    ------
    CudakitError
        If the program launches no kernel of its own.
    """
    from cudakit.adapters.program_proofs import launches_of, proofs_of_launches

    program = program_of(options, "prove")
    kernels, error = launches_of(program)
    if error is not None:
        print(f"cudakit: {program} ended early: {error}", file=sys.stderr)
    kernels = [kernel for kernel in kernels if options.kernel in (None, kernel.instance.kernel)]
    if not kernels:
        subject = "kernel of its own CUDA C++" if options.kernel is None else f"kernel {options.kernel}"
        raise CudakitError(f"{program} launches no {subject} on the emulator: there is nothing to prove")
    yield from proofs_of_launches(kernels, options.timeout, options.arch)
