"""Never stale: a kernel is what a fresh compile would give, whatever changed among its headers and however."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.tiers import slow, thinned

import cudakit as ck
from cudakit.jit.cache.cache import Cache
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure, all_included

K = "__global__ void k(int* y) { y[0] = V; }\n"
ASK = "#define V 2\n#else\n#define V 1\n#endif\n" + K


class Case(NamedTuple):
    """Files of a source before and after a change, its options, and what it gives before and after.

    A value that starts with ``->`` is a link, ``/`` is an empty folder, None removes what is there.
    """

    name: str
    before: dict[str, str | None]
    after: dict[str, str | None]
    paths: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    gives: tuple[int, int] = (1, 2)
    text: bool = False
    kept: bool = True


ONE, TWO = "#define V 1\n", "#define V 2\n"
V1, V2 = {"v.h": ONE}, {"v.h": TWO}
CASES = [
    Case("quoted", {"k.cu": '#include "v.h"\n' + K, **V1}, V2),
    Case("angled beside the file", {"k.cu": "#include <v.h>\n" + K, **V1}, V2),
    Case("nested", {"k.cu": '#include "a.h"\n' + K, "a.h": '#include "v.h"\n', **V1}, V2),
    Case(
        "of the includer's folder",
        {"k.cu": '#include "u/a.h"\n' + K, "u/a.h": '#include "v.h"\n', "u/v.h": ONE},
        {"u/v.h": TWO},
    ),
    Case(
        "of a subfolder, found beside the source",
        {"k.cu": '#include "u/a.h"\n' + K, "u/a.h": '#include "v.h"\n', **V1},
        V2,
    ),
    Case(
        "newly in the includer's folder",
        {"k.cu": '#include "u/a.h"\n' + K, "u/a.h": '#include "v.h"\n', **V1},
        {"u/v.h": TWO},
    ),
    Case("newly beside the source, before a folder", {"k.cu": '#include "v.h"\n' + K, "b/v.h": ONE}, V2, ("b",)),
    Case(
        "newly beside the source, of a header of a folder",
        {"k.cu": "#include <a.h>\n" + K, "b/a.h": "#include <v.h>\n", "c/v.h": ONE},
        V2,
        ("b", "c"),
    ),
    Case(
        "newly in an earlier folder",
        {"k.cu": "#include <v.h>\n" + K, "b/v.h": ONE, "a": "/"},
        {"a/v.h": TWO},
        ("a", "b"),
    ),
    Case(
        "newly in an earlier folder that was not there",
        {"k.cu": "#include <v.h>\n" + K, "b/v.h": ONE},
        {"a/v.h": TWO},
        ("a", "b"),
    ),
    Case(
        "newly in an earlier folder, deeper",
        {"k.cu": "#include <x/y/v.h>\n" + K, "b/x/y/v.h": ONE, "a/x": "/"},
        {"a/x/y/v.h": TWO},
        ("a", "b"),
    ),
    Case(
        "gone from an earlier folder",
        {"k.cu": "#include <v.h>\n" + K, "a/v.h": ONE, "b/v.h": TWO},
        {"a/v.h": None},
        ("a", "b"),
    ),
    Case(
        "of include_next",
        {"k.cu": "#include <v.h>\n" + K, "a/v.h": "#include_next <v.h>\n", "b/v.h": ONE},
        {"b/v.h": TWO},
        ("a", "b"),
    ),
    Case(
        "newly between, of include_next",
        {"k.cu": "#include <v.h>\n" + K, "a/v.h": "#include_next <v.h>\n", "c/v.h": ONE, "b": "/"},
        {"b/v.h": TWO},
        ("a", "b", "c"),
    ),
    Case("one level up", {"k.cu": '#include "../v.h"\n' + K, "../v.h": ONE}, {"../v.h": TWO}),
    Case("up and down", {"k.cu": '#include "u/../v.h"\n' + K, "u": "/", **V1}, V2),
    Case(
        "a link that turns", {"k.cu": '#include "v.h"\n' + K, "1.h": ONE, "2.h": TWO, "v.h": "->1.h"}, {"v.h": "->2.h"}
    ),
    Case(
        "a linked folder that turns",
        {"k.cu": '#include "i/v.h"\n' + K, "1/v.h": ONE, "2/v.h": TWO, "i": "->1"},
        {"i": "->2"},
    ),
    Case(
        "a file in an earlier folder that was a folder",
        {"k.cu": "#include <v.h>\n" + K, "a/v.h": "/", "b/v.h": ONE},
        {"a/v.h": TWO},
        ("a", "b"),
    ),
    Case(
        "a folder in the place of the file",
        {"k.cu": "#include <v.h>\n" + K, "a/v.h": ONE, "b/v.h": TWO},
        {"a/v.h": "/"},
        ("a", "b"),
    ),
    Case("of another case", {"k.cu": '#include "V.h"\n' + K, "V.h": ONE, "v.h": "#define V 7\n"}, {"V.h": TWO}),
    Case(
        "two that swap",
        {
            "k.cu": '#include "a.h"\n#include "b.h"\n' + K,
            "a.h": "#undef V\n#define V 2\n",
            "b.h": "#undef V\n#define V 1\n",
        },
        {"a.h": "#undef V\n#define V 1\n", "b.h": "#undef V\n#define V 2\n"},
    ),
    Case("comment before", {"k.cu": '/* x */ #include "v.h"\n' + K, **V1}, V2),
    Case("comment over lines before", {"k.cu": '/* x\n*/ #include "v.h"\n' + K, **V1}, V2),
    Case("comment inside", {"k.cu": '#include /* x */ "v.h"\n' + K, **V1}, V2),
    Case("comment inside the hash", {"k.cu": '# /* x */ include "v.h"\n' + K, **V1}, V2),
    Case("continued", {"k.cu": '#include \\\n"v.h"\n' + K, **V1}, V2),
    Case("continued within the word", {"k.cu": '#inc\\\nlude "v.h"\n' + K, **V1}, V2),
    Case("continued within the name", {"k.cu": '#include "v\\\n.h"\n' + K, **V1}, V2),
    Case("digraph", {"k.cu": '%:include "v.h"\n' + K, **V1}, V2),
    Case("carriage returns", {"k.cu": '#include "v.h"\r\n' + K, **V1}, V2),
    Case("form feed", {"k.cu": '\f#include "v.h"\n' + K, **V1}, V2),
    Case("after a raw string", {"k.cu": '__device__ const char* s = R"x(/*)x";\n#include "v.h"\n' + K, **V1}, V2),
    Case("a name with a quote and a brace", {"k.cu": '#include <v"}.h>\n' + K, 'v"}.h': ONE}, {'v"}.h': TWO}),
    Case("a name that is not ASCII", {"k.cu": '#include "größe.h"\n' + K, "größe.h": ONE}, {"größe.h": TWO}),
    Case("macro", {"k.cu": '#define H "v.h"\n#include H\n' + K, **V1}, V2, kept=False),
    Case("macro of the options", {"k.cu": "#include H\n" + K, **V1}, V2, (), {"defines": {"H": '"v.h"'}}, kept=False),
    Case(
        "macro with arguments",
        {"k.cu": "#define S(x) #x\n#define H(x) S(x.h)\n#include H(v)\n" + K, **V1},
        V2,
        kept=False,
    ),
    Case(
        "macro of a header",
        {"k.cu": '#include "a.h"\n#include H\n' + K, "a.h": "#define H <v.h>\n", **V1},
        V2,
        kept=False,
    ),
    Case("__has_include", {"k.cu": '#if __has_include("v.h")\n' + ASK}, {"v.h": ""}),
    Case("__has_include, gone", {"k.cu": '#if !__has_include("v.h")\n' + ASK, "v.h": ""}, {"v.h": None}),
    Case("__has_include twice", {"k.cu": '#if __has_include("n.h") || __has_include(<v.h>)\n' + ASK}, {"v.h": ""}),
    Case("__has_include in a macro", {"k.cu": '#define H __has_include("v.h")\n#if H\n' + ASK}, {"v.h": ""}),
    Case("__has_include, continued", {"k.cu": '#if __has_\\\ninclude("v.h")\n' + ASK}, {"v.h": ""}),
    Case(
        "__has_include in a header",
        {"k.cu": '#include "a.h"\n' + K, "a.h": '#if __has_include("v.h")\n' + ASK.replace(K, "")},
        {"v.h": ""},
    ),
    Case(
        "__has_include of the options",
        {"k.cu": "#if H\n" + ASK},
        {"v.h": ""},
        (),
        {"defines": {"H": '__has_include("v.h")'}},
    ),
    Case(
        "__has_include asked for",
        {"k.cu": '#ifdef __has_include\n#if __has_include("v.h")\n' + ASK + "#endif\n"},
        {"v.h": ""},
    ),
    Case(
        "__has_include of a macro", {"k.cu": '#define N "v.h"\n#if __has_include(N)\n' + ASK}, {"v.h": ""}, kept=False
    ),
    Case(
        "__has_include by a macro",
        {"k.cu": '#define H(x) __has_include(x)\n#if H("v.h")\n' + ASK},
        {"v.h": ""},
        kept=False,
    ),
    Case(
        "__has_include made by ##",
        {"k.cu": '#define C(a, b) a##b\n#if C(__has_, include)("v.h")\n' + ASK},
        {"v.h": ""},
        kept=False,
    ),
    Case(
        "include_path among the other options",
        {"k.cu": "#include <v.h>\n" + K, "i/v.h": ONE},
        {"i/v.h": TWO},
        (),
        {"extra": {"include_path": "i"}},
    ),
    Case("pre_include", {"k.cu": K, "i/v.h": ONE}, {"i/v.h": TWO}, ("i",), {"extra": {"pre_include": ["v.h"]}}),
    Case("pre_include, newly earlier", {"k.cu": K, "i/v.h": ONE}, V2, ("i",), {"extra": {"pre_include": ["v.h"]}}),
    Case("of the text's folders", {"i/v.h": ONE}, {"i/v.h": TWO}, ("i",), text=True),
    Case(
        "shadows one of CUDA's",
        {"k.cu": "#include <cuda_fp16.h>\n#ifndef V\n#define V 1\n#endif\n" + K},
        {"cuda_fp16.h": TWO},
    ),
    Case(
        "shadows one that CUDA's include",
        {"k.cu": "#include <cuda/std/cstdint>\n#ifndef V\n#define V 1\n#endif\n" + K},
        {"cuda/std/detail/__config": TWO + "#include_next <cuda/std/detail/__config>\n"},
    ),
    Case(
        "that CUDA's ask for",
        {"k.cu": "#include <cuda/std/cstdint>\n#ifndef V\n#define V 1\n#endif\n" + K},
        {"nv/target": TWO + "#include_next <nv/target>\n"},
    ),
    Case(
        "a header by two names, read once",
        {"k.cu": '#include "a.h"\n#include "b.h"\n' + K, "a.h": "->v.h", "b.h": "->v.h", "v.h": "#pragma once\n" + ONE},
        {"v.h": "#pragma once\n" + TWO},
    ),
    Case(
        "a chain of links that turns in the middle",
        {"k.cu": '#include "a.h"\n' + K, "a.h": "->b.h", "b.h": "->c/v.h", "c/v.h": ONE, "d/v.h": TWO},
        {"b.h": "->d/v.h"},
    ),
    Case(
        "newly beside a link",
        {"k.cu": '#include "u/a.h"\n' + K, "u/a.h": "->../w/a.h", "w/a.h": '#include "v.h"\n', **V1},
        {"u/v.h": TWO},
    ),
    Case(
        "newly where a link leads",
        {"k.cu": '#include "u/a.h"\n' + K, "u/a.h": "->../w/a.h", "w/a.h": '#include "v.h"\n', **V1},
        {"w/v.h": TWO},
        gives=(1, 1),
    ),
    Case(
        "of a case that is no longer there",
        {"k.cu": '#include "V.h"\n' + K, "V.h": ONE, "i/V.h": TWO},
        {"V.h": None, "v.h": "#define V 7\n"},
        ("i",),
    ),
    Case(
        "composed letters and decomposed ones",
        {"k.cu": '#include "\u00e9.h"\n' + K, "\u00e9.h": ONE, "e\u0301.h": "#define V 7\n"},
        {"\u00e9.h": TWO},
    ),
    Case("the word alone", {"k.cu": "// borders are included\n" + ONE + K}, {"k.cu": TWO + K + "// include\n"}),
    Case("in a comment", {"k.cu": '// #include "v.h"\n' + ONE + K, **V2}, {"v.h": "#define V 8\n"}, gives=(1, 1)),
    Case(
        "in a raw string", {"k.cu": f'__device__ char s[] = R"(\n#include "v.h"\n)";\n{ONE}{K}', **V2}, V1, gives=(1, 1)
    ),
    Case(
        "in a branch that is skipped",
        {"k.cu": f'#if 0\n#include "v.h"\n#endif\n{ONE}{K}', **V2},
        {"v.h": None},
        gives=(1, 1),
    ),
    Case(
        "of include_next in quotes",
        {"k.cu": '#include "v.h"\n' + K, "v.h": "#include_next <v.h>\n", "b/v.h": ONE},
        {"b/v.h": TWO},
        ("b",),
    ),
    Case(
        "__has_include in an expression",
        {"k.cu": '#if 2 * __has_include("v.h") + defined(X) >= 2\n' + ASK},
        {"v.h": ""},
    ),
    Case("__has_include in an elif", {"k.cu": '#if 0\n#elif __has_include("v.h")\n' + ASK}, {"v.h": ""}),
    Case("__has_include after spaces", {"k.cu": '#if __has_include (  "v.h"  )\n' + ASK}, {"v.h": ""}),
    Case("__has_include in a digraph", {"k.cu": '%:if __has_include("v.h")\n' + ASK}, {"v.h": ""}),
    Case("__has_include of a deep name", {"k.cu": '#if __has_include("d/e/v.h")\n' + ASK}, {"d/e/v.h": ""}),
    Case("__has_include of a folder", {"k.cu": '#if __has_include("v.h")\n' + ASK, "v.h": "/"}, {"v.h": ""}),
    Case(
        "a folder that becomes a file",
        {"k.cu": "#include <d/v.h>\n" + K, "a/d/v.h": ONE, "b/d/v.h": TWO},
        {"a/d": ""},
        ("a", "b"),
    ),
    Case(
        "a file that becomes a folder",
        {"k.cu": "#include <d/v.h>\n" + K, "a/d": "", "b/d/v.h": ONE},
        {"a/d": None, "a/d/v.h": TWO},
        ("a", "b"),
    ),
    Case("two slashes", {"k.cu": '#include "u//v.h"\n' + K, "u/v.h": ONE}, {"u/v.h": TWO}),
    Case("a backslash", {"k.cu": '#include "u\\v.h"\n' + K, "u\\v.h": ONE}, {"u\\v.h": TWO}),
    Case("spaces in the name", {"k.cu": "#include < v.h >\n" + K, " v.h ": ONE}, {" v.h ": TWO}),
    Case("lines that end with carriage returns", {"k.cu": '// one\r#include "v.h"\r' + K, **V1}, V2),
    Case("a comment that is continued", {"k.cu": '// \\\n#include "n.h"\n#include "v.h"\n' + K, **V1}, V2),
    Case("a comment's beginning that is continued", {"k.cu": '/\\\n* x */ #include "v.h"\n' + K, **V1}, V2),
    Case(
        "after bytes that are no UTF-8",
        {"k.cu": '#include "a.h"\n' + K, "a.h": '// \udcff\n#include "v.h"\n', **V1},
        V2,
    ),
    Case(
        "among a macro's arguments",
        {"k.cu": '#define F(x) x\nconst int V = F(\n#include "v.h"\n);\n' + K, "v.h": "1"},
        {"v.h": "2"},
    ),
    Case(
        "another line of the same",
        {"k.cu": '#include "v.h"\n' + K, "v.h": "const int V = __LINE__;\n"},
        {"v.h": "\nconst int V = __LINE__;\n"},
    ),
]


def put(root: Path, given: dict[str, str | None]) -> None:
    for name, text in given.items():
        path = root / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        if text is None:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if text == "/":
            path.mkdir()
        elif text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_bytes(text.encode(errors="surrogateescape"))


class Project:
    """A source under a folder, with a cache of its own; each run is a new process's as far as the cache can tell."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.root, self.case, self.folder = folder / "project", case, folder / "cache"
        self.root.mkdir()

    def request(self) -> nvrtc.Request:
        options: dict[str, Any] = {"include_paths": [self.root / path for path in self.case.paths], **self.case.options}
        if "include_path" in options.get("extra", {}):
            options["extra"] = {"include_path": [str(self.root / options["extra"]["include_path"])]}
        given = ck.CompileOptions(**options)
        text = '#include "v.h"\n' + K
        kernel = (
            ck.Kernel(text, options=given) if self.case.text else ck.Kernel.from_file(self.root / "k.cu", options=given)
        )
        return nvrtc.Request(kernel.specialization(arch="sm_90", target="ptx"))

    def run(self, cache: Cache | None = None) -> tuple[int, nvrtc.Request, bool]:
        """What the kernel stores, its request, and whether it was compiled."""
        cache = cache or Cache(self.folder, 1 << 30)
        request = self.request()
        compiled = cache.get(request, request.compile)
        return stored(compiled), request, cache.info().misses > 0


def stored(compiled: Compiled) -> int:
    (line,) = (line for line in compiled.code.decode().splitlines() if "st.global" in line)
    value = line.split(",")[-1].strip(" ;\t")
    if value.startswith("%"):
        (line,) = (line for line in compiled.code.decode().splitlines() if "mov" in line and f"{value}," in line)
        value = line.split(",")[-1].strip(" ;\t")
    return int(value)


@pytest.mark.parametrize("case", thinned(CASES, 2), ids=lambda case: case.name)
def test_a_change_is_seen_and_what_is_the_same_is_not_compiled_again(case: Case, tmp_path: Path) -> None:
    """Of a process that was there before the change, which compiled, and of new ones that share its folder."""
    project = Project(tmp_path, case)
    put(project.root, case.before)
    lasting = Cache(project.folder, 1 << 30)
    first, request, _ = project.run(lasting)
    assert first == case.gives[0]
    again, _, compiled = project.run()
    assert again == case.gives[0]
    assert compiled is not case.kept
    if case.kept:
        assert request.unstorable is None
    else:
        assert "macro" in (request.unstorable or "")
    put(project.root, case.after)
    assert project.run()[0] == case.gives[1]
    assert project.run(lasting)[0] == case.gives[1]
    if case.kept:
        assert not project.run()[2]


QUOTED = Case("quoted", {"k.cu": '#include "v.h"\n' + K, **V1}, V2)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path, QUOTED)
    put(made.root, QUOTED.before)
    return made


def test_what_is_as_it_was_is_a_hit_again(project: Project) -> None:
    project.run()
    put(project.root, V2)
    assert project.run()[0] == 2
    put(project.root, V1)
    assert project.run()[0::2] == (1, False)


def test_size_and_time_say_nothing(project: Project) -> None:
    path = project.root / "v.h"
    before = path.stat()
    project.run()
    put(project.root, V2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert project.run()[0] == 2


def test_a_time_alone_changes_nothing(project: Project) -> None:
    project.run()
    os.utime(project.root / "v.h", (1000, 1000))
    assert project.run()[0::2] == (1, False)


def test_a_header_that_was_gone_for_a_while(project: Project) -> None:
    project.run()
    put(project.root, {"v.h": None})
    with pytest.raises(ck.CompileError, match=r"v\.h"):
        project.run()
    put(project.root, V2)
    assert project.run()[0] == 2


@pytest.mark.parametrize("lambdas", [False, True])
@pytest.mark.parametrize("line", ['#include "v.h"', '#if __has_include("w.h")\n2\n#else\n1\n#endif'])
def test_what_the_text_of_a_function_object_includes(project: Project, line: str, lambdas: bool) -> None:
    body = f"{{ return \n{line}\n; }}"
    given = f"[]() {body}" if lambdas else f"struct F {{ __device__ int operator()() const {body} }};"
    put(project.root, {"k.cu": "template <typename F> __global__ void k(int* y) { *y = F()(); }", "v.h": "1"})
    for value in (1, 2):
        put(project.root, {"v.h": str(value), **({"w.h": ""} if value == 2 else {})})
        kernel = ck.Kernel.from_file(project.root / "k.cu")[given]
        request = nvrtc.Request(kernel.specialization(arch="sm_90", target="ptx"))
        assert stored(Cache(project.folder, 1 << 30).get(request, request.compile)) == value


@pytest.mark.parametrize("name", ["__DATE__", "__TIME__"])
@pytest.mark.parametrize("header", [False, True])
def test_the_time_of_the_compile_is_not_kept(project: Project, name: str, header: bool) -> None:
    line = f"const int V = {name}[0] - {name}[0] + 1;\n"
    put(project.root, {"k.cu": '#include "v.h"\n' + K, "v.h": line} if header else {"k.cu": line + K})
    for _ in range(2):
        value, request, compiled = project.run()
        assert (value, compiled) == (1, True)
        assert "time" in (request.unstorable or "")


def test_headers_of_an_installed_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    for function in (headers.toolkit_folders, headers.search_folders, headers.in_toolkit):
        function.cache_clear()
        monkeypatch.setattr(headers, function.__name__, function.__wrapped__)
    project = Project(tmp_path, Case("", {"k.cu": "#include <v.h>\n" + K}, {}))
    put(project.root, project.case.before)
    put(tmp_path / "home/include", V1)
    assert project.run()[0::2] == (1, True)
    assert project.run()[0::2] == (1, False)
    put(tmp_path / "home/include", V2)
    assert project.run()[0] == 2


def test_the_working_directory_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "here", V2)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ck.CompileError, match="include_paths") as caught:
        ck.Kernel('#include "v.h"\n' + K).compile(arch="sm_90")
    assert os.devnull not in str(caught.value)
    project = Project(tmp_path, Case("", V1, {}, (".",), text=True))
    put(project.root, V1)
    assert project.run()[0] == 1


def test_folders_are_of_the_working_directory_at_the_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ck.CompileOptions(include_paths=["i"])
    cache = Cache(tmp_path / "cache", 1 << 30)
    for number, files in enumerate((V1, V2), start=1):
        put(tmp_path / str(number) / "i", files)
        monkeypatch.chdir(tmp_path / str(number))
        kernel = ck.Kernel("#include <v.h>\n" + K, options=options)
        request = nvrtc.Request(kernel.specialization(arch="sm_90", target="ptx"))
        assert stored(cache.get(request, request.compile)) == number


# ── changed while it is compiled ────────────────────────────────────────────────────────────────────────────────────


def changing(request: nvrtc.Request, change: Callable[[], None], when: str) -> Iterator[None]:
    """Make `request` compile with a change between what is looked at before, and NVRTC, or what is looked at after."""
    make = request._compile

    def compile(*arguments: Any) -> Compiled:
        if when == "before":
            change()
        made = make(*arguments)
        if when == "after":
            change()
        return made

    request._compile = compile  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"k.cu": '#include "v.h"\n' + K, **V1}, V2),
        ({"k.cu": '#include "v.h"\n' + K, "1.h": ONE, "2.h": TWO, "v.h": "->1.h"}, {"v.h": "->2.h"}),
        ({"k.cu": '#include "i/v.h"\n' + K, "1/v.h": ONE, "2/v.h": TWO, "i": "->1"}, {"i": "->2"}),
        ({"k.cu": '#if __has_include("v.h")\n' + ASK}, {"v.h": ""}),
        ({"k.cu": '#if !__has_include("v.h")\n' + ASK, "v.h": ""}, {"v.h": None}),
    ],
)
def test_a_change_during_the_compile_is_never_kept(
    tmp_path: Path, first: dict[str, str | None], second: dict[str, str | None], when: str, known: bool
) -> None:
    project = Project(tmp_path, QUOTED)
    put(project.root, first)
    if known:
        project.run()
        Cache(project.folder, 1 << 30).clear("*")
    request = project.request()
    for _ in changing(request, lambda: put(project.root, second), when):
        Cache(project.folder, 1 << 30).get(request, request.compile)
    assert request.unstorable is not None
    assert project.run()[0] == 2
    put(project.root, {name: text for name, text in first.items() if name in second} or {"v.h": None})
    assert project.run()[0] == 1


def test_a_folder_that_is_swapped_during_the_compile(tmp_path: Path) -> None:
    project = Project(tmp_path, Case("", {}, {}, ("i",)))
    put(project.root, {"k.cu": "#include <v.h>\n" + K, "1/v.h": ONE, "2/v.h": TWO, "i": "->1"})
    request = project.request()
    for _ in changing(request, lambda: put(project.root, {"i": "->2"}), "after"):
        Cache(project.folder, 1 << 30).get(request, request.compile)
    assert "replaced" in (request.unstorable or "")
    assert project.run()[0] == 2


def test_a_header_saved_just_now_is_kept_where_it_is_known(project: Project) -> None:
    project.run()
    for value in range(3, 6):
        (project.root / "v.h").write_text(f"#define V {value}\n")
        assert project.run()[0] == value
        assert project.run()[0::2] == (value, False)


# ── precompiled headers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_precompiled_headers_are_not_stale(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 1 << 30)
    body = "\n".join(f"template <typename T> __device__ T f{i}(T x) {{ return x + {i}; }}" for i in range(200))
    kernel_text = "template <typename T> __global__ void k(T* y) { *y = V; }\n"
    put(tmp_path, {"k.cu": '#include "v.h"\n#include "w.h"\n' + kernel_text, "w.h": body})
    made = []
    for value, dtypes in ((1, "bhil"), (2, "BHIL"), (1, "bBhH"), (2, "iIlL")):
        put(tmp_path, {"v.h": f"#define V {value}\n"})
        for dtype in dtypes:
            kernel = ck.Kernel.from_file(tmp_path / "k.cu", options=ck.CompileOptions(pch=True))[np.dtype(dtype)]
            request = nvrtc.Request(kernel.specialization(arch="sm_90", target="ptx"))
            compiled = cache.get(request, request.compile)
            assert stored(compiled) == value, (dtype, value)
            made.append(request)
    assert all(request.unstorable is None for request in made)
    assert all(any(path.endswith("v.h") for path, _ in request.closure.files) for request in made if request.closure)


# ── the key ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_key_holds_the_text_and_the_flags_as_they_are_passed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(**changes: Any) -> str:
        request = nvrtc.Request(project.request().specialization._replace(**changes))
        return request.key

    texts = ({"checks": "// one more"}, {"postlude": ("// another",)}, {"prelude": ("// another",)})
    unknown = {"parameters": None, "kernels": ()}
    keys = {key(), key(**unknown), key(symbols=("a",)), *(key(**text) for text in texts)}
    for where, name, value in (
        (nvrtc, "_UNROLL", ("_CCCL_META_UNROLL_LIMIT", "11")),
        (nvrtc, "TYPES_PROBE", "another_probe"),
        (headers, "core_version", lambda: "cuda_core-99"),
        (headers, "search_folders", lambda: ("/elsewhere",)),
    ):
        monkeypatch.setattr(where, name, value)
        keys |= {key(), key(**unknown)}
        monkeypatch.undo()
    assert len(keys) == 6 + 8 - 1  # the probe's name stands in the text only where there is a probe
    assert key() in keys


# ── small parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_closure_goes_through_json_and_refuses_what_is_none() -> None:
    closure = Closure((("/a", "12"),), (("/b", "file"), ("/c", "")))
    assert Closure.from_json(closure.to_json()) == closure
    for text in ("", "[]", "[1, 2]", '[["a"], []]', "{}"):
        with pytest.raises((ValueError, TypeError)):
            Closure.from_json(text)


LISTED = r"""
import json, re, sys
from cuda.bindings import nvrtc
text, folders, path = sys.argv[1].encode(), sys.argv[2:-1], sys.argv[-1]
_, program = nvrtc.nvrtcCreateProgram(text, b"k.cu", 0, None, None)
flags = ["-std=c++17", "-arch=compute_90", f"--fdevice-time-trace={path}", *(f"-I{folder}" for folder in folders)]
assert int(nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])[0]) == 0
header = r'"detail":("(?:[^"\\]|\\.)*").,"dur":\d+,"name":"Processing Header File"'
print(json.dumps([json.loads(name) for name in re.findall(header, open(path + ".json").read())]))
"""


@pytest.mark.parametrize(
    "included",
    [
        "cuda_fp16.h",
        *slow("cub/block/block_reduce.cuh", "cuda/std/complex", "cooperative_groups.h", "curand_kernel.h"),
        "cudakit/strided.cuh",
        "cstdint",
        "cmath",
    ],
)
def test_nothing_that_the_compiler_reads_is_missed(tmp_path: Path, included: str) -> None:
    """NVRTC's own list, of a process that compiles once, judges ours."""
    text = f"#include <{included}>\n__global__ void k() {{}}\n"
    folders = headers.search_folders()
    done = subprocess.run(
        [sys.executable, "-c", LISTED, text, *folders, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    read = set(json.loads(done.stdout)) - {"__nv_nvrtc_builtin_header.h"}
    if not read:
        pytest.skip("this NVRTC does not say what it reads")
    cudas = {path for path in read if headers.is_cuda_header(path)}
    # What CUDA's headers include of a folder that is not CUDA's is watched with the folder.
    watched = {
        path for path in read for folder in folders if path.removeprefix(f"{folder}/") in headers.cuda_header_names()
    }
    assert read - cudas <= {*watched, *all_included(text.encode(), folders)}
    within = {path.removeprefix(f"{folder}/") for path in cudas for folder in folders if path.startswith(f"{folder}/")}
    assert {name.split("/")[0] for name in within} <= headers.cuda_header_names()


def test_what_cudas_headers_ask_for_is_known() -> None:
    asked = re.compile(rb"__has_include\s*\(\s*<([^>/\n]+)")
    found: set[str] = set()
    for folder in filter(headers.in_wheel, (f"{folder}/" for folder in headers.toolkit_folders())):
        for path in Path(folder).rglob("*"):
            if path.is_file():
                found |= {name.decode() for name in asked.findall(path.read_bytes())}
    assert found <= headers.cuda_header_names()
