"""Colours of CUDA C++ in the strings of a Python program."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

PROGRAM = '''"""A docstring about a `__global__ void` function."""
k = ck.Kernel("""
template <typename T> __global__ void scale(T* x) { x[0] = 2.0f; }  // half
""")
name = f"""__global__ void {name}() {{}}"""
s = "__global__"
t = """a `__device__` function"""
'''


def test_cuda_in_a_string_has_the_tokens_of_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygments", reason="the site is built with the group docs")
    monkeypatch.syspath_prepend(DOCS)
    from cuda_lexer import PythonWithCuda
    from pygments.token import Comment, Error, Keyword, String

    tokens = list(PythonWithCuda().get_tokens(PROGRAM))
    assert "".join(value for _, value in tokens) == PROGRAM
    assert (Keyword, "template") in tokens
    assert all(token is not Error for token, _ in tokens)
    assert any(token in Comment and "half" in value for token, value in tokens)
    assert not any(token in String and "typename" in value for token, value in tokens)
    assert any(token is String.Doc and "__global__" in value for token, value in tokens)
    assert sum(value == "__global__" and token not in String for token, value in tokens) == 1
