"""C++ source about structs: their definitions, and assertions about types.

`struct_assertions` and `number_assertion` write C++ assertions. With them the compiler checks that a C++ type has the
size, the fields and the field types that Python assumes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.types.cpp import CLASS_FLOATS
from cudakit.types.structs import alignment_of, fields_of, innermost, spelling, struct_name


def identifier(name: str, role: str) -> str:
    """Return `name` unchanged, if it is an identifier: so no other C++ code gets into a source through it.

    `role` is the subject of the error message.

    Raises
    ------
    TemplateError
        If `name` is no identifier.
    """
    if not name.isidentifier():
        raise TemplateError(f"{role} has the name {shortened(name)}, which is no C++ identifier; rename it")
    return name


def definition(name: str, dtype: np.dtype, names: dict[np.dtype, str]) -> str:
    """Write C++ source that defines struct `name` with the layout of `dtype`, nested structs first.

    Parameters
    ----------
    name : str
        Name of the struct.
    dtype : numpy.dtype
        Structured dtype.
    names : dict
        Names of the structs defined so far; nested structs are added.
    """
    lines, nested = [], []
    end = 0
    identifier(name, "a struct")
    for field, field_dtype, offset in fields_of(dtype):
        identifier(field, f"a field of struct {name}")
        base, extents = innermost(field_dtype)
        if base.names is not None:
            if base not in names:
                nested_name = struct_name(base)
                nested.append(definition(nested_name, base, names))
                names[base] = nested_name
            spelled = names[base]
        else:
            spelled = spelling(base, f"field {shortened(field)} of struct {name}")
        alignment = alignment_of(base)
        if offset % alignment:
            raise TemplateError(
                f"field {shortened(field)} of struct {name} is at byte {offset}, which is not a multiple of "
                f"{spelled}'s alignment {alignment}; build the dtype with align=True"
            )
        natural = -(-end // alignment) * alignment
        if offset > natural:
            lines.append(f"    unsigned char cudakit_pad_{end}[{offset - end}];")
        lines.append(f"    {spelled} {field}{''.join(f'[{extent}]' for extent in extents)};")
        end = offset + field_dtype.itemsize
    if dtype.itemsize > -(-end // alignment_of(dtype)) * alignment_of(dtype):
        lines.append(f"    unsigned char cudakit_pad_{end}[{dtype.itemsize - end}];")
    names[dtype] = name
    return "".join(nested) + f"struct {name} {{\n" + "\n".join(lines) + "\n};\n"


#: C++11 that the assertions use: the types of a kernel's parameters, and `kind`, the letter of a type. b is bool, c is
#: char, i and u are signed and unsigned integers, f is float and double. A vector or complex type has letter and size
#: of its parts. Each of CUDA's floats that are classes has its own letter. v stands for other classes, w for all other
#: types: enumerations, pointers. A source may have macros called T or N.
SUPPORT: Final = (
    "".join(f"struct {row.names[0]};\n" for row in CLASS_FLOATS)
    + """\
namespace cudakit_layout {
template <int I_, typename F_> struct parameter;
template <typename P_, typename... R_> struct parameter<0, void (*)(P_, R_...)> { using type = P_; };
template <int I_, typename P_, typename... R_>
struct parameter<I_, void (*)(P_, R_...)> : parameter<I_ - 1, void (*)(R_...)> {};
template <typename T_> struct bare { using type = T_; };
template <typename T_> struct bare<const T_> { using type = T_; };
template <typename T_> struct bare<volatile T_> { using type = T_; };
template <typename T_> struct bare<const volatile T_> { using type = T_; };
template <typename T_> struct element : bare<T_> {};
template <typename T_> struct element<T_[]> : element<T_> {};
template <typename T_, decltype(sizeof(0)) N_> struct element<T_[N_]> : element<T_> {};
template <typename T_> struct target : element<T_> {};
template <typename T_> struct target<T_*> : element<T_> {};
template <typename...> struct none { using type = void; };
template <char K_, int S_ = 0> struct is { static constexpr char value = K_; static constexpr int size = S_; };
template <typename T_, bool = __is_class(T_) || __is_union(T_)> struct kind : is<'w'> {};
template <> struct kind<bool> : is<'b', sizeof(bool)> {};
template <> struct kind<char> : is<'c', sizeof(char)> {};
template <> struct kind<signed char> : is<'i', sizeof(signed char)> {};
template <> struct kind<short> : is<'i', sizeof(short)> {};
template <> struct kind<int> : is<'i', sizeof(int)> {};
template <> struct kind<long> : is<'i', sizeof(long)> {};
template <> struct kind<long long> : is<'i', sizeof(long long)> {};
template <> struct kind<unsigned char> : is<'u', sizeof(unsigned char)> {};
template <> struct kind<unsigned short> : is<'u', sizeof(unsigned short)> {};
template <> struct kind<unsigned int> : is<'u', sizeof(unsigned int)> {};
template <> struct kind<unsigned long> : is<'u', sizeof(unsigned long)> {};
template <> struct kind<unsigned long long> : is<'u', sizeof(unsigned long long)> {};
template <> struct kind<float> : is<'f', sizeof(float)> {};
template <> struct kind<double> : is<'f', sizeof(double)> {};
template <typename T_, typename = void> struct of_value_type : is<'v'> {};
template <typename T_> struct of_value_type<T_, typename none<typename T_::value_type>::type>
    : kind<typename bare<typename T_::value_type>::type> {};
template <typename T_, typename = void> struct of_class : of_value_type<T_> {};
template <typename T_> struct of_class<T_, typename none<decltype(T_::x)>::type>
    : kind<typename element<decltype(T_::x)>::type> {};
template <typename T_> struct kind<T_, true> : of_class<T_> {};
"""
    + "".join(
        f"template <> struct kind<::{row.names[0]}, true> : is<'{row.letter}', {row.bytes}> {{}};\n"
        for row in CLASS_FLOATS
    )
    + """\
template <typename T_, int S_, char... K_> struct any { static constexpr bool value = false; };
template <typename T_, int S_, char K_, char... R_> struct any<T_, S_, K_, R_...> {
    using found = kind<typename element<T_>::type>;
    static constexpr bool value =
        (found::value == K_ && (found::size == 0 || found::size == S_)) || any<T_, S_, R_...>::value;
};
}
"""
)


#: Letters of the C++ types that take the values of a NumPy dtype kind; any other type takes bytes.
_CATEGORIES: Final = {
    "?": "bciuv",
    "b": "bciuv",
    "i": "icwv",
    "u": "ucwv",
    "f": "fv",
    "c": "fv",
    "m": "iuwv",
    "M": "iuwv",
}


#: The same for floats that are classes in C++.
_SMALL_CATEGORIES: Final = {row.dtype: f"{row.letter}v" for row in CLASS_FLOATS}


def parameter(position: int, name_expression: str) -> str:
    """Return a C++ expression for the type of the kernel parameter at `position`; of a pointer, its target's type.

    `name_expression` names the kernel in C++.
    """
    inner = f"cudakit_layout::parameter<{position}, decltype(+{name_expression})>::type"
    return f"cudakit_layout::target<{inner}>::type"


def struct_assertions(tag: str, cpp: str, shown: str, dtype: np.dtype) -> str:
    """Write C++ source that asserts that the type `cpp` is a class with the size and fields of `dtype`; void passes.

    Parameters
    ----------
    tag : str
        Identifier that is unique among these assertions.
    cpp : str
        C++ type.
    shown : str
        Name of the type in the error.
    dtype : numpy.dtype
        Structured dtype.
    """
    size = dtype.itemsize
    where = shown.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        f'static_assert(sizeof(Checked) == {size}, "struct {where}: the Python side has {size} bytes; the C++ struct '
        f'has another size{_hint(dtype)}");',
        *_fields("Checked", "", where, dtype),
    ]
    name = f"cudakit_layout_{tag}"
    body = "\n".join(lines)
    return (
        f"template <typename Checked, bool = __is_class(Checked) || __is_union(Checked)> struct {name} {{\n"
        f'static_assert(sizeof(Checked) == 0, "struct {where}: the Python side has a struct; the C++ type is none");\n'
        "};\n"
        f"template <> struct {name}<void, false> {{}};\n"
        f"template <typename Checked> struct {name}<Checked, true> {{\n{body}\n}};\ntemplate struct {name}<{cpp}>;\n"
    )


def _fields(cpp: str, path: str, shown: str, dtype: np.dtype) -> list[str]:
    """Return C++ assertions that the class `cpp` has the fields of `dtype`, with offsets, sizes and types.

    Nested structs are included. In errors `shown` names the struct, and `path` precedes the names of fields.
    """
    lines = []
    for field, inner, offset in fields_of(dtype):
        identifier(field, f"a field of struct {shown}")
        own, name = f"decltype({cpp}::{field})", f"{path}{field}"
        # NVRTC has no offsetof before 13.4; its own <cstddef> would expand to this intrinsic.
        lines += [
            f'static_assert(__INTADDR__(&((({cpp}*)0)->{field})) == {offset}, "struct {shown}: the Python side has '
            f'field {name} at byte {offset}; the C++ struct has it elsewhere");',
            f'static_assert(sizeof({own}) == {inner.itemsize}, "struct {shown}: the Python side has {inner.itemsize} '
            f'bytes for field {name}; the C++ struct has another size{_hint(inner)}");',
        ]
        base = innermost(inner)[0]
        if base.names is not None:
            alias = f"{cpp}_{field}"
            lines.append(f"using {alias} = typename cudakit_layout::element<{own}>::type;")
            lines += _fields(alias, f"{name}.", shown, base)
        elif categories := _categories(base):
            lines.append(
                f"static_assert(cudakit_layout::any<{own}, {_part_bytes(base)}, {categories}>::value, "
                f'"struct {shown}: the Python side has {inner} for field {name}; the C++ struct has another type");'
            )
    return lines


def _categories(dtype: np.dtype) -> str:
    others = "v" if dtype.type.__module__ == "ml_dtypes" else _CATEGORIES.get(dtype.kind, "")
    return ", ".join(f"'{category}'" for category in _SMALL_CATEGORIES.get(dtype.name, others))


def _part_bytes(dtype: np.dtype) -> int:
    """Return the size of a number's parts: half the size of a complex number, else the whole size."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def _hint(dtype: np.dtype) -> str:
    plain = [dtype, *(innermost(inner)[0] for _, inner, _ in fields_of(dtype))]
    wide = any(field_dtype in (np.dtype("i8"), np.dtype("f8")) for field_dtype in plain)
    return "; int and float of a dataclass have 64 bits, numpy.int32 and numpy.float32 have 32" if wide else ""


def number_assertion(cpp: str, shown: str, dtype: np.dtype) -> str:
    """Write C++ source that asserts that the type `cpp` can take a number of `dtype`. `shown` names it in errors.

    Enumerations take integers only. Classes take only numbers that C++ has a class for. For bytes (numpy.void) the
    result is empty.
    """
    if dtype.type is np.void:
        return ""
    where = shown.replace("\\", "\\\\").replace('"', '\\"')
    text, shown_dtype = "", "an integer"
    if dtype.kind not in "biu":
        shown_dtype = str(dtype)
        message = f"{where} is an enumeration; the Python side has {shown_dtype}, no integer"
        text = f'static_assert(!__is_enum({cpp}), "{message}");\n'
    if dtype.kind == "c" or (dtype.kind not in "biumM" and dtype.itemsize <= 2):
        fits = f"cudakit_layout::any<{cpp}, {_part_bytes(dtype)}, {_categories(dtype)}, 'w'>::value"
        text += f'static_assert({fits}, "{where} is another type; the Python side has {shown_dtype}");\n'
    else:
        plain = f"!__is_class({cpp}) && !__is_union({cpp})"
        message = f"{where} is a struct; the Python side has {shown_dtype}; numpy.void is for bytes"
        text += f'static_assert({plain}, "{message}");\n'
    return text
