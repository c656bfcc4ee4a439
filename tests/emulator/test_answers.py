"""Every instruction form on the emulator against a GPU: its stored answers, and under --gpu fresh ones."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from support.instructions import values
from support.instructions.answers import FOLDER, Answers, differing, report
from support.instructions.catalogue import FAMILIES, catalogue
from support.instructions.forms import Bound, Form
from support.instructions.places import on_emulator, on_gpu

from cudakit.errors import EmulationError

FORMS = catalogue()
BY_FAMILY: dict[str, list[Form]] = defaultdict(list)
for _form in FORMS.values():
    BY_FAMILY[_form.family].append(_form)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers.load(FOLDER / "sm_90.xz")


def complaints(forms: Sequence[Form], theirs: dict[str, bytes], seed: int = 0) -> list[str]:
    """What the emulator gives otherwise than the GPU, a line a form and a lane."""
    lines = []
    ours = on_emulator(forms, seed)
    for form in forms:
        result = ours[form.name]
        if isinstance(result, EmulationError):
            lines.append(f"{form.name}: {result}")
            continue
        lanes = differing(form, result, theirs[form.name])
        if lanes.size:
            lines.append(f"{form.name}: {lanes.size} of {values.LANES} lanes")
            lines += report(form, result, theirs[form.name], lanes[:3], values.inputs(form.sources, seed))
    return lines


@pytest.mark.parametrize("family", FAMILIES)
def test_the_emulator_gives_what_the_gpu_gave(family: str, answers: Answers) -> None:
    wrong = complaints(BY_FAMILY[family], {name: data for name, (_, data) in answers.results.items()})
    assert not wrong, "\n".join(wrong)


def test_stored_answers_are_of_these_forms_and_inputs(answers: Answers) -> None:
    assert not answers.about["refused"]
    stored = {name: digest for name, (digest, _) in answers.results.items()}
    assert stored == {name: form.digest() for name, form in FORMS.items()}, "record the answers again on a GPU"


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_both_places_agree_on_new_inputs(family: str) -> None:
    seed = secrets.randbelow(2**31)
    theirs, refused = on_gpu(BY_FAMILY[family], seed)
    assert not refused
    wrong = complaints(BY_FAMILY[family], theirs, seed)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


# ── the comparison itself ──


def _float(*numbers: float) -> bytes:
    return np.resize(np.array(numbers, np.float32), values.LANES).tobytes()


def test_a_bound_is_kept_to() -> None:
    form = Form("f", "floating", "", ("f32",), ("f32",), Bound(ulp=1))
    one = np.float32(1)
    second = np.nextafter(np.nextafter(one, np.float32(2)), np.float32(2))
    assert differing(form, _float(1.0), _float(np.nextafter(one, np.float32(2)))).size == 0
    assert differing(form, _float(1.0), _float(second)).size == values.LANES
    assert differing(form, _float(np.nan), _float(np.nan)).size == 0
    assert differing(form, _float(np.nan), _float(1.0)).size == values.LANES
    assert differing(form, _float(np.inf), _float(np.finfo(np.float32).max)).size == values.LANES
    # A subnormal that one place flushes is within the bound only if the bound is that wide.
    assert differing(form, _float(0.0), _float(1e-39)).size == values.LANES


def test_without_a_bound_every_bit_counts() -> None:
    form = Form("f", "floating", "", ("f32",), ("f32",))
    assert differing(form, _float(0.0, 1.0), _float(-0.0, 1.0)).tolist() == list(range(0, values.LANES, 2))


def test_inputs_are_the_same_everywhere_and_others_with_a_seed() -> None:
    first, again = values.inputs(("f32", "b64")), values.inputs.__wrapped__(("f32", "b64"))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    # The bits themselves, so that another machine or version of NumPy is known to make the same ones.
    assert [int(array[-1]) for array in first] == [0xBF9010BE, 0xFFFFE5D23842554D]
    assert any((a != b).any() for a, b in zip(first, values.inputs(("f32", "b64"), 1), strict=True))
