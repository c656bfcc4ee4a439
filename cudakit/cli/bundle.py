"""The command ``cudakit bundle``: compiled kernels in one file, for machines without a compiler."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cudakit.cli.parsers import command
from cudakit.jit.bundle.file import BundleFile
from cudakit.types.shown import byte_size, counted


def add(commands: Any) -> None:
    """Add the command and its actions."""
    bundle = commands.add_parser("bundle", help="compile kernels into one file, for machines without a compiler")
    actions = bundle.add_commands("actions", "ACTION")

    text = "compile the kernels that a SPEC lists into one file"
    build = command(actions, "build", _build, text, "kernels.toml -o kernels.ckb")
    build.add_argument("spec", type=Path, metavar="SPEC", help="TOML or Python file that lists kernels and archs")
    build.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write; default: SPEC's name with .ckb, beside it"
    )

    show = command(actions, "show", _show, "show what a bundle holds, and what it was made from", "kernels.ckb")
    show.add_argument("file", type=Path, metavar="FILE", help="bundle")

    diff = command(actions, "diff", _diff, "show how two bundles differ; the status is 1 if they do", "old.ckb new.ckb")
    diff.add_argument("file", type=Path, metavar="FILE", help="bundle")
    diff.add_argument("other", type=Path, metavar="OTHER", help="bundle to compare it with")

    verify = command(
        actions, "verify", _verify, "read all of a bundle, and check its signature", "kernels.ckb --key public.pem"
    )
    verify.add_argument("file", type=Path, metavar="FILE", help="bundle")
    verify.add_argument("--key", type=Path, metavar="FILE", help="Ed25519 public key that it must be signed with")

    text = "sign a bundle with an Ed25519 private key, in place"
    sign = command(actions, "sign", _sign, text, "kernels.ckb --key private.pem")
    key = "openssl genpkey -algorithm ed25519 -out private.pem; its public part: openssl pkey -pubout"
    sign.epilog = f"{sign.epilog}\na key: {key}"
    sign.add_argument("file", type=Path, metavar="FILE", help="bundle")
    sign.add_argument("--key", type=Path, metavar="FILE", required=True, help="private key in PEM")

    text = "write a copy of a bundle with fewer kernels"
    prune = command(actions, "prune", _prune, text, "kernels.ckb 'scale<float' --arch sm_90 -o small.ckb")
    prune.add_argument("file", type=Path, metavar="FILE", help="bundle")
    prune.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="only kernels whose name contains this text; * stands for any text",
    )
    prune.add_argument("--arch", action="append", default=[], help="only code for this arch; may be repeated")
    prune.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write; default: the bundle itself")


def _build(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no compiler.
    from cudakit.bundles.build import build

    output = options.output or options.spec.with_suffix(".ckb")
    count = build(options.spec, output)
    options.result = {"kernels": count, "file": str(output), "bytes": output.stat().st_size}
    print(f"Wrote {counted(count, 'kernel')} to {output}, {byte_size(output.stat().st_size)}.")
    return 0


def _show(options: argparse.Namespace) -> int:
    from cudakit.bundles.report import described  # as above

    record = described(BundleFile(options.file))
    options.result = record
    if options.json:
        return 0
    print(f"{record['file']}, {byte_size(record['bytes'])}")
    print(f"signed by    {record['signed by'] or 'nobody'}")
    for name, value in record["manifest"].items():
        shown = value if isinstance(value, str) else json.dumps(value)
        print(f"{name:<12} {shown}")
    print()
    for kernel in record["kernels"]:
        where = f"{kernel['target']:<6}  {kernel['arch']:<8}"
        print(f"{byte_size(kernel['bytes']):>9}  {where}  {kernel['kernel']}  {' '.join(kernel['headers'])}".rstrip())
    return 0


def _diff(options: argparse.Namespace) -> int:
    from cudakit.bundles.report import differences  # as above

    lines = list(differences(BundleFile(options.file), BundleFile(options.other)))
    options.result = {"differences": lines}
    print("\n".join(lines) or "no difference")
    return 1 if lines else 0


def _verify(options: argparse.Namespace) -> int:
    file = BundleFile(options.file)
    file.verify()
    if options.key is not None:
        from cudakit.jit.bundle.signature import require_signature  # takes another package

        require_signature(file, options.key)
    signed = "not signed" if file.signature is None else f"signed by {file.signature.public_key.hex()}"
    checked = "" if file.signature is None or options.key is not None else ", which was not checked: no --key"
    options.result = {"entries": len(file), "is_signed": file.signature is not None}
    print(f"{options.file} is whole: {len(file)} entries, {signed}{checked}.")
    return 0


def _sign(options: argparse.Namespace) -> int:
    from cudakit.jit.bundle.signature import sign  # as above

    print(f"Signed {options.file} with {sign(options.file, options.key).public_key.hex()}.")
    return 0


def _prune(options: argparse.Namespace) -> int:
    from cudakit.bundles.report import prune  # as above

    output = options.output or options.file
    before, after = prune(options.file, output, options.pattern, options.arch)
    options.result = {"kernels": after, "before": before, "file": str(output)}
    print(f"Wrote {counted(after, 'kernel')} of {before} to {output}, not signed.")
    return 0
