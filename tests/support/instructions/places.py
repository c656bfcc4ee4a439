"""Runs forms: on the emulator, or on a GPU through CUDA's driver."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from support.instructions import values
from support.instructions.forms import Form, module, together

from cudakit import emulator
from cudakit.errors import EmulationError

#: Forms of a kernel: with 8 KiB of shared memory each, 24 of them fit.
AT_ONCE = 24
#: Steps that a form may take on the emulator.
_BUDGET = 20_000
#: Forms that make one module; more of them compile slower together than apart.
BATCH = 48


def batches(forms: Sequence[Form]) -> list[Sequence[Form]]:
    """`forms` in pieces of `BATCH`."""
    return [forms[start : start + BATCH] for start in range(0, len(forms), BATCH)]


def kernels(forms: Sequence[Form]) -> Iterator[Sequence[Form]]:
    """`forms` in pieces that make one kernel each."""
    apart = [form for form in forms if "bar.red" in form.body]  # of these a kernel has one
    yield from ([form] for form in apart)
    forms = [form for form in forms if form not in apart]
    for start in range(0, len(forms), AT_ONCE):
        yield forms[start : start + AT_ONCE]


def on_emulator(forms: Sequence[Form], seed: int = 0) -> dict[str, bytes | EmulationError]:
    """Results by form, or why there are none."""
    found: dict[str, bytes | EmulationError] = {}
    for kernel in kernels(forms):
        try:
            launch, results = _together(kernel, seed, step_budget=_BUDGET * len(kernel))
            emulator.run(launch)
            found.update(results())
        except EmulationError:
            found.update(_one_by_one(kernel, seed))
    return found


def _one_by_one(forms: Sequence[Form], seed: int) -> dict[str, bytes | EmulationError]:
    found: dict[str, bytes | EmulationError] = {}
    pending = list(batches(forms))
    while pending:
        batch = pending.pop()
        try:
            program = emulator.parse(module(batch))
        except EmulationError as error:
            if len(batch) == 1:
                found[batch[0].name] = error
            else:
                pending += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            continue
        found.update(_batch_on_emulator(batch, program, seed))
    return found


def _batch_on_emulator(batch: Sequence[Form], program: Any, seed: int) -> dict[str, bytes | EmulationError]:
    found: dict[str, bytes | EmulationError] = {}
    memory = emulator.Memory()
    loaded = emulator.Module(program, memory)
    for number, form in enumerate(batch):
        given, result = _input_bytes(form, seed), np.zeros(form.result_bytes, np.uint8)
        addresses = memory.add(given, "inputs"), memory.add(result, "results")
        launch = emulator.Launch(
            loaded,
            program.functions[f"f{number}"],
            emulator.Geometry((1, 1, 1), (values.LANES, 1, 1)),
            struct.pack("<2Q", *addresses),
            step_budget=_BUDGET,
        )
        try:
            emulator.run(launch)
            found[form.name] = result.tobytes()
        except EmulationError as error:
            found[form.name] = error
    return found


def as_machine_code(forms: Sequence[Form], seed: int = 0) -> dict[str, bytes] | str:
    """Results by form of the compiled machine, or why it takes no kernel of all these forms."""
    # Needs llvmlite, which only the tests of that machine ask for.
    from cudakit.emulator.compiled import Refusal
    from cudakit.emulator.compiled.machine import Machine

    launch, results = _together(forms, seed)
    machine = Machine()
    compiled = machine.find(launch, eager=True)
    if isinstance(compiled, Refusal):
        return str(compiled)
    machine.run(launch, compiled)
    return results()


def _together(
    forms: Sequence[Form], seed: int, step_budget: int | None = None
) -> tuple[emulator.Launch, Callable[[], dict[str, bytes]]]:
    """Return the launch of a kernel of all forms, and what gives the results by form after it."""
    inputs = [_input_bytes(form, seed) for form in forms]
    sizes = {form.name: given.nbytes for form, given in zip(forms, inputs, strict=True)}
    program = emulator.parse(together(forms, lambda form: sizes[form.name]))
    memory = emulator.Memory()
    given, result = np.concatenate(inputs), np.zeros(sum(form.result_bytes for form in forms), np.uint8)
    addresses = memory.add(given, "inputs"), memory.add(result, "results")
    geometry = emulator.Geometry((1, 1, 1), (values.LANES, 1, 1))
    loaded, entry = emulator.Module(program, memory), program.functions["f"]
    launch = emulator.Launch(loaded, entry, geometry, struct.pack("<2Q", *addresses), step_budget=step_budget)
    ends = np.cumsum([form.result_bytes for form in forms])

    def results() -> dict[str, bytes]:
        parts = zip(forms, ends, strict=True)
        return {form.name: result[end - form.result_bytes : end].tobytes() for form, end in parts}

    return launch, results


def _input_bytes(form: Form, seed: int) -> np.ndarray:
    """All inputs after each other, aligned to 8 bytes."""
    data = b"".join(array.tobytes() for array in values.inputs(form.sources, seed)) + bytes(8)
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).copy()
    return words.view(np.uint8)


def on_gpu(forms: Sequence[Form], seed: int = 0) -> tuple[dict[str, bytes], dict[str, str]]:
    """Results by form, and why the driver's compiler refused a form."""
    found: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    pending = list(batches(forms))
    while pending:
        batch = pending.pop()
        try:
            found.update(_batch_on_gpu(batch, seed))
        except _Refused as error:
            if len(batch) == 1:
                refused[batch[0].name] = str(error)
            else:
                pending += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    return found, refused


class _Refused(Exception):
    """The driver's compiler does not take a module."""


def _batch_on_gpu(batch: Sequence[Form], seed: int) -> dict[str, bytes]:
    import cupy
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device()
    device.set_current()
    stream = device.default_stream
    try:
        code = ObjectCode.from_ptx(module(batch).encode())
        kernels = [code.get_kernel(f"f{number}") for number in range(len(batch))]
    except Exception as error:
        # Whatever the driver says: only a form alone is to blame.
        raise _Refused(str(error)[:300]) from error
    config = LaunchConfig(grid=1, block=values.LANES)
    results = []
    for form, kernel in zip(batch, kernels, strict=True):
        given, result = cupy.asarray(_input_bytes(form, seed)), cupy.zeros(form.result_bytes, cupy.uint8)
        cupy.cuda.get_current_stream().synchronize()
        launch(stream, config, kernel, given.data.ptr, result.data.ptr)
        results.append((given, result))
    stream.sync()
    return {form.name: cupy.asnumpy(result).tobytes() for form, (_, result) in zip(batch, results, strict=True)}
