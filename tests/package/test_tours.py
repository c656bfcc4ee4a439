"""The examples in the docstrings of public modules run, and print the text that stands there."""

import doctest
import importlib

import pytest


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize("name", ["emulator", "memory", "ops", "pipeline", "random"])
def test_the_example_of_a_tour_runs(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(importlib.import_module(f"cudakit.{name}"), name)
    assert len(test.examples) >= 3
    assert doctest.DocTestRunner().run(test).failed == 0
