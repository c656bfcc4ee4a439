"""A parser of single C++ declarations, by tree-sitter-cuda: parameters, variables and aliases.

tree-sitter is imported when a `Grammar` is made: a cached signature does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from cudakit.errors import CompileError
from cudakit.jit.signature.outline import default_of, is_pack, mend
from cudakit.jit.signature.signature import Parameter, TemplateParameter
from cudakit.types.cpp import CppType, Named, Opaque, Pointer, Reference, Value, canonical_name, split_at

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_RESTRICT: Final = frozenset({"__restrict__", "__restrict", "restrict"})
_IDENTIFIERS: Final = frozenset({"identifier", "type_identifier", "field_identifier"})
_CONSTRAINED: Final = re.compile(r"\s*(?!typename\b|class\b|template\b)[\w:]+(?:\s*<.*>)?\s+(\w+\s*=.*)", re.DOTALL)
_STANDARD_CONCEPTS: Final = re.compile(
    "same_as|derived_from|convertible_to|(?:|signed_|unsigned_)integral|floating_point|default_initializable|copyable"
    "|movable|(?:|semi)regular|(?:regular_)?invocable|predicate|equality_comparable|totally_ordered"
)


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable, alias or function, with the extents of its arrays as text."""

    name: str
    type: CppType
    extents: tuple[str, ...] = ()
    is_function: bool = False


@dataclass(frozen=True, slots=True)
class _Array:
    element: CppType
    extents: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.element) + "".join(f"[{extent}]" for extent in self.extents)


_Type: TypeAlias = CppType | _Array


def cuda_parser() -> Parser:
    """Return a new parser of CUDA C++.

    Raises
    ------
    CompileError
        If tree-sitter or its grammar is not installed. Running compiled code needs neither.
    """
    try:
        from tree_sitter import Language, Parser
        from tree_sitter_cuda import language
    except ModuleNotFoundError as error:
        raise CompileError(
            f"CUDA C++ cannot be read here: the package {error.name} is not installed; install the compiler: pip "
            "install 'cudakit[cu13]' (or [cu12]; [compile] beside a CUDA toolkit). Bundles, PTX and cubins need none"
        ) from error
    return Parser(Language(language()))


class Grammar:
    """A parser of single declarations. It drops ``volatile``, which does not change what an argument must be.

    Parameters
    ----------
    values : frozenset of str
        Names of values, which a template argument list may mention.
    concepts : frozenset of str
        Names of the concepts that the source declares.
    """

    def __init__(self, values: frozenset[str] = frozenset(), concepts: frozenset[str] = frozenset()) -> None:
        self._parser = cuda_parser()
        self._value_names = self._values = values
        self._concepts = concepts
        self._dependent: frozenset[str] = frozenset()

    def head(
        self, template: str, parameters: str
    ) -> tuple[tuple[TemplateParameter, ...], tuple[Parameter, ...] | None]:
        """Parse template parameters and parameters of a function; the latter are None if they cannot be parsed.

        Parameters
        ----------
        template : str
            ``<…>``, or ``""`` if the function is no template.
        parameters : str
            ``(…)``.
        """
        template, parameters = " ".join(template.split()), " ".join(parameters.split())
        packs: list[bool] = []
        root = self._function_root(template, parameters)
        if root is None:
            template = self._mend_template(template)
            parts = split_at(parameters[1:-1])
            packs = [is_pack(part) for part in parts]
            root = self._function_root(template, f"({', '.join(map(mend, parts))})")
        if root is None:
            return self._template_parts(template), None
        nodes = [node for node in _find(root, "parameter_list").named_children if node.type != "comment"]
        declared = self._template_parameters(root, nodes) if template else ()
        self._dependent = frozenset(parameter.name for parameter in declared if parameter.category != "value")
        values = frozenset(parameter.name for parameter in declared if parameter.category == "value")
        self._values = (self._value_names - self._dependent) | values
        read = [self._parameter(node) for node in nodes]
        if read == [Parameter("", Named("void"))]:
            read = []
        if any(packs) and len(packs) == len(read):
            read = [
                parameter._replace(pack=parameter.pack or pack) for parameter, pack in zip(read, packs, strict=True)
            ]
        defaults = [default_of(part) for part in split_at(parameters[1:-1])]
        if any(defaults) and len(defaults) == len(read):
            read = [parameter._replace(default=default) for parameter, default in zip(read, defaults, strict=True)]
        return _with_invented(declared, read)

    def _function_root(self, template: str, parameters: str) -> Node | None:
        return self._root(f"{f'template {template} ' if template else ''}void f{parameters} {{}}")

    def _mend_template(self, template: str) -> str:
        """Return the template parameter list with some concepts replaced by ``typename``.

        These are the concepts whose parameter has a default and cannot be parsed: the grammar lacks such defaults.
        """
        parts = split_at(template[1:-1]) if template else []
        for i, part in enumerate(parts):
            constrained = _CONSTRAINED.fullmatch(part)
            if constrained and self._function_root(f"<{part}>", "()") is None:
                parts[i] = f"typename {constrained[1]}"
        return f"<{', '.join(parts)}>" if parts else ""

    def _template_parts(self, template: str) -> tuple[TemplateParameter, ...]:
        """Parse template parameters one by one, for a signature that cannot be parsed whole."""
        parameters: list[TemplateParameter] = []
        for part in split_at(template[1:-1]) if template else ():
            root = self._function_root(f"<{part}>", "()")
            if root is not None:
                parameters += self._template_parameters(root, [])
                continue
            declared, _, default = part.partition("=")
            words = re.findall(r"[^\s<>,.]+", declared)
            category: Literal["type", "value"] = "type" if words and words[0] in ("typename", "class") else "value"
            name = words[-1] if len(words) > 1 else ""
            value_type = None if category == "type" else Opaque(squeeze(declared))
            default = " ".join(default.split())
            parameters.append(TemplateParameter(name, category, value_type, default or None, "..." in declared))
        return tuple(parameters)

    def declaration(self, text: str) -> tuple[Variable, ...]:
        """Parse a declaration without its semicolon; return nothing if it cannot be parsed."""
        self._values, self._dependent = self._value_names, frozenset()
        root = self._root(text + ";")
        node = root.named_children[0] if root is not None and root.named_child_count else None
        if node is None or node.type not in ("declaration", "type_definition", "alias_declaration"):
            return ()
        if node.type == "alias_declaration":
            name = node.child_by_field_name("name")
            described = node.child_by_field_name("type")
            return (Variable(_text(name), _whole(self._descriptor(described))),) if name and described else ()
        base = self._base(node)
        variables = []
        for declarator in node.children_by_field_name("declarator"):
            is_function = _is_function(declarator)
            cpp, declared_name, _ = self._declared(base, declarator)
            if isinstance(cpp, _Array) and node.type == "declaration":
                variables.append(Variable(declared_name, cpp.element, cpp.extents, is_function))
            else:
                variables.append(Variable(declared_name, _whole(cpp), (), is_function))
        return tuple(variables)

    def _root(self, text: str) -> Node | None:
        root = self._parser.parse(text.encode()).root_node
        return None if root.has_error or root.named_child_count != 1 else root

    def _template_parameters(self, root: Node, parameters: list[Node]) -> tuple[TemplateParameter, ...]:
        nodes = _find(root, "template_parameter_list").named_children
        names: set[str] = set()
        self._dependent, self._values = frozenset(), self._value_names
        while True:
            read = tuple(self._template_parameter(node, names) for node in nodes if node.type != "comment")
            self._dependent = frozenset(parameter.name for parameter in read if parameter.category != "value")
            # `template <Scalar T> f(T)`: only a concept's parameter can be the type of a parameter.
            values = {parameter.name for parameter in read if parameter.category == "value"}
            used = {name for node in parameters for name in _bare_types(self._parameter(node).type)} & values
            if not used:
                return read
            names |= used

    def _template_parameter(self, node: Node, types: set[str]) -> TemplateParameter:
        category: Literal["type", "template"] = "type"
        if node.type == "template_template_parameter_declaration":
            category, node = "template", node.named_children[-1]
        if node.type.endswith("type_parameter_declaration"):
            name = next((_text(child) for child in node.named_children if child.type == "type_identifier"), "")
            if (name_node := node.child_by_field_name("name")) is not None:
                name = _text(name_node)
            default = node.child_by_field_name("default_type")
            if name_node is None and default is not None:
                name = ""
            pack = node.type.startswith("variadic")
            return TemplateParameter(name, category, None, default and _text(default), pack)
        parameter = self._parameter(node)
        default = node.child_by_field_name("default_value")
        text = default and _words(default)
        if parameter.name in types or (isinstance(parameter.type, Named) and self._is_concept(parameter.type.name)):
            return TemplateParameter(parameter.name, "type", None, text, parameter.pack)
        return TemplateParameter(parameter.name, "value", parameter.type, text, parameter.pack)

    def _is_concept(self, name: str) -> bool:
        scope, _, last = name.rpartition("::")
        return last in self._concepts or (
            scope in ("std", "cuda::std") and _STANDARD_CONCEPTS.fullmatch(last) is not None
        )

    def _parameter(self, node: Node) -> Parameter:
        cpp, name, pack = self._declared(self._base(node), node.child_by_field_name("declarator"))
        pack = pack or node.type == "variadic_parameter_declaration"
        if isinstance(cpp, _Array):
            target = _Array(cpp.element, cpp.extents[1:]) if cpp.extents[1:] else cpp.element
            return Parameter(name, Pointer(_whole(target)), pack)
        return Parameter(name, cpp, pack)

    def _base(self, node: Node) -> CppType:
        """Return the type that the specifiers of `node` name."""
        const = any(child.type == "type_qualifier" and _text(child) == "const" for child in node.named_children)
        cpp = self._named(node.child_by_field_name("type"))
        return cpp._replace(const=True) if const else cpp

    def _named(self, node: Node | None) -> Named | Opaque:
        if node is None:
            return Opaque("")
        match node.type:
            case "primitive_type" | "sized_type_specifier":
                return Named(canonical_name(_text(node)))
            case "type_identifier":
                return Named(_text(node))
            case "template_type":
                return self._template(node, "")
            case "qualified_identifier":
                scopes: list[str] = []
                inner: Node | None = node
                while inner is not None and inner.type == "qualified_identifier":
                    scope = inner.child_by_field_name("scope")
                    if scope is not None and scope.type != "namespace_identifier":
                        return Opaque(_text(node))
                    scopes += [_text(scope)] if scope is not None else []
                    inner = inner.child_by_field_name("name")
                if inner is None or (scopes and scopes[0] in self._dependent):
                    return Opaque(_text(node))
                prefix = "".join(f"{scope}::" for scope in scopes)
                if inner.type == "template_type":
                    return self._template(inner, prefix)
                return Named(prefix + _text(inner)) if inner.type == "type_identifier" else Opaque(_text(node))
            case "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier":
                name = node.child_by_field_name("name")
                return self._named(name) if name is not None else Opaque(_text(node))
            case _:
                return Opaque(_text(node))

    def _template(self, node: Node, prefix: str) -> Named | Opaque:
        name, arguments = node.child_by_field_name("name"), node.child_by_field_name("arguments")
        if name is None or arguments is None:
            return Opaque(_text(node))
        return Named(prefix + _text(name), tuple(self._argument(child) for child in arguments.named_children))

    def _argument(self, node: Node) -> CppType | Value:
        if node.type != "type_descriptor":
            return Value(_words(node))
        cpp = self._descriptor(node)
        if isinstance(cpp, Named) and cpp.arguments is None and cpp.name in self._values:
            return Value(cpp.name)
        return _whole(cpp)

    def _descriptor(self, node: Node) -> _Type:
        return self._declared(self._base(node), node.child_by_field_name("declarator"))[0]

    def _declared(self, base: _Type, node: Node | None) -> tuple[_Type, str, bool]:
        """Apply declarator `node`, such as ``*name[4]``, to type `base`; return type, name and whether it is a pack.

        The name is ``""`` if the declarator has none.
        """
        cpp, pack = base, False
        while node is not None:
            node_type = node.type
            if node_type in _IDENTIFIERS or node_type == "qualified_identifier":
                return cpp, _text(node), pack
            if node_type.endswith("pointer_declarator"):
                qualifiers = {word for child in node.named_children if "declarator" not in child.type
                              for word in _text(child).split()}  # fmt: skip
                cpp = Pointer(_whole(cpp), "const" in qualifiers, bool(qualifiers & _RESTRICT))
            elif node_type.endswith("reference_declarator"):
                cpp = Reference(_whole(cpp), node.children[0].type == "&&")
            elif node_type.endswith("array_declarator"):
                size = node.child_by_field_name("size")
                extent = "" if size is None else _words(size)
                inner = cpp.extents if isinstance(cpp, _Array) else ()
                cpp = _Array(cpp.element if isinstance(cpp, _Array) else cpp, (extent, *inner))
            elif node_type.endswith("function_declarator"):
                return self._function(cpp, node)
            elif node_type == "variadic_declarator":
                pack = True
            node = node.child_by_field_name("declarator") or _last_declarator(node)
        return cpp, "", pack

    def _function(self, result: _Type, node: Node) -> tuple[_Type, str, bool]:
        declarator, parameters = node.child_by_field_name("declarator"), node.child_by_field_name("parameters")
        _, name, pack = self._declared(result, declarator)
        shape = "" if declarator is None else re.sub(rf"\b{re.escape(name)}(?=\)|$)", "", _text(declarator))
        return Opaque(f"{result}{shape and ' ' + shape}{'()' if parameters is None else _text(parameters)}"), name, pack


def squeeze(text: str) -> str:
    """Return `text` on one line, without the spaces that a type's name does not need."""
    text = " ".join(text.split())
    return re.sub(r"\s*::\s*|(?<=[<(])\s+|\s+(?=[<>(),])|(?<=>)\s+(?=[>*&:])", lambda match: match[0].strip(), text)


def _words(node: Node) -> str:
    """Return an expression on one line, with its operators spaced as written."""
    return " ".join((node.text or b"").decode().split())


def _text(node: Node) -> str:
    return squeeze((node.text or b"").decode())


def _whole(cpp: _Type) -> CppType:
    return Opaque(str(cpp)) if isinstance(cpp, _Array) else cpp


def _find(node: Node, node_type: str) -> Node:
    """Return the first node of type `node_type` in `node`, breadth first."""
    level = [node]
    while level:
        for candidate in level:
            if candidate.type == node_type:
                return candidate
        level = [child for candidate in level for child in candidate.named_children]
    raise LookupError(node_type)


def _last_declarator(node: Node) -> Node | None:
    declarators = [
        child for child in node.named_children if child.type.endswith("declarator") or child.type in _IDENTIFIERS
    ]
    return declarators[-1] if declarators else None


def _is_function(node: Node | None) -> bool:
    """Return whether a declarator declares a function, and not a pointer to a function."""
    while node is not None and node.type in ("pointer_declarator", "reference_declarator"):
        node = node.child_by_field_name("declarator") or _last_declarator(node)
    if node is None or node.type != "function_declarator":
        return False
    inner = node.child_by_field_name("declarator")
    return inner is None or not inner.type.endswith("parenthesized_declarator")


def _with_invented(
    template: tuple[TemplateParameter, ...], parameters: list[Parameter]
) -> tuple[tuple[TemplateParameter, ...], tuple[Parameter, ...]]:
    """Add a template parameter for each ``auto`` parameter, as C++20 does. It is named ``auto_<position>``.

    Return the template parameters, and the parameters with these names in place of ``auto``.
    """
    invented: list[TemplateParameter] = []
    read: list[Parameter] = []
    for position, parameter in enumerate(parameters):
        name = f"auto_{position}"
        cpp = _named_auto(parameter.type, name)
        if cpp != parameter.type:
            invented.append(TemplateParameter(name, "type", pack=parameter.pack))
        read.append(parameter._replace(type=cpp))
    return (*template, *invented), tuple(read)


def _named_auto(cpp: CppType, name: str) -> CppType:
    if isinstance(cpp, Pointer | Reference):
        return cpp._replace(target=_named_auto(cpp.target, name))
    if isinstance(cpp, Opaque) and re.fullmatch(r"(?:[\w:]+(?:<.*>)?\s)?auto", cpp.text):
        return Named(name, const=cpp.const)
    return cpp


def _bare_types(cpp: CppType) -> Iterator[str]:
    while isinstance(cpp, Pointer | Reference):
        cpp = cpp.target
    if isinstance(cpp, Named):
        yield cpp.name
