"""C++ types from text, as users write template arguments and compilers demangle them."""

from __future__ import annotations

import pytest

from cudakit.types.cpp import CppType, Named, Opaque, Pointer, Reference, Value, parse_type, split_arguments

pytestmark = pytest.mark.emulator

FLOAT = Named("float")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("float", FLOAT),
        ("unsigned", Named("unsigned int")),
        ("long unsigned int", Named("unsigned long")),
        ("const float*", Pointer(Named("float", const=True))),
        ("float const *", Pointer(Named("float", const=True))),
        ("float * const", Pointer(FLOAT, const=True)),
        ("float* __restrict__", Pointer(FLOAT, restrict=True)),
        ("float *__restrict", Pointer(FLOAT, restrict=True)),
        ("const float* const __restrict__", Pointer(Named("float", const=True), const=True, restrict=True)),
        ("float**", Pointer(Pointer(FLOAT))),
        ("float const* const*", Pointer(Pointer(Named("float", const=True), const=True))),
        ("volatile int*", Pointer(Named("int"))),
        ("int volatile", Named("int")),
        ("int&", Reference(Named("int"))),
        ("T&&", Reference(Named("T"), rvalue=True)),
        ("struct Point", Named("Point")),
        ("::Point", Named("Point")),
        ("my :: Point", Named("my::Point")),
        ("cuda::std::complex<float>", Named("cuda::std::complex", (FLOAT,))),
        ("strided<const T, 2>", Named("strided", (Named("T", const=True), Value("2")))),
        ("array<T, sizeof(T) / 2>", Named("array", (Named("T"), Value("sizeof ( T ) / 2")))),
        ("f<true, -1, 'a', (N)>", Named("f", (Value("true"), Value("-1"), Value("'a'"), Value("( N )")))),
        ("pair<pair<A, B>, int(*)(int, int)>", Named("pair", (Named("pair", (Named("A"), Named("B"))),
            Opaque("int ( * ) ( int , int )")))),
        ("box<>", Named("box", ())),
        ("const box<int>*", Pointer(Named("box", (Named("int"),), const=True))),
        ("typename Traits<T>::type", Opaque("typename Traits<T>::type")),
        ("typename T::type", Opaque("typename T::type")),
        ("typename T", Opaque("typename T")),
        ("Traits<T>::type", Opaque("Traits<T>::type")),
        ("float[4]", Opaque("float[4]")),
        ("float  (*)[16]", Opaque("float (*)[16]")),
        ("decltype(auto)", Opaque("decltype(auto)")),
        ("box<int", Opaque("box<int")),
        ("const", Opaque("const")),
        ("", Opaque("")),
    ],
)  # fmt: skip
def test_types(text: str, wanted: CppType) -> None:
    assert parse_type(text) == wanted


@pytest.mark.parametrize("text", ["const float*", "float* const __restrict__", "a::b<int, 2>", "T&&", "unsigned long"])
def test_what_is_written_is_read_again(text: str) -> None:
    assert str(parse_type(text)) == text
    assert parse_type(str(parse_type(text))) == parse_type(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("int", ["int"]),
        ("int, float *", ["int", "float *"]),
        ("pair<a, b>, f(int, int), x[1, 2], {3, 4}", ["pair<a, b>", "f(int, int)", "x[1, 2]", "{3, 4}"]),
        ("a,", ["a", ""]),
        ("a,,b", ["a", "", "b"]),
        ("map<int, set<a, b>>, c", ["map<int, set<a, b>>", "c"]),
        ("N < 3, f<(1 > 0), 2>", ["N < 3", "f<(1 > 0), 2>"]),
    ],
)
def test_arguments_are_split_at_the_outermost_commas(text: str, wanted: list[str]) -> None:
    assert split_arguments(text) == wanted
