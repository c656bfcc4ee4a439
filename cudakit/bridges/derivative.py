"""Derived gradients of elementwise functions: SymPy differentiates the parsed expression, which is printed as C++."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any, NamedTuple

from cudakit.bridges.work import library
from cudakit.errors import TemplateError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.jit.signature.grammar import cuda_parser

if TYPE_CHECKING:
    from tree_sitter import Node

#: Functions of C++ and of <cudakit/ufunc/all.cuh> that SymPy has by the same name; `float` versions end with an f.
_SAME = (
    *(f"{arc}{name}{h}" for h in ("", "h") for name in ("sin", "cos", "tan") for arc in ("", "a")),
    *("exp", "sqrt", "erf", "erfc", "atan2"),
)
_OTHERS = {
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{"log": "log", "arctan2": "atan2", "pow": "Pow", "power": "Pow", "float_power": "Pow"},
    **{"fabs": "Abs", "abs": "Abs", "absolute": "Abs", "fmin": "Min", "min": "Min", "minimum": "Min"},
    **{"fmax": "Max", "max": "Max", "maximum": "Max", "tgamma": "gamma", "lgamma": "loggamma"},
}
#: Functions that are constant between their steps, and that C++ has by these names.
_STEPS = ("floor", "ceil", "trunc", "rint", "round")
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": truediv}
#: Integer types, whose division truncates.
_WHOLE = re.compile(r"(unsigned|signed|int|long|short|char|size_t|bool|u?int\d+_t)\b")


class Value(NamedTuple):
    """A value of an expression: SymPy's expression, and whether the value is an integer in C++."""

    expr: Any
    is_whole: bool = False


class Derivatives(NamedTuple):
    """The gradients of an elementwise function.

    Attributes
    ----------
    recipe : ElementwiseRecipe
        Recipe of the function.
    gradients : dict
        SymPy's expression of each input's gradient, in terms of the inputs and of ``d<output>``, by the input's name.
    uses : tuple of str
        Inputs that any of the gradients needs.
    """

    recipe: ElementwiseRecipe
    gradients: dict[str, Any]
    uses: tuple[str, ...]

    def function(self, names: Sequence[str]) -> Elementwise:
        """Make the elementwise function that computes the gradients of some inputs.

        Its arguments are the inputs in `uses`, and ``d<output>``, the gradient of each output.
        """
        sympy = _sympy(self.recipe.name)
        inputs = {p.name: p for p in self.recipe.inputs}
        outputs = self.recipe.outputs
        printer = _printer(f"d{outputs[0].name}")
        parts, results = sympy.cse([self.gradients[name] for name in names], sympy.numbered_symbols("s", cls=_local()))
        lines = [f"const auto {symbol} = {printer.doprint(value)};" for symbol, value in parts]
        lines += [f"d{name} = {printer.doprint(value)};" for name, value in zip(names, results, strict=True)]
        gradients = tuple(p._replace(name=f"d{p.name}") for p in outputs)
        recipe = ElementwiseRecipe(
            f"{self.recipe.name}_gradient",
            (*(inputs[name] for name in self.uses), *gradients),
            tuple(outputs[0]._replace(name=f"d{name}") for name in names),
            "",
            "\n".join(lines),
        )
        return Elementwise(recipe)


def derivatives(function: Elementwise, names: Sequence[str]) -> Derivatives:
    """Derive the gradients of an elementwise function with respect to some inputs.

    Parameters
    ----------
    function : Elementwise
        Function to differentiate.
    names : sequence of str
        Names of the inputs.

    Raises
    ------
    TemplateError
        For an expression that cannot be parsed or differentiated.
    CudakitError
        If SymPy is not installed.
    """
    recipe = function.recipe
    sympy = _sympy(recipe.name)
    outputs = _Reader(recipe).read()
    symbols = {name: sympy.Symbol(name, real=True) for name in names}
    gradients = {}
    for name, symbol in symbols.items():
        total = sum(
            sympy.Symbol(f"d{p.name}", real=True) * sympy.diff(outputs[p.name].expr, symbol) for p in recipe.outputs
        )
        if total.has(sympy.Derivative, sympy.Subs) or not _is_printed(total):
            raise _refusal(recipe.name, f"the derivative by {name} of {shortened(recipe.body)} is not known")
        gradients[name] = total
    free = set().union(*({str(symbol) for symbol in gradient.free_symbols} for gradient in gradients.values()))
    return Derivatives(recipe, gradients, tuple(p.name for p in recipe.inputs if p.name in free))


def _is_printed(value: Any) -> bool:
    """Return whether C++ has all functions in a SymPy expression; C++ has no polygamma, for example."""
    try:
        _printer("").doprint(value)
    except NotImplementedError:
        return False
    return True


def _sympy(op: str) -> Any:
    return library("sympy", f"{op}: the gradient of an expression", "pip install 'cudakit[grad]', or sympy")


def _refusal(op: str, reason: str) -> TemplateError:
    return TemplateError(f"{op}: the gradient cannot be derived: {reason}; give backward=")


class _Reader:
    """A parser of an elementwise function's body, whose outputs become SymPy expressions."""

    def __init__(self, recipe: ElementwiseRecipe) -> None:
        self._recipe = recipe
        self._sympy = _sympy(recipe.name)
        self._functions = _functions(self._sympy)

    def read(self) -> dict[str, Value]:
        """Return the values of the outputs, by output name."""
        recipe = self._recipe
        if any(p.raw for p in (*recipe.inputs, *recipe.outputs)):
            self._refuse("it has raw arguments")
        text = f"void f() {{\n{recipe.body}\n;}}"
        root = cuda_parser().parse(text.encode()).root_node
        if root.has_error:
            self._refuse(f"the expression {shortened(recipe.body)} is not understood")
        body = root.children[0].child_by_field_name("body")
        assert body is not None
        names = {
            p.name: Value(self._sympy.Symbol(p.name, real=True), p.dtype is not None and p.dtype.kind in "biu")
            for p in recipe.inputs
        }
        self._statements(body, names)
        if missing := [p.name for p in recipe.outputs if p.name not in names]:
            self._refuse(f"{missing[0]} is not always set")
        return {p.name: names[p.name] for p in recipe.outputs}

    def _refuse(self, reason: str) -> Any:
        raise _refusal(self._recipe.name, reason)

    def _statements(self, node: Node, names: dict[str, Value]) -> None:
        for child in node.named_children:
            self._statement(child, names)

    def _statement(self, node: Node, names: dict[str, Value]) -> None:
        match node.type:
            case "comment":
                return
            case "compound_statement" | "else_clause":
                self._statements(node, names)
            case "expression_statement":
                if node.named_children:
                    self._assignment(node.named_children[0], names)
            case "declaration":
                for child in node.children_by_field_name("declarator"):
                    self._declaration(child, _text(node.child_by_field_name("type")), names)
            case "if_statement":
                self._choice(node, names)
            case _:
                self._refuse(f"{shortened(_text(node))} is no assignment")

    def _declaration(self, node: Node, cpp: str, names: dict[str, Value]) -> None:
        value = node.child_by_field_name("value")
        if value is None or node.type != "init_declarator":
            return  # a variable that is assigned later
        result = self._value(value, names)
        names[_text(node.child_by_field_name("declarator"))] = self._converted(cpp, result)

    def _converted(self, cpp: str, value: Value) -> Value:
        """Return a value converted to a C++ type; a conversion that would cut a fraction is refused."""
        if _WHOLE.search(cpp) and not value.is_whole:
            self._refuse(f"a value is cut to {cpp}")
        return value if cpp == "auto" or _WHOLE.search(cpp) else Value(value.expr)

    def _assignment(self, node: Node, names: dict[str, Value]) -> None:
        if node.type == "comma_expression":
            for child in node.named_children:
                self._assignment(child, names)
            return
        left = node.child_by_field_name("left")
        if node.type != "assignment_expression" or left is None or left.type != "identifier":
            self._refuse(f"{shortened(_text(node))} is no assignment")
        operator, name = _text(node.child_by_field_name("operator")), _text(left)
        value = self._value(node.child_by_field_name("right"), names)
        if operator != "=":
            value = self._binary(operator[:-1], self._variable(name, names), value)
        names[name] = value

    def _choice(self, node: Node, names: dict[str, Value]) -> None:
        condition = self._condition(node.child_by_field_name("condition"), names)
        ways = []
        for part in ("consequence", "alternative"):
            own, child = dict(names), node.child_by_field_name(part)
            if child is not None:
                self._statement(child, own)
            ways.append(own)
        for name in ways[0].keys() & ways[1].keys():
            first, second = ways[0][name], ways[1][name]
            names[name] = first if first == second else self._either(condition, first, second)

    def _either(self, condition: Any, first: Value, second: Value) -> Value:
        """Return the value that is `first` where a SymPy condition holds, else `second`: SymPy's ``Piecewise``."""
        chosen = self._sympy.Piecewise((first.expr, condition), (second.expr, True))
        return Value(chosen, first.is_whole and second.is_whole)

    def _variable(self, name: str, names: dict[str, Value]) -> Value:
        if name not in names:
            self._refuse(f"{name} is no input, and no variable that is set before")
        return names[name]

    def _condition(self, node: Node | None, names: dict[str, Value]) -> Any:
        """Return SymPy's truth value of a C++ condition; a number is true unless it is 0."""
        value = self._value(node, names).expr
        return self._sympy.Ne(value, 0) if isinstance(value, self._sympy.Expr) else value

    def _value(self, node: Node | None, names: dict[str, Value]) -> Value:
        assert node is not None
        field = node.child_by_field_name
        match node.type:
            case "identifier":
                return self._variable(_text(node), names)
            case "number_literal":
                return self._number(_text(node))
            case "true" | "false":
                return Value(self._sympy.true if node.type == "true" else self._sympy.false, True)
            case "parenthesized_expression" | "condition_clause":
                return self._value(node.named_children[0], names)
            case "unary_expression":
                return self._unary(_text(field("operator")), field("argument"), names)
            case "binary_expression":
                operator = _text(field("operator"))
                if operator in ("&&", "||"):
                    join = self._sympy.And if operator == "&&" else self._sympy.Or
                    return Value(join(*(self._condition(field(side), names) for side in ("left", "right"))), True)
                return self._binary(operator, self._value(field("left"), names), self._value(field("right"), names))
            case "conditional_expression":
                condition = self._condition(field("condition"), names)
                return self._either(
                    condition, *(self._value(field(part), names) for part in ("consequence", "alternative"))
                )
            case "cast_expression":
                return self._converted(_text(field("type")), self._value(field("value"), names))
            case "call_expression":
                return self._call(_text(field("function")), field("arguments"), names)
        self._refuse(f"{shortened(_text(node))} is not understood")
        raise AssertionError

    def _number(self, text: str) -> Value:
        plain = text.replace("'", "").lower()
        if whole := re.fullmatch(r"([-+]?)(0x[0-9a-f]+|0b[01]+|\d+)[ul]*", plain):
            base = {"0x": 16, "0b": 2}.get(whole[2][:2], 8 if whole[2][0] == "0" else 10)
            return Value(self._sympy.Integer(int(whole[1] + whole[2], base)), True)
        if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?[fl]?", plain):
            self._refuse(f"the number {text} is not understood")
        return Value(self._sympy.Rational(plain.rstrip("fl")))

    def _unary(self, operator: str, argument: Node | None, names: dict[str, Value]) -> Value:
        if operator == "!":
            return Value(self._sympy.Not(self._condition(argument, names)), True)
        value = self._value(argument, names)
        if operator not in "+-":
            self._refuse(f"the operator {operator} is not understood")
        return value if operator == "+" else Value(-value.expr, value.is_whole)

    def _binary(self, operator: str, left: Value, right: Value) -> Value:
        sympy, whole = self._sympy, left.is_whole and right.is_whole
        relations = {"<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge, "==": sympy.Eq, "!=": sympy.Ne}
        if operator in relations:
            return Value(relations[operator](left.expr, right.expr), True)
        if operator == "/" and whole:
            self._refuse("integers are divided")
        for value in (left, right):
            if not isinstance(value.expr, sympy.Expr):
                self._refuse("a truth value is counted with; write it as condition ? 1 : 0")
        if operator not in _ARITHMETIC:
            self._refuse(f"the operator {operator} is not understood")
        return Value(_ARITHMETIC[operator](left.expr, right.expr), whole)

    def _call(self, name: str, arguments: Node | None, names: dict[str, Value]) -> Value:
        values = [self._value(child, names) for child in (arguments.named_children if arguments else ())]
        cast = re.fullmatch(r"static_cast\s*<(.*)>", name, re.DOTALL)
        types = {p.type for p in (*self._recipe.inputs, *self._recipe.outputs)} | {"float", "double", "int"}
        if (cast or name in types) and len(values) == 1:
            return self._converted(cast[1] if cast else name, values[0])
        plain = name.split("::")[-1]
        function = self._functions.get(plain) or self._functions.get(plain.removeprefix("__").removesuffix("f"))
        if function is None:
            self._refuse(f"the function {name} is not known")
            raise AssertionError
        try:
            return Value(function(*(value.expr for value in values)))
        except TypeError:
            self._refuse(f"{name} takes other arguments")
            raise


@functools.cache
def _functions(sympy: Any) -> dict[str, Callable[..., Any]]:
    """Return SymPy's functions by their C++ names."""

    def step(name: str) -> Any:
        """Make a SymPy function with this name whose derivative is 0, such as floor: it is constant between steps."""
        return type(name, (sympy.Function,), {"fdiff": lambda self, argindex=1: sympy.S.Zero, "is_real": True})

    functions: dict[str, Callable[..., Any]] = {name: getattr(sympy, name) for name in _SAME}
    for name, of in _OTHERS.items():
        functions[name] = getattr(sympy, of)
    for name in (*_STEPS, "sign"):
        functions[name] = step(name)
    slope = {"fdiff": lambda self, argindex=1: 1 / (3 * self**2), "is_real": True}
    functions["cbrt"] = type("cbrt", (sympy.Function,), slope)
    return functions | {
        "exp2": lambda x: sympy.Integer(2) ** x,
        "exp10": lambda x: sympy.Integer(10) ** x,
        "expm1": lambda x: sympy.exp(x) - 1,
        "log2": lambda x: sympy.log(x) / sympy.log(2),
        "log10": lambda x: sympy.log(x) / sympy.log(10),
        "log1p": lambda x: sympy.log(1 + x),
        "rsqrt": lambda x: 1 / sympy.sqrt(x),
        "hypot": lambda x, y: sympy.sqrt(x * x + y * y),
        "fma": lambda x, y, z: x * y + z,
        "square": lambda x: x * x,
        "reciprocal": lambda x: 1 / x,
        "negative": lambda x: -x,
        "positive": lambda x: x,
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "divide": lambda x, y: x / y,
        "logaddexp": lambda x, y: sympy.log(sympy.exp(x) + sympy.exp(y)),
    }


@functools.cache
def _local() -> Any:
    """Return a factory of SymPy symbols for generated variables, such as ``s0_``: names that no user's variable has."""
    sympy = _sympy("")

    def named(name: str, **assumptions: Any) -> Any:
        return sympy.Symbol(f"{name}_", real=True)

    return named


@functools.cache
def _printer(like: str) -> Any:
    """Return an object that prints SymPy expressions as C++.

    Constants get the floating-point type of the C++ variable named `like`.
    """
    from sympy.printing.c import C99CodePrinter

    sympy = _sympy("")

    class Printer(C99CodePrinter):  # type: ignore[misc]
        """A printer that gives numbers a type which does not widen the result, and writes small powers as products."""

        def _print_Rational(self, value: Any) -> str:
            if value.q & (value.q - 1) == 0 and abs(value.p) < 1 << 24 and value.q < 1 << 24:
                return f"{float(value)!r}f"
            return f"decltype(0.0f + {like})({value.p}.0 / {value.q}.0)"

        def _print_Float(self, value: Any) -> str:
            return f"decltype(0.0f + {like})({float(value)!r})"

        _print_NumberSymbol = _print_Float

        def _print_log(self, value: Any) -> str:
            is_number = value.args[0].is_number
            return self._print_Float(value) if is_number else f"log({self._print(value.args[0])})"

        def _print_sign(self, value: Any) -> str:
            text = self._print(value.args[0])
            return f"(({text} > 0) - ({text} < 0))"

        def _print_Heaviside(self, value: Any) -> str:
            text = self._print(value.args[0])
            return f"({text} > 0 ? 1.0f : {text} < 0 ? 0.0f : 0.5f)"

        def _print_Pow(self, value: Any) -> str:
            base, exponent = value.base, value.exp
            if exponent.is_Integer and 1 < abs(exponent) <= 4:
                text = self.parenthesize(base, sympy.printing.precedence.PRECEDENCE["Atom"])
                product = "*".join([text] * abs(int(exponent)))
                return f"({product})" if exponent > 0 else f"(1.0f/({product}))"
            if exponent == -1:
                return f"(1.0f/{self.parenthesize(base, sympy.printing.precedence.PRECEDENCE['Atom'])})"
            if exponent == sympy.Rational(-1, 2):
                return f"(1.0f/sqrt({self._print(base)}))"
            if exponent == sympy.Rational(1, 2):
                return f"sqrt({self._print(base)})"
            return f"pow({self._print(base)}, {self._number_like(exponent)})"

        def _number_like(self, value: Any) -> str:
            return self._print_Float(value) if value.is_number else self._print(value)

    return Printer({"user_functions": {name: name for name in (*_STEPS, "cbrt")}})


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode()
