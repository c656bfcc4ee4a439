"""A name of another library raises an AttributeError with its replacement, and every replacement exists."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
from typing import Any

import pytest

import cudakit as ck
from cudakit.foreign_names import REPLACEMENTS, Owner

SOURCE = "__global__ void scale(float* x, float by) { *x *= by; }"
ROWS = [(owner, name) for owner, names in REPLACEMENTS.items() for name in names]


def holders(stream: Any) -> dict[str, Any]:
    kernel = ck.Kernel(SOURCE)
    return {"ck": ck, "kernel": kernel, "module": kernel.module, "stream": stream}


@pytest.mark.parametrize(("owner", "name"), ROWS)
def test_a_missing_name_raises_its_replacement(owner: Owner, name: str, stream: Any) -> None:
    holder = holders(stream)[owner]
    with pytest.raises(AttributeError, match=re.escape(f"no attribute '{name}'. Use ")) as raised:
        getattr(holder, name)
    assert str(raised.value).endswith(f" Use {REPLACEMENTS[owner][name]}.")
    assert (raised.value.name, raised.value.obj) == (name, holder)
    assert not hasattr(holder, name)
    assert name not in dir(holder)


@pytest.mark.parametrize(("owner", "name"), ROWS)
def test_a_replacement_exists(owner: Owner, name: str, stream: Any) -> None:
    objects = {**holders(stream), "xp": __import__("numpy"), "x": __import__("numpy").empty(1)}
    replacement = REPLACEMENTS[owner][name]
    paths = re.findall(r"\b(ck|kernel|module|stream|x)((?:\.[A-Za-z_]\w*)+)", replacement)
    for root, attributes in paths:
        value = objects[root]
        for attribute in attributes.split(".")[1:]:
            if attribute == "is_done":  # of an event, which stream.record() makes
                value = stream.record()
            assert attribute == "globals" or hasattr(value, attribute), replacement
            value = value if attribute == "globals" else getattr(value, attribute)
    for path in re.findall(r"\bcuda\.core\.\w+", replacement):
        assert hasattr(importlib.import_module("cuda.core"), path.rpartition(".")[2])
    for option in re.findall(r"CompileOptions\((\w+)=", replacement):
        assert hasattr(ck.CompileOptions(), option)
    for option in re.findall(r"ck\.config\(grid, block, (\w+)=", replacement):
        assert hasattr(ck.config(1, 1), option)
    assert paths or replacement.startswith(("kernel(stream", 'module["name"]')), replacement


def test_other_missing_names_raise_as_usual(stream: Any) -> None:
    for holder in holders(stream).values():
        with pytest.raises(AttributeError, match=r"no attribute 'nothing'$") as raised:
            holder.nothing
        assert (raised.value.name, raised.value.obj) == ("nothing", holder)
        assert getattr(holder, "nothing", 3) == 3


def test_kernels_and_modules_are_copied_and_pickled() -> None:
    kernel = ck.Kernel(SOURCE)
    for made in (copy.copy(kernel), copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert made.name == "scale"
    assert pickle.loads(pickle.dumps(kernel.module)).kernels == copy.copy(kernel.module).kernels == ("scale",)
