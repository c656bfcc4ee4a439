"""Instruction forms as machine code against the answers of a GPU, and which ones the compiled machine refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.instructions import values
from support.instructions.answers import FOLDER, Answers, differing, report
from support.instructions.catalogue import FAMILIES, catalogue, in_pairs
from support.instructions.forms import Form
from support.instructions.places import as_machine_code, kernels

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

#: Names of the forms that only NumPy's machine runs.
INTERPRETED = frozenset((FOLDER / "interpreted.txt").read_text().splitlines())
FORMS = list(catalogue().values())


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all kernels compiled as long ones are at first: the optimised code differs from it by LLVM's passes."""
    from cudakit.emulator.compiled import machine

    monkeypatch.setattr(machine, "_machine", machine.Machine())
    monkeypatch.setattr(machine, "_SHORT", 0)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers.load(FOLDER / "sm_90.xz")


def _forms(family: str) -> list[Form]:
    return [form for form in FORMS if form.family == family and form.name not in INTERPRETED]


def _complaints(forms: Sequence[Form], answers: Answers) -> list[str]:
    """What machine code gives otherwise than the GPU, a line a form and a lane."""
    lines = []
    ours = as_machine_code(forms)
    assert not isinstance(ours, str), ours
    for form in forms:
        theirs = answers.results[form.name][1]
        lanes = differing(form, ours[form.name], theirs)
        if lanes.size:
            lines.append(f"{form.name}: {lanes.size} of {values.LANES} lanes")
            lines += report(form, ours[form.name], theirs, lanes[:3], values.inputs(form.sources, 0))
    return lines


@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code_gives_what_the_gpu_gave(family: str, answers: Answers) -> None:
    """Each pair of modifiers and types; NumPy's machine has all forms in the quick tier."""
    wrong = [line for kernel in kernels(in_pairs(_forms(family))) for line in _complaints(kernel, answers)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code_of_the_other_forms_gives_what_the_gpu_gave(family: str, answers: Answers) -> None:
    chosen = in_pairs(_forms(family))
    others = [form for form in _forms(family) if form not in chosen]
    wrong = [line for kernel in kernels(others) for line in _complaints(kernel, answers)]
    assert not wrong, "\n".join(wrong)


def test_listed_forms_are_there() -> None:
    assert {form.name for form in FORMS} >= INTERPRETED


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_other_forms_are_refused(family: str) -> None:
    """Each of them alone: it is an instruction that NumPy's machine runs."""
    forms = [form for form in catalogue().values() if form.family == family]
    for form in forms:
        if form.name in INTERPRETED:
            assert str(as_machine_code([form])).startswith("instruction "), form.name
