"""Mutants: source with one change, of an operator, constant, comparison, condition, call, statement or wait.

Python is changed by `ast`, CUDA C++ by tree-sitter. `mutants` changes a program of the tutorial and the CUDA C++ in
its literals, `module_changes` a module of the package, `cuda_changes` a header. Assertions, raised errors, messages,
f-strings and annotations stay as they are; in programs also what runs on a GPU only.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import tree_sitter
import tree_sitter_cuda

OPERATORS = {
    **{"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<"},
    **{"&": "|", "|": "&", "^": "&", "@": "*", "&&": "||", "||": "&&", "and": "or", "or": "and"},
    **{"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "//=": "*=", "<<=": ">>=", ">>=": "<<=", "++": "--", "--": "++"},
}
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}
MEMBERSHIP = {"in": "not in", "not in": "in"}
#: Calls that a module's mutants leave alone.
MESSAGES = re.compile(r"print|warnings\.warn|logging\..*|.*(Error|Warning)")
SYMMETRIC = ("max", "min")  # calls whose arguments have no order
TYPES = re.compile(r"isinstance|issubclass|cast|.*TypeVar|NewType")  # calls with types as arguments
WAITS = re.compile(r"__sync|\bsync\(|\bwait|\bsync$|ordered")
CASTS = re.compile(r"[A-Z]|float|double|int")  # calls that change a type: of a number it is changed anyway
#: Put before and after each wait of a kernel that has lost another one: half of the warps fall behind.
LATE = b" if (((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) / 32 + blockIdx.x & 1)"
LATE += b" for (int late = 0; late < 300; ++late) __nanosleep(100); "
GENERATED = ("elementwise", "reduction", "scan")  # whose texts are C++
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


class Mutant(NamedTuple):
    """A program's text with one change; `line` is what the changed line says, ``- line`` where it is dropped."""

    kind: str
    line: str
    text: str


class Change(NamedTuple):
    """Bytes of a source to be replaced."""

    kind: str
    start: int
    end: int
    by: bytes


def mutants(text: str) -> list[Mutant]:
    """All mutants of a program."""
    data = text.encode()
    made = [mutant_of(data, change) for change in _Program(data).changes()]
    for start, end, code, is_whole in cuda_texts(text):
        source = code.encode()
        for change in cuda_changes(source, is_whole):
            mutant = mutant_of(source, change)
            if change.kind == "wait":
                mutant = mutant._replace(text=with_late_warps(mutant.text))
            whole = data[:start] + repr(mutant.text).encode() + data[end:]
            made.append(mutant._replace(text=whole.decode()))
    return made


def module_changes(data: bytes) -> list[Change]:
    """All changes of a module of the package; `is_python` tells which ones are valid."""
    return _Module(data).changes()


def is_python(text: str) -> bool:
    """Whether Python can compile it."""
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def equivalents(path: Path) -> list[tuple[str, str, str]]:
    """Read a list of mutants that behave as the original: file (``*``: any), line (``…``: any text), the reason."""
    found, file, reason = [], "", ""
    for line in path.read_text().splitlines():
        if line.startswith("[") and line.endswith("]"):
            file = line[1:-1]
        elif line.startswith("# "):
            reason = line[2:]
        elif line and file:
            found.append((file, line, reason))
    return found


def is_like(pattern: tuple[str, str, str], file: str, line: str) -> bool:
    """Whether a mutant is one of those that an equivalent's pattern stands for."""
    listed = ".*".join(re.escape(part) for part in pattern[1].split("…"))
    return pattern[0] in ("*", file) and bool(re.fullmatch(listed, line))


def cuda_texts(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """The CUDA C++ in a program: where its literal begins and ends, what it says, whether it has whole functions."""
    offset = _offsets(text.encode())
    for node in ast.walk(ast.parse(text)):
        found: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GENERATED:
            found = [*node.args[2:], *(word.value for word in node.keywords if word.arg not in ("name", "acc"))]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            found = [node]
        for each in found:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                is_whole = "__" in each.value
                yield offset(each.lineno, each.col_offset), offset(*_end(each)), each.value, is_whole


def cuda_changes(source: bytes, is_whole: bool) -> Iterator[Change]:
    """What to break in CUDA C++: whole functions, or the body of one."""
    head = b"" if is_whole else b"void f() {\nreturn "  # without it `x * x;` declares a pointer
    tree = _PARSER.parse(head + source + (b"" if is_whole else b"\n;}"))
    for change in _in_cuda(tree.root_node):
        start, end = change.start - len(head), change.end - len(head)
        if start >= 0 and end <= len(source):
            yield change._replace(start=start, end=end)


def with_late_warps(text: str) -> str:
    """Kernels in which half of the warps begin late, and fall behind after each wait: as right as they were."""
    source = text.encode()
    places = set()

    def look(node: tree_sitter.Node, in_kernel: bool) -> None:
        in_kernel |= node.type == "function_definition" and any(child.type == "__global__" for child in node.children)
        if node.type == "function_definition" and in_kernel and (body := node.child_by_field_name("body")):
            places.add(body.start_byte + 1)
        if node.type == "expression_statement" and in_kernel and WAITS.search((node.text or b"").decode()):
            places.add(node.end_byte)
        for child in node.children:
            look(child, in_kernel)

    look(_PARSER.parse(source).root_node, False)
    for place in sorted(places, reverse=True):
        source = source[:place] + LATE + source[place:]
    return source.decode()


def _in_cuda(node: tree_sitter.Node) -> Iterator[Change]:
    """Changes of a node and of what is in it."""

    def replace(kind: str, old: tree_sitter.Node, by: bytes) -> Change:
        return Change(kind, old.start_byte, old.end_byte, by)

    kind, text = node.type, node.text or b""
    if kind.startswith("preproc") or kind in ("comment", "template_parameter_list", "template_argument_list"):
        return
    operator = node.child_by_field_name("operator")
    word = (operator.text or b"").decode() if operator else ""
    if operator and kind in ("binary_expression", "assignment_expression", "update_expression"):
        if word in COMPARISONS:
            yield replace("comparison", operator, COMPARISONS[word].encode())
        elif word in OPERATORS:
            yield replace("operator", operator, OPERATORS[word].encode())
    elif operator and kind == "unary_expression" and word in ("-", "!", "~"):
        yield replace("operator", operator, b"")
    elif kind == "number_literal":
        by = re.sub(rb"(?<![.\w])0x[fF]+|\d+(?![\d]*[.])|\d+(?=\.)", lambda found: _next(found.group()), text, count=1)
        yield replace("constant", node, by)
    elif kind == "char_literal":
        yield replace("constant", node, b"'b'" if text != b"'b'" else b"'c'")
    elif kind in ("true", "false"):
        yield replace("constant", node, b"false" if kind == "true" else b"true")
    elif kind == "expression_statement" and node.named_children:
        yield replace("wait" if WAITS.search(text.decode()) else "statement", node, b";")
    elif kind in ("continue_statement", "break_statement") or (kind == "return_statement" and not node.named_children):
        yield replace("statement", node, b";")
    elif kind == "if_statement" and (condition := node.child_by_field_name("condition")):
        yield replace("condition", condition, b"(true)")
    elif kind == "conditional_expression" and (condition := node.child_by_field_name("condition")):
        yield replace("condition", condition, b"true")
    elif kind == "call_expression" and node.parent and node.parent.type != "expression_statement":
        arguments, called = node.child_by_field_name("arguments"), node.child_by_field_name("function")
        is_cast = called is not None and CASTS.fullmatch((called.text or b"").decode())
        if not is_cast and arguments and arguments.named_children:
            yield replace("call", node, b"(" + (arguments.named_children[0].text or b"") + b")")
    for child in node.children:
        yield from _in_cuda(child)


def _next(number: bytes) -> bytes:
    return b"0x7" + number[3:] if number.startswith(b"0x") else str(int(number) + 1).encode()


class _Python(ast.NodeVisitor):
    """Changes of operators, comparisons and statements, in programs and in modules."""

    comparisons = COMPARISONS
    dropped = "None"  # in place of a call that is dropped

    def __init__(self, data: bytes) -> None:
        self.data, self.found = data, list[Change]()
        self.offset = _offsets(data)

    def changes(self) -> list[Change]:
        self.visit(ast.parse(self.data))
        return self.found

    def add(self, kind: str, start: int, end: int, by: str) -> None:
        self.found.append(Change(kind, start, end, by.encode()))

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(*_end(node))  # type: ignore[attr-defined]

    def source(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def between(self, kind: str, left: ast.expr, right: ast.expr, words: dict[str, str]) -> None:
        """Replace the operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        for word in sorted(words, key=len, reverse=True):
            place = re.search(rb"(?<!\w)" + re.escape(word.encode()) + rb"(?!\w)", self.data[start:end])
            if place:
                return self.add(kind, start + place.start(), start + place.end(), words[word])

    def visit_Assert(self, node: ast.Assert) -> None: ...
    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        calls = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for call in calls:
            if isinstance(call, ast.Call) and not self.is_left(ast.unparse(call.func)):
                name = ast.unparse(call.func)
                self.add("wait" if self.is_wait(name) else "statement", *self.span(call), self.dropped)
                self.generic_visit(call)

    def is_left(self, called: str) -> bool:
        """Whether a call stays as it is."""
        raise NotImplementedError

    def is_wait(self, called: str) -> bool:
        """Whether a call waits for other work."""
        return False

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Subscript | ast.Attribute):
            self.add("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.between("operator", node.target, node.value, OPERATORS)
        self.add("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.between("operator", node.left, node.right, OPERATORS)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in itertools.pairwise(node.values):
            self.between("operator", left, right, OPERATORS)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in itertools.pairwise(operands):
            self.between("comparison", left, right, self.comparisons)
        self.generic_visit(node)


class _Program(_Python):
    """Changes of a program of the tutorial."""

    def is_left(self, called: str) -> bool:
        return called == "print" or ".testing." in called

    def is_wait(self, called: str) -> bool:
        return bool(WAITS.search(called))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body):  # those are for a GPU
            for inner in (*node.args.defaults, *node.body):
                self.visit(inner)

    def visit_If(self, node: ast.If) -> None:
        self._branches(node, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branches(node, [node.body], [node.orelse])

    def _branches(
        self, node: ast.If | ast.IfExp, body: list[ast.stmt] | list[ast.expr], other: list[ast.stmt] | list[ast.expr]
    ) -> None:
        tested = ast.unparse(node.test)
        if "has_gpu()" not in tested:
            self.visit(node.test)
        for inner in (*(() if tested == "ck.has_gpu()" else body), *(() if tested == "not ck.has_gpu()" else other)):
            self.visit(inner)
        if tested == "not ck.has_gpu()":
            for inner in body:
                self.visit(inner)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = self.span(node)[0]
        self.add("operator", start, start + (3 if isinstance(node.op, ast.Not) else 1), "")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: whether it checks
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add("constant", *self.span(node), str(not node.value))
        elif isinstance(node.value, int | float):
            self.add("constant", *self.span(node), repr(node.value + 1))


class _Module(_Python):
    """Changes of a module of the package: also guards dropped and neighbouring arguments swapped."""

    comparisons = COMPARISONS | MEMBERSHIP
    dropped = "pass"

    def is_left(self, called: str) -> bool:
        return bool(MESSAGES.fullmatch(called))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for inner in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(inner)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        start, end = self.span(node)
        is_guard = len(node.body) == 1 and isinstance(node.body[0], ast.Return | ast.Raise | ast.Continue | ast.Break)
        if is_guard and not node.orelse and not self.data.startswith(b"elif", start):
            self.add("guard", start, end, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_alias = isinstance(node.value, ast.Subscript | ast.BinOp) and not node.col_offset
        if not (is_alias and re.match(r"[A-Z][a-z]", self.source(node))):
            super().visit_Assign(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not _has_text(node.value):
            self.between("operator", node.target, node.value, OPERATORS)
        self.add("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if _has_text(node.left, node.right):
            self.generic_visit(node)
        else:
            super().visit_BinOp(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self.span(node)
            self.add("operator", start, end, f"({self.source(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            for value in (node.value + 1, node.value - 1):
                self.add("constant", *self.span(node), str(value) if value >= 0 else f"({value})")

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        if MESSAGES.fullmatch(called):
            return
        if TYPES.fullmatch(called):
            return self.visit(node.args[0])
        if called not in SYMMETRIC and not any(isinstance(argument, ast.Starred) for argument in node.args):
            for left, right in itertools.pairwise(node.args):
                (start, end), (after, last) = self.span(left), self.span(right)
                one, two = self.source(left), self.source(right)
                if one != two:
                    self.add("arguments", start, last, two + self.data[end:after].decode() + one)
        self.generic_visit(node)


def _has_text(*operands: ast.expr) -> bool:
    """Whether an operator is one of strings, or of types, whose other operators would be errors at once."""
    return any(
        isinstance(operand, ast.JoinedStr) or (isinstance(operand, ast.Constant) and not isinstance(operand.value, int))
        for operand in operands
    )


def mutant_of(data: bytes, change: Change) -> Mutant:
    """Make the change."""
    made = data[: change.start] + change.by + data[change.end :]
    first = data.rfind(b"\n", 0, change.start) + 1
    after = change.start + len(change.by)
    last = made.find(b"\n", after) if b"\n" in made[after:] else len(made)
    line = made[first:last]
    is_alone = not made[first : change.start].strip() and re.match(rb"\s*(//|#|$)", made[after:last])
    if change.kind in ("statement", "wait", "guard") and is_alone:
        line = b"- " + b" ".join(data[change.start : change.end].split())
    return Mutant(change.kind, b" ".join(line.split()).decode(), made.decode())


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _offsets(data: bytes) -> Callable[[int, int], int]:
    """From lines, counted from 1, and columns of bytes to offsets."""
    starts = [0, *(found.end() for found in re.finditer(rb"\n", data))]
    return lambda line, column: starts[line - 1] + column
