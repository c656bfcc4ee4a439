"""Signature stage: every shape of kernel head, symbol, class, enumeration and alias that real sources have."""

import random
import subprocess
import sys
import time

import pytest

from cudakit.errors import TemplateError
from cudakit.jit.signature.grammar import Grammar
from cudakit.jit.signature.reader import parse
from cudakit.jit.signature.signature import (
    Declarations,
    Enumeration,
    Parameter,
    Signature,
    Symbol,
    TemplateParameter,
    select,
)
from cudakit.types.cpp import Named, Opaque, Pointer, Reference, Value

INT, FLOAT, T = Named("int"), Named("float"), Named("T")


def only(text: str) -> Signature:
    (kernel,) = parse(text).kernels
    return kernel


def kernel_with(parameters: str, template: str = "template <typename T, int N> ") -> Signature:
    return only(f"{template}__global__ void scale({parameters}) {{ }}")


def types(parameters: str, template: str = "template <typename T, int N> ") -> list[object]:
    kernel = kernel_with(parameters, template)
    assert kernel.parameters is not None
    return [parameter.type for parameter in kernel.parameters]


def names(kernel: Signature) -> list[str]:
    assert kernel.parameters is not None
    return [parameter.name for parameter in kernel.parameters]


# --- parameter types ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float x", FLOAT),
        ("const float x", Named("float", const=True)),
        ("float const x", Named("float", const=True)),
        ("unsigned n", Named("unsigned int")),
        ("unsigned long long int n", Named("unsigned long long")),
        ("long unsigned n", Named("unsigned long")),
        ("signed char c", Named("signed char")),
        ("size_t n", Named("size_t")),
        ("std::uint8_t n", Named("std::uint8_t")),
        ("::ns::Size n", Named("ns::Size")),
        ("struct Body b", Named("Body")),
        ("enum Mode m", Named("Mode")),
        ("T* x", Pointer(T)),
        ("const T* __restrict__ x", Pointer(Named("T", const=True), restrict=True)),
        ("T const *x", Pointer(Named("T", const=True))),
        ("const float* const __restrict__ x", Pointer(Named("float", const=True), const=True, restrict=True)),
        ("const float* __restrict__ const x", Pointer(Named("float", const=True), const=True, restrict=True)),
        ("float** x", Pointer(Pointer(FLOAT))),
        ("volatile int* x", Pointer(INT)),
        ("float x[4]", Pointer(FLOAT)),
        ("float x[]", Pointer(FLOAT)),
        ("float x[3][4]", Pointer(Opaque("float[4]"))),
        ("float (*x)[4]", Pointer(Opaque("float[4]"))),
        ("float* x[4]", Pointer(Pointer(FLOAT))),
        ("T& x", Reference(T)),
        ("const T& x", Reference(Named("T", const=True))),
        ("T&& x", Reference(T, rvalue=True)),
        ("float (&x)[3]", Reference(Opaque("float[3]"))),
        ("float f(float)", Opaque("float(float)")),
        ("float (*f)(float, int)", Opaque("float (*)(float, int)")),
        ("typename Traits<T>::type x", Opaque("typename Traits<T>::type")),
        ("const typename Traits< T > :: type x", Opaque("typename Traits<T>::type", const=True)),
        ("typename T::value_type* x", Pointer(Opaque("typename T::value_type"))),
        ("T::value_type x", Opaque("T::value_type")),
        ("Traits<T>::type x", Opaque("Traits<T>::type")),
        ("decltype(T() + 1) x", Opaque("decltype(T() + 1)")),
        ("ns::View<T, 3> x", Named("ns::View", (T, Value("3")))),
        ("View<const T*, N, N + 1> x", Named("View", (Pointer(Named("T", const=True)), Value("N"), Value("N + 1")))),
        ("View<View<T>> x", Named("View", (Named("View", (T,)),))),
        ("View<sizeof(T), (N > 2), true> x", Named("View", (Value("sizeof(T)"), Value("(N > 2)"), Value("true")))),
        ("__grid_constant__ const Body b", Named("Body", const=True)),
        ("const __grid_constant__ Body b", Named("Body", const=True)),
        ("[[maybe_unused]] int n", INT),
        ("__attribute__((aligned(8))) int n", INT),
        ("int n = 3", INT),
        ("Op op = {}", Named("Op")),
        ("Op op = Op(1, 2)", Named("Op")),
    ],
)
def test_parameter_type(text: str, expected: object) -> None:
    assert types(text) == [expected]
    # It must stand among others as well, where a comma could be taken for its own.
    assert types(f"int before, {text}, int* behind") == [INT, expected, Pointer(INT)]


def test_parameter_names_and_packs() -> None:
    kernel = kernel_with("int, float* /*out*/, Ts... args, const Ts*... rest", "template <typename... Ts> ")
    assert kernel.parameters == (
        Parameter("", INT),
        Parameter("", Pointer(FLOAT)),
        Parameter("args", Named("Ts"), pack=True),
        Parameter("rest", Pointer(Named("Ts", const=True)), pack=True),
    )


@pytest.mark.parametrize("empty", ["", "void", " /* nothing */ "])
def test_no_parameters(empty: str) -> None:
    assert kernel_with(empty, "").parameters == ()


def test_constants_of_the_text_are_values_among_template_arguments() -> None:
    text = """
    #define SIDE 8
    constexpr int DEPTH = 2;
    namespace ns { enum class Order { ROW, COLUMN }; }
    enum Kind { PLAIN };
    __global__ void pool(Tile<SIDE, DEPTH, ns::Order::ROW, PLAIN, Elsewhere> t) {}
    """
    (tile,) = only(text).parameters or ()
    arguments = (Value("SIDE"), Value("DEPTH"), Value("ns::Order::ROW"), Value("PLAIN"), Named("Elsewhere"))
    assert tile.type == Named("Tile", arguments)


def test_a_template_parameter_hides_a_constant_of_its_name() -> None:
    text = "constexpr int T = 3;\ntemplate <typename T> __global__ void fill(View<T> x) {}"
    assert (only(text).parameters or ())[0].type == Named("View", (T,))


# --- template parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("typename T", TemplateParameter("T", "type")),
        ("class T", TemplateParameter("T", "type")),
        ("typename T = float", TemplateParameter("T", "type", default="float")),
        ("typename", TemplateParameter("", "type")),
        ("typename = int", TemplateParameter("", "type", default="int")),
        (
            "typename A = typename Traits<int>::type",
            TemplateParameter("A", "type", default="typename Traits<int>::type"),
        ),
        ("typename... Ts", TemplateParameter("Ts", "type", pack=True)),
        ("int N", TemplateParameter("N", "value", INT)),
        ("int N = 4 * 2", TemplateParameter("N", "value", INT, "4 * 2")),
        ("unsigned N", TemplateParameter("N", "value", Named("unsigned int"))),
        ("bool B = (sizeof(int) > 2)", TemplateParameter("B", "value", Named("bool"), "(sizeof(int) > 2)")),
        ("ns::Mode M = ns::Mode::FAST", TemplateParameter("M", "value", Named("ns::Mode"), "ns::Mode::FAST")),
        ("int... Ns", TemplateParameter("Ns", "value", INT, pack=True)),
        ("auto V", TemplateParameter("V", "value", Opaque("auto"))),
        ("const int* P", TemplateParameter("P", "value", Pointer(Named("int", const=True)))),
        ("float (*F)(float)", TemplateParameter("F", "value", Opaque("float (*)(float)"))),
        (
            "std::enable_if_t<(K > 2), int> = 0",
            TemplateParameter("", "value", Named("std::enable_if_t", (Value("(K > 2)"), INT)), "0"),
        ),
        ("template <typename> class C", TemplateParameter("C", "template")),
        ("template <typename, int> typename C = Box", TemplateParameter("C", "template", default="Box")),
        ("template <typename> class... Cs", TemplateParameter("Cs", "template", pack=True)),
        ("std::integral I", TemplateParameter("I", "type")),
        ("cuda::std::floating_point F = float", TemplateParameter("F", "type", default="float")),
    ],
)
def test_template_parameter(text: str, expected: TemplateParameter) -> None:
    assert kernel_with("int n", f"template <{text}> ").template_parameters == (expected,)
    both = kernel_with("int n", f"template <typename First, {text}> ").template_parameters
    assert both == (TemplateParameter("First", "type"), expected)


def test_concepts_of_the_text_and_of_a_header_make_types() -> None:
    text = "template <class X> concept Small = sizeof(X) < 4;\ntemplate <Small S, Unknown U> __global__ void f(U* u) {}"
    assert [parameter.category for parameter in only(text).template_parameters] == ["type", "type"]


def test_requires_clause_is_skipped() -> None:
    for clause in ("requires (sizeof(T) == 4)", "requires Small<T>", "requires requires (T t) { t.x; }"):
        kernel = only(f"template <typename T> {clause} __global__ void f(T* x) {{}}")
        assert (kernel.name, kernel.parameters) == ("f", (Parameter("x", Pointer(T)),))
        assert kernel.is_template


def test_is_template() -> None:
    assert kernel_with("int n").is_template
    assert not kernel_with("int n", "").is_template


# --- untidy heads -------------------------------------------------------------------------------------------------

HEADS = [
    "static __global__ void {}",
    "inline __global__ void {}",
    "__global__ static void {}",
    "__global__ __forceinline__ void {}",
    "void __global__ {}",
    'extern "C" __global__ void {}',
    '__global__ extern "C" void {}',
    "__global__ auto {} -> void",
    "__global__ void __launch_bounds__(256) {}",
    "__global__ void __launch_bounds__((N + 1) * max(2, 3), 4) {}",
    "__launch_bounds__(256) __global__ void {}",
    "__global__ __launch_bounds__(A* B) void {}",
    "__global__ void {} __launch_bounds__(128)",
    "__global__ __cluster_dims__(2, 1, 1) void {}",
    "__global__ void __cluster_dims__((2), f(1), 1) {}",
    "__global__ void __block_size__((32, 1, 1), (2, 1, 1)) {}",
    "__global__ void __maxnreg__(64) {}",
    "__attribute__((used)) __global__ void {}",
    '__global__ __attribute__((visibility("hidden"))) void {}',
    '[[deprecated("no [[x]]")]] __global__ void {}',
    "__global__ void {} noexcept(true)",
    "__global__ void {} MY_ATTRIBUTE(3)",
    "__global__ typename Void<T>::type {}",
    "__global__ MY_BOUNDS(256) void {}",
    "__global__ MY_BOUNDS(256, (2)) MY_VISIBLE void {}",
    "__global__ void MY_BOUNDS(256) {}",
    "__global__ void my_bounds(256) MY_HIDDEN {}",
    "__global__ void MY_HIDDEN {}",
    "MY_INLINE __global__ void {}",
    "MY_API(3) __global__ void {}",
    "MY_NAMESPACE_BEGIN __global__ void {}",
    "__global__ void\n#if WIDE\n__launch_bounds__(512)\n#endif\n{}",
    "#ifdef PLAIN\nstatic\n#else\ninline\n#endif\n__global__ void {}",
]


@pytest.mark.parametrize("head", HEADS)
def test_attributes_around_the_name(head: str) -> None:
    text = head.replace("{}", "tidy(float* x, int n)") + " { if (x) { n = 1; } }\n"
    expected = (Parameter("x", Pointer(FLOAT)), Parameter("n", INT))
    alone = only(text)
    assert (alone.name, alone.parameters, alone.template_parameters) == ("tidy", expected, ())
    between = parse(f"__global__ void first(int n) {{ }}\n{text}\n__global__ void last(int n) {{ }}").kernels
    assert [kernel.name for kernel in between] == ["first", "tidy", "last"]
    assert between[1].parameters == expected


@pytest.mark.parametrize("head", [head for head in HEADS if "MY_API" not in head and "#" not in head])
def test_attributes_behind_a_template_list(head: str) -> None:
    text = "template <typename T, int N = 2>\n" + head.replace("{}", "tidy(T* x)") + " { }"
    kernel = only(text)
    assert (kernel.name, kernel.parameters) == ("tidy", (Parameter("x", Pointer(T)),))
    assert [parameter.name for parameter in kernel.template_parameters] == ["T", "N"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float* RESTRICT x", Pointer(FLOAT, restrict=True)),
        ("const float* MY_RESTRICT x", Pointer(Named("float", const=True), restrict=True)),
        ("float* const MY_RESTRICT x", Pointer(FLOAT, const=True, restrict=True)),
        ("float* MY_UNUSED x", Pointer(FLOAT)),
        ("MY_GRID_CONSTANT const Body x", Named("Body", const=True)),
        ("const _MY_GRID_CONSTANT Body x", Named("Body", const=True)),
        ("MY_ALIGN(16) const Body x", Named("Body", const=True)),
        ("MY_GRID_CONSTANT const ns::Box<T, 3> x", Named("ns::Box", (T, Value("3")), const=True)),
    ],
)
def test_macros_among_the_parameters(text: str, expected: object) -> None:
    assert types(f"int n, {text}") == [INT, expected]
    assert names(kernel_with(f"{text} = nullptr, int n")) == ["x", "n"]


def test_comparison_in_a_template_default_does_not_end_the_list() -> None:
    kernel = kernel_with("T* x", "template <typename T, bool B = (sizeof(T) > 4), int N = (1 << 3)> ")
    assert [parameter.default for parameter in kernel.template_parameters] == [None, "(sizeof(T) > 4)", "(1 << 3)"]


def test_an_object_like_macro_with_global_is_expanded() -> None:
    text = '#define KERNEL extern "C" \\\n  __global__ void\n\nKERNEL run(int n) { }\n'
    assert only(text) == Signature("run", (), (Parameter("n", INT),), 4)


def test_function_like_macros_make_no_kernels() -> None:
    text = "#define MAKE(T) \\\n  __global__ void make_##T(T* x) { }\nMAKE(float)\n__global__ void real(int n) {}\n"
    assert only(text).name == "real"


def test_comments_and_strings_are_no_kernels() -> None:
    text = r"""
    // __global__ void one() {} \
       __global__ void two() {}
    /* __global__ void three() { */
    const char* help = "__global__ void four() { \" ";
    const char* raw = R"x(__global__ void five() { )" } )x";
    const char quote = '"', brace = '{';
    const int big = 1'000; const char open = '{';
    __global__ void real(int n /* a ) comment */, int m // and , one
                         ) {}
    """
    assert names(only(text)) == ["n", "m"]


def test_a_kernel_inside_a_class_or_function_is_none() -> None:
    text = (
        "struct S { friend __global__ void hidden(int n); };\nvoid host() { /**/ extern __global__ void inner(int); }"
    )
    assert parse(text).kernels == ()


def test_bodies_do_not_matter() -> None:
    text = """
    Box::Box(int n) : size{n}, half(n / 2) { run(); }
    auto twice = [](int n) { return 2 * n; };
    __device__ float table(int i) { static const float values[] = {1, 2}; return values[i]; }
    __global__ void real(int n) { x <<<1, 2>>> (@ nonsense # here }
    template <typename T = Box> struct Pair { T first{}, second = {}; };
    bool operator==(const Box& a, const Box& b) { return true; }
    """
    assert only(text).name == "real"


# --- preprocessor -------------------------------------------------------------------------------------------------


def test_a_branch_in_the_parameter_list_is_not_guessed() -> None:
    text = "template <typename T>\n__global__ void f(T* x,\n#if WIDE\n  long n\n#else\n  int n\n#endif\n) {}"
    assert only(text) == Signature("f", (TemplateParameter("T", "type"),), None, 2)
    assert only("__global__ void f(int a\n#ifdef EXTRA\n, int b\n#endif\n) {}").parameters is None


def test_branches_that_agree_are_no_question() -> None:
    text = "__global__ void\n#if A\n__launch_bounds__(32) f(\n#else\nf(\n#endif\nint n) {}"
    assert only(text) == Signature("f", (), (Parameter("n", INT),), 3)
    text = "#if A\n__global__ void f(int n)\n#else\nstatic __global__ void f(int n)\n#endif\n{}"
    assert only(text).parameters == (Parameter("n", INT),)


def test_heads_that_share_one_body_are_not_guessed() -> None:
    text = "#if A\n__global__ void f(int a) {\n#else\n__global__ void f(float b) {\n#endif\n}"
    assert only(text).parameters is None


def test_definitions_of_which_one_is_compiled_are_one_kernel() -> None:
    same = "#if A\n__global__ void f(int n) { n; }\n#else\n__global__ void f(int m) { }\n#endif"
    assert only(same).parameters == (Parameter("n", INT),)
    unlike = "#if A\n__global__ void f(int n) { n; }\n#else\n__global__ void f(float n) { }\n#endif"
    assert only(unlike).parameters is None


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("#if 0", "second"),
        ("#if 1", "first"),
        ("#ifdef __CUDACC_RTC__", "first"),
        ("#ifndef __CUDACC_RTC__", "second"),
        ("#if defined(__CUDA_ARCH__)", "first"),
        ("#if !defined(__CUDACC__)", "second"),
        ("#  if 0 // first\n#elif 0\n__global__ void third() {}", "second"),
    ],
)
def test_what_nvrtc_decides_is_decided(condition: str, kept: str) -> None:
    text = f"{condition}\n__global__ void first(int n) {{}}\n#else\n__global__ void second(int n) {{}}\n#endif"
    kernels = parse(text).kernels
    if condition.startswith("#  if 0"):
        text = text.replace("__global__ void first(int n) {}\n", "")
        kernels = parse(text).kernels
    assert [kernel.name for kernel in kernels] == [kept]


def test_unbalanced_branches_do_not_swallow_the_rest() -> None:
    text = """
    #ifdef DEEP
    namespace deep {
    #endif
    __global__ void first(int n) {
    #if A
        if (n) {
    #else
        while (n) {
    #endif
        }
    }
    #ifdef DEEP
    }
    #endif
    __global__ void second(int n) {}
    """
    assert [kernel.name.split("::")[-1] for kernel in parse(text).kernels] == ["first", "second"]


# --- names, lines, namespaces, repetitions ------------------------------------------------------------------------


def test_names_are_qualified_and_lines_counted() -> None:
    text = """namespace outer {
namespace { namespace inner
{
__global__ void
  deep(int n) { }
} }
inline namespace v1 { __global__ void flat(int n) {} }
}
namespace a::b { __global__ void joined(int n) {} }
namespace a { using namespace outer; namespace c = outer; }
extern "C" { __global__ void plain(int n) {} }
#define SPACE renamed
namespace SPACE { __global__ void macro(int n) {} }
__global__ void a::b::outside(int n) {}
"""
    found = {kernel.name: kernel.line for kernel in parse(text).kernels}
    assert found == {
        "outer::inner::deep": 5,
        "outer::flat": 7,
        "a::b::joined": 9,
        "plain": 11,
        "renamed::macro": 13,
        "a::b::outside": 14,
    }


def test_instantiations_and_specialisations_are_no_kernels() -> None:
    text = """
    template <typename T> __global__ void f(T* x) {}
    template <> __global__ void f<int>(int* x) {}
    template <> __global__ void f(long* x) {}
    template __global__ void f<float>(float* x);
    template __global__ void f(double* x);
    extern template __global__ void f<char>(char* x);
    """
    assert only(text) == Signature("f", (TemplateParameter("T", "type"),), (Parameter("x", Pointer(T)),), 2)


def test_prototypes_are_joined_to_definitions() -> None:
    text = """
    template <typename T, int N = 4> __global__ void f(const T*, int);
    __global__ void g(unsigned n);
    template <typename U, int M> __global__ void f(const U* x, const int n) {}
    __global__ void g(uint n) {}
    __global__ void only_declared(int n);
    """
    f, g, declared = parse(text).kernels
    assert f.template_parameters[1] == TemplateParameter("M", "value", INT, "4")
    assert (names(f), f.line) == (["x", "n"], 4)
    assert (g.line, declared.line) == (5, 6)


def test_a_prototype_after_the_definition_adds_nothing() -> None:
    assert only("__global__ void g(int n) {}\n__global__ void g(int);") == Signature("g", (), (Parameter("n", INT),), 1)


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void broken(int n, @@ what) {}",
        "__global__ void MY_BOUNDS(2) broken(int n, float 3x) {}",
        "__global__ void broken(int n, (((;",
    ],
)
def test_a_head_that_cannot_be_parsed_keeps_its_name(text: str) -> None:
    kernel = only(f"namespace ns {{\n{text}\n}}")
    assert (kernel.name, kernel.parameters, kernel.line) == ("ns::broken", None, 2)


def test_a_head_that_cannot_be_parsed_keeps_its_template_parameters() -> None:
    kernel = only("template <typename T, int N = 2> __global__ void f(T @ x) {}")
    assert kernel.template_parameters == (TemplateParameter("T", "type"), TemplateParameter("N", "value", INT, "2"))
    kernel = only("template <typename T, @ M = 3, class... Ts> __global__ void f(T x) {}")
    assert [(p.name, p.category, p.default, p.pack) for p in kernel.template_parameters] == [
        ("T", "type", None, False),
        ("M", "value", "3", False),
        ("Ts", "type", None, True),
    ]
    assert kernel.parameters is None


def test_no_text_is_refused() -> None:
    pieces = [*"{}()<>;\"'=,\n\0é", "#if A\n", "#else\n", "#endif\n", "/*", "*/", "...", "int x"]
    pieces += ["template ", "__global__ ", "void f", "struct S", "enum E", "namespace n"]
    chance = random.Random(7)
    for _ in range(300):
        text = "".join(chance.choices(pieces, k=chance.randrange(1, 60)))
        declarations = parse(text)
        assert Declarations.from_json(declarations.to_json()) == declarations


@pytest.mark.parametrize(
    "text",
    [
        "{" * 4000,
        "(" * 4000 + "{",
        "struct " * 4000 + "{",
        "a b:" * 4000 + "{",
        "#if A\n" * 2000,
        "1" * 20000,
        # A blanked comment leaves a long run of spaces, here for each _.
        "enum_class_E_;{_}",
        "struct_S_:_{",
        "__global__ void_f_(_int_*_)_{}",
        "#if_A",
        "template_<_typename_T_=_int_>_struct_x_;",
        "void f()_:_a_{",
    ],
)
def test_hostile_text_takes_no_long_time(text: str) -> None:
    start = time.perf_counter()
    parse(text.replace("__global__", "@").replace("_", " " * 5000).replace("@", "__global__"))
    # A hundred times what it takes, so that only a blow-up fails here.
    assert time.perf_counter() - start < 5


# --- symbols, classes, enumerations, aliases ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__constant__ float c;", [Symbol("c", FLOAT, (), True)]),
        ("__constant__ float c[3][N + 1];", [Symbol("c", FLOAT, ("3", "N + 1"), True)]),
        ("__constant__ const float c[] = {1, 2};", [Symbol("c", Named("float", const=True), ("",), True)]),
        ("__constant__ constexpr int a = 3;", [Symbol("a", Named("int", const=True), (), True)]),
        ("__device__ constexpr int *b = 0;", [Symbol("b", Pointer(INT, const=True), (), False)]),
        ("__device__ int a = 3, *b;", [Symbol("a", INT, (), False), Symbol("b", Pointer(INT), (), False)]),
        ("__device__ int a{3};", [Symbol("a", INT, (), False)]),
        ("__device__ Box a(3);", [Symbol("a", Named("Box"), (), False)]),
        ("static __device__ int a;", [Symbol("a", INT, (), False)]),
        ("int __device__ a;", [Symbol("a", INT, (), False)]),
        ("__device__ __constant__ int a;", [Symbol("a", INT, (), True)]),
        ("__device__ __managed__ int a;", [Symbol("a", INT, (), False, managed=True)]),
        ("__constant__ __align__(16) ns::Body<int> a;", [Symbol("a", Named("ns::Body", (INT,)), (), True)]),
        ("__constant__ struct Body { int n; } a;", [Symbol("a", Named("Body"), (), True)]),
        ('extern "C" { __device__ int a; }', [Symbol("a", INT, (), False)]),
        ("namespace x { namespace { __device__ int a; } }", [Symbol("x::a", INT, (), False)]),
        ('__constant__ char a[] = "b;{";', [Symbol("a", Named("char"), ("",), True)]),
        ("__device__ float (*fp)(float);", [Symbol("fp", Opaque("float (*)(float)"), (), False)]),
        ("__device__ float f(float x);", []),
        ("__device__ float f(float x) { return x; }", []),
        ("template <int N> __device__ int a = N;", []),
        ("struct S { static __device__ int a; };", []),
        ("__device__ int S::a = 3;", []),
        ("__global__ void f(int n) { __shared__ int s[2]; static __device__ int a; }", []),
        ("extern __device__ int a;", []),
        ("__device__ __shared__ int a[2];", []),
        ("#ifdef DEBUG\n__device__ int a;\n#endif", []),
        ("auto f = [] __device__ (int x) { return x; };", []),
    ],
)
def test_symbols(text: str, expected: list[Symbol]) -> None:
    assert list(parse(text).symbols) == expected


def test_structs() -> None:
    text = """
    struct Plain { int n; struct Nested { int m; } inner; };
    class MY_API __align__(8) Exported final : public Plain { };
    template <typename T> struct Generic { T x; };
    template <> struct Generic<int> { };
    union Bits { int i; float f; };
    struct Forward;
    typedef struct { float x; } Old;
    typedef struct Tag { float x; } Alias;
    namespace ns { struct alignas(16) Deep { }; }
    struct Plain make(int n) { return {}; }
    enum class NotAStruct { A };
    Plain instance;
    """
    structs = parse(text).structs
    assert structs == tuple(
        sorted(
            ["Plain", "Plain::Nested", "Exported", "Generic", "Bits", "Forward", "Old", "Tag", "ns::Deep"],
        )
    )
    assert dict(parse(text).aliases) == {"Alias": Named("Tag")}


def test_a_constructor_with_braces_does_not_hide_the_next_class() -> None:
    assert parse("Box::Box() : size{1} { run(); }\nstruct After { int n; };").structs == ("After",)


def test_enums() -> None:
    text = """
    enum Plain { A, B = 3, C = B << 1, };
    namespace ns { enum class Scoped : unsigned char { LEFT, RIGHT = max(1, 2) }; }
    typedef enum { ON, OFF } Switch;
    enum { ANONYMOUS };
    enum class Declared : int;
    struct Box { enum struct Side { TOP }; };
    """
    assert parse(text).enums == (
        Enumeration("Plain", ("A", "B", "C"), False, ""),
        Enumeration("ns::Scoped", ("LEFT", "RIGHT"), True, "unsigned char"),
        Enumeration("Switch", ("ON", "OFF"), False, ""),
        Enumeration("Box::Side", ("TOP",), True, "int"),
    )


def test_aliases() -> None:
    text = """
    using real = float;
    typedef unsigned long long count, *counts;
    typedef float quad[4];
    namespace ns { using Row = const real*; }
    template <typename T> using Generic = Box<T>;
    using ns::Row;
    #define scalar double
    #define Index unsigned int
    #define indirect scalar
    #define unused_type int
    #define LIMIT 3
    #define TWO_STARS float**
    #ifdef WIDE
    typedef double choice;
    #define flavour double
    #else
    typedef float choice;
    #define flavour float
    #endif
    #if MAYBE
    using perhaps = float;
    #endif
    #ifndef guess
    #define guess float
    #endif
    typedef int doubtful;
    typedef long doubtful;
    __global__ void f(scalar a, Index* b, indirect c, LIMIT d, TWO_STARS e, flavour g, guess h) {}
    struct S { using inner = int; };
    void host() { using local = int; }
    """
    assert dict(parse(text).aliases) == {
        "real": FLOAT,
        "count": Named("unsigned long long"),
        "counts": Pointer(Named("unsigned long long")),
        "quad": Opaque("float[4]"),
        "ns::Row": Pointer(Named("real", const=True)),
        "scalar": Named("double"),
        "Index": Named("unsigned int"),
        "indirect": Named("scalar"),
    }


def test_an_include_guard_is_no_condition() -> None:
    for guard in ("#ifndef ONCE", "#if !defined(ONCE)"):
        text = f"{guard}\n#define ONCE\ntypedef float real;\n__device__ int a;\n#endif"
        declarations = parse(text)
        assert declarations.aliases == (("real", FLOAT),)
        assert declarations.symbols == (Symbol("a", INT, (), False),)


# --- JSON, imports, speed -----------------------------------------------------------------------------------------

EVERYTHING = """
namespace ns { enum class Mode { A, B }; struct Body { int n; }; using real = float; }
__constant__ float weights[3][4];
__managed__ int shared_count;
template <typename T, int N = 4, ns::Mode M = ns::Mode::A, template <class> class C = Box, typename... Ts>
__global__ void f(const T* __restrict__ x, T& r, typename C<T>::type o, View<T, N, const T* const> v, Ts... rest) {}
__global__ void broken(@) {}
"""


def test_json_round_trip() -> None:
    declarations = parse(EVERYTHING)
    assert all((declarations.kernels, declarations.symbols, declarations.structs, declarations.enums))
    assert any(kernel.parameters is None for kernel in declarations.kernels)
    text = declarations.to_json()
    assert Declarations.from_json(text) == declarations
    assert Declarations.from_json(text).to_json() == text
    assert " " not in text.replace("typename C<T>::type", "")
    assert hash(Declarations.from_json(text)) == hash(declarations)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"kernels":[[1]]}', parse(EVERYTHING).to_json()[:-9]])
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Declarations.from_json(text)


def test_tree_sitter_is_imported_by_parse_alone() -> None:
    code = (
        "import sys; from cudakit.jit.signature.reader import parse; "
        "from cudakit.jit.signature.signature import Declarations; "
        "Declarations.from_json(Declarations().to_json()); assert 'tree_sitter' not in sys.modules; "
        "parse('__global__ void f() {}'); assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- select -------------------------------------------------------------------------------------------------------

SEVERAL = parse(
    """
    __global__ void saxpy(int n) {}
    namespace one { __global__ void reduce(int n) {} __global__ void scan(int n) {} }
    namespace two { __global__ void reduce(int n) {} }
    __global__ void twin(int n) {}
    __global__ void twin(float x) {}
    """
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("saxpy", "saxpy"),
        ("::saxpy", "saxpy"),
        ("scan", "one::scan"),
        ("one::scan", "one::scan"),
        ("::one::scan", "one::scan"),
        ("two :: reduce", "two::reduce"),
    ],
)
def test_select_by_name(name: str, found: str) -> None:
    assert select(SEVERAL, name, "a.cu").name == found


def test_select_the_only_kernel() -> None:
    assert select(parse("namespace n { __global__ void f(int n) {} }"), None, "a.cu").name == "n::f"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, r"a\.cu has 5 kernels.*saxpy, one::reduce, one::scan, two::reduce, twin"),
        ("sapxy", r"a\.cu has no kernel 'sapxy'; did you mean saxpy\?"),
        ("scam", r"did you mean one::scan\?"),
        ("zzz", r"no kernel 'zzz'; it has saxpy, one::reduce"),
        ("reduce", r"several kernels 'reduce'; say which: one::reduce, two::reduce"),
        ("twin(double)", r"no kernel 'twin\(double\)'; it has twin\(int\) on line 5, twin\(float\) on line 6"),
        ("can", r"no kernel 'can'"),
        ("saxpy<float>", r"name it 'saxpy' and give its template arguments in brackets"),
    ],
)
def test_select_refuses(name: str | None, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        select(SEVERAL, name, "a.cu")


def test_select_from_nothing() -> None:
    with pytest.raises(TemplateError, match=r"a\.cu has no __global__ function"):
        select(parse("void host() {}"), None, "a.cu")
    with pytest.raises(TemplateError, match="no __global__ function"):
        select(parse(""), "saxpy", "a.cu")


def test_select_the_only_name_with_overloads() -> None:
    found = select(parse("__global__ void f(int n) {}\n__global__ void f(float x) {}"), None, "a.cu")
    assert [kernel.full_name for kernel in found.overloads] == ["f(int)", "f(float)"]


@pytest.mark.parametrize("name", ["twin(float)", "::twin( float )"])
def test_select_an_overload_by_its_types(name: str) -> None:
    assert (select(SEVERAL, name, "a.cu").line, select(SEVERAL, name, "a.cu").full_name) == (6, "twin(float)")


def test_a_stale_prototype_is_no_second_kernel() -> None:
    found = select(parse("__global__ void f(int* x, int n);\n__global__ void f(int* x) {}"), "f", "a.cu")
    assert (found.line, found.is_overload) == (2, True)
    assert not select(parse("__global__ void f(int* x);"), "f", "a.cu").defined


def test_a_brace_that_nothing_closes_is_named() -> None:
    text = "__device__ void f(int x) {\n if (x) {\n}\n__global__ void k(int* x) {}"
    with pytest.raises(TemplateError, match=r"a\.cu: nothing closes the brace { on line 1"):
        select(parse(text), "k", "a.cu")
    assert parse("__global__ void k(int* x) {}").unclosed is None


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int* f(int* p);",
        "__device__ const S* f(S* a, S* b);",
        "__device__ int& f(int&);",
        "__device__ int** f();",
    ],
)
def test_a_prototype_that_returns_a_pointer_is_no_variable(text: str) -> None:
    assert parse(text).symbols == ()


def test_default_arguments() -> None:
    kernel = only("__global__ void f(int* x, int n = 1 << 4, const A a = {}, float (*g)(int) = nullptr) {}")
    assert kernel.parameters is not None
    assert [parameter.default for parameter in kernel.parameters] == [None, "1 << 4", "{}", "nullptr"]
    kernel = only("__global__ void f(int* x, int n = 3);\n__global__ void f(int* x, int n) {}")
    assert kernel.parameters is not None
    assert kernel.parameters[1].default == "3"
    kernel = only("__global__ void f(char a = 'A', int b = '0' - 'a', char c = '(', char d = '\\n') {}")
    assert kernel.parameters is not None
    assert [parameter.default for parameter in kernel.parameters] == ["'A'", "'0' - 'a'", "' '", "' '"]


def test_a_line_that_goes_on_in_the_next_one() -> None:
    text = "template <typename T, \\\n int N = 3> __global__ void f(T* p, \\\r\n T v) {}\n__global__ void g() {}"
    first, second = parse(text).kernels
    assert [parameter.name for parameter in first.template_parameters] == ["T", "N"]
    assert first.parameters is not None
    assert [parameter.name for parameter in first.parameters] == ["p", "v"]
    assert (first.line, second.line) == (2, 4)


def test_abbreviated_templates() -> None:
    kernel = only("__global__ void f(auto* x, const auto y, std::integral auto n) {}")
    assert [parameter.name for parameter in kernel.template_parameters] == ["auto_0", "auto_1", "auto_2"]
    assert kernel.parameters is not None
    assert [str(parameter.type) for parameter in kernel.parameters] == ["auto_0*", "const auto_1", "auto_2"]


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void (f)(int* x)",
        "__attribute__((global)) void f(int* x)",
        'extern "C" __attribute__((__global__)) void f(int* x)',
        "template <int N = 4> __launch_bounds__(N > 2 ? N : 2) __global__ void f(int* x)",
        "template <typename T> __global__ void f(int* x) requires (sizeof(T) > 2)",
    ],
)
def test_unusual_heads(head: str) -> None:
    assert (only(head + " {}").name, names(only(head + " {}"))) == ("f", ["x"])


@pytest.mark.parametrize("text", ["", "return 3", "namespace a {}", "struct A { int x; }", "f(3)"])
def test_what_is_no_declaration_of_a_variable_declares_none(text: str) -> None:
    assert Grammar().declaration(text) == ()


def test_template_parameters_of_a_head_that_cannot_be_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = object.__new__(Grammar)
    monkeypatch.setattr(Grammar, "_function_root", lambda *_: None)
    found = grammar._template_parts("<typename T, class... A, int N = 3  + 4, typename, bool = true, unsigned long M>")
    assert found == (
        TemplateParameter("T", "type", None, None, False),
        TemplateParameter("A", "type", None, None, True),
        TemplateParameter("N", "value", Opaque("int N"), "3 + 4", False),
        TemplateParameter("", "type", None, None, False),
        TemplateParameter("", "value", Opaque("bool"), "true", False),
        TemplateParameter("M", "value", Opaque("unsigned long M"), None, False),
    )
    assert grammar._template_parts("") == ()
