"""Headers written out in a text: each once where it guards itself, and what conditionals leave out is no text."""

from pathlib import Path

import pytest

import cudakit as ck
from cudakit.jit.source import headers
from cudakit.jit.source.flatten import flatten
from cudakit.jit.source.preprocessor import Conditions

#: Ways to write a header once: in front of its text, and behind it.
GUARDS = {
    "once": ("#pragma once\n", ""),
    "ifndef": ("#ifndef {0}\n#define {0}\n", "#endif\n"),
    "if": ("#if !defined({0})\n#define {0} 1\n", "#endif\n"),
    "late": ("#include <stdio.h>\n#ifndef {0}\n#define {0}\n", "#endif\n"),
    "in a condition": ("#ifndef {0}\n#define {0}\n#if FAST && defined(X)\n", "#endif\n#endif\n"),
    "in braces": (
        '#ifndef {0}\n#define {0}\n#ifdef __CUDACC__\nextern "C" {{\n#endif\n',
        "#ifdef __CUDACC__\n}}\n#endif\n#endif\n",
    ),
}


def diamonds(folder: Path, count: int, before: str, behind: str) -> None:
    for i in range(count):
        includes = "".join(f'#include "h{j}.h"\n' for j in (i + 1, i + 2) if j < count)
        text = f"{before.format(f'H{i}')}{includes}int f{i};\n{behind.format()}"
        (folder / f"h{i}.h").write_text(text)


@pytest.mark.parametrize("way", GUARDS)
@pytest.mark.parametrize(
    "first", ["", "#ifdef FIRST\n#include <h1.h>\n#endif\n", "#if 0\n#else\n#include <h1.h>\n#endif\n"]
)
def test_guarded_headers_in_diamonds_are_written_a_few_times(way: str, first: str, tmp_path: Path) -> None:
    diamonds(tmp_path, 40, *GUARDS[way])
    text = flatten(f'{first}#include "h0.h"\n', "a.cu", str(tmp_path), [str(tmp_path)])[0]
    for i in range(40):
        assert 1 <= text.count(f"int f{i};") <= 2
    assert first or text.count("int f39;") == 1


def test_headers_that_include_each_other_without_guards_are_refused(tmp_path: Path) -> None:
    diamonds(tmp_path, 40, "", "")
    with pytest.raises(
        ck.TemplateError, match=r'includes ".*h.*" in too many ways to write it out: give the headers guards'
    ):
        flatten('#include "h0.h"\n', "a.cu", str(tmp_path), ())
    (tmp_path / "a.h").write_text('#include "a.h"\n')
    with pytest.raises(ck.TemplateError, match=r'a.h" includes ".*a.h" in too many ways'):
        flatten('#include "a.h"\n', "a.cu", str(tmp_path), ())


def test_cudas_own_headers_stay_for_the_compiler() -> None:
    names = [
        "cub/block/block_reduce.cuh",
        "cuda/std/array",
        "cuda_fp16.h",
        "thrust/functional.h",
        "cuda_runtime.h",
        "cmath",
    ]
    text = "".join(f"#include <{name}>\n" for name in names)
    assert flatten(text, "a.cu", None, map(str, headers.toolkit_folders()))[0] == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("#define X\n#ifdef X\nyes\n#else\nno\n#endif\n", "yes"),
        ("#define X\n#undef X\n#ifdef X\nno\n#elif 1\nyes\n#elif 1\nno\n#else\nno\n#endif\n", "yes"),
        ("#ifdef X\nyes\n#ifdef X\nyes\n#else\nno\n#endif\n#else\nyes\n#ifdef X\nno\n#endif\n#endif\n", "yes yes yes"),
        ("#if A\nyes\n#if A\nyes\n#else\nno\n#endif\n#define A 2\n#if A\n#else\nyes\n#endif\n#endif", 3 * "yes "),
        ("#ifndef X\n#define X\n#endif\n#ifndef X\nno\n#endif\n", ""),
        ("#ifdef Y\n#define X\n#endif\n#ifdef X\nyes\n#else\nyes\n#endif\n", "yes yes"),
        ("#ifdef Y\n#define X\n#ifndef X\nno\n#endif\n#endif\n", ""),
        ("#if 0\nno\n#if 1\nno\n#define X\n#endif\n#endif\n#ifdef X\nyes\n#endif\n", "yes"),
        ("#if defined(__CUDACC__) && (defined X || !defined(__CUDA_ARCH__) || 1)\nyes\n#else\nno\n#endif\n", "yes"),
        ("#if !(defined(X) && 0) && !0\nyes\n#else\nno\n#endif\n", "yes"),
        ("#if defined(X) && FOO(1)\nyes\n#elif 1\nyes\n#else\nno\n#endif\n", "yes yes"),
        ('#define X\n#pragma pop_macro("X")\n#ifdef X\nyes\n#endif\n', "yes"),
        ("#ifdef X\nyes\n#elifdef __CUDACC__\nyes\n#else\nno\n#endif\n#else\n#endif\n", "yes yes"),
        ("#if X\n#else\n#ifdef X\nyes\n#endif\n#endif\n", "yes"),
    ],
)  # fmt: skip
def test_branches_that_are_surely_left_out(text: str, left: str) -> None:
    found = flatten(text, "a.cu", None, ())[0]
    assert [word for word in found.split() if word in ("yes", "no")] == left.split()
    assert found.count("\n") == text.count("\n")


def test_a_guard_counts_as_undefined_until_it_is_defined() -> None:
    conditions = Conditions()
    conditions.read("ifdef", "FIRST")
    conditions.read("define", "GUARD")
    assert conditions.verdict("ifndef", "GUARD") is False
    conditions.read("endif", "")
    assert conditions.verdict("ifndef", "GUARD") is None
    conditions.read("ifndef", "GUARD", is_guard=True)
    conditions.read("define", "GUARD")
    conditions.read("define", "OTHER")
    conditions.read("endif", "")
    assert conditions.verdict("ifndef", "GUARD") is conditions.verdict("ifndef", "OTHER") is False
