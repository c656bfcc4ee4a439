"""CUDA C++ of a scan: the user's expressions as functions, and the kernel that runs a template with them."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.generate.declarations import Parameter, names_in, numbered, placed, statement
from cudakit.generate.fold import (
    INITIAL,
    SIZE_PROBE,
    Declared,
    includes,
    initial_parameter,
    kernel_inputs,
    mapped_text,
    returned,
    seen_inputs,
    template_arguments,
    template_head,
)

#: Combinations of two numbers that do not depend on their order.
_COMMUTING = frozenset(("a+b", "b+a", "a*b", "b*a", "a|b", "a&b", "a^b", "max(a,b)", "min(a,b)"))
_INDEX = ("const long long i", "const long long n")


class ScanRecipe(NamedTuple):
    """A scan as it was declared; `acc` is None for the type that the map's values add up in."""

    of: Declared
    map: str
    reduce: str
    identity: str | None
    output: str
    segments: str | None
    acc: str | None

    @property
    def adds_values(self) -> bool:
        """Whether it is of the sums of its one input, of which 0 changes nothing."""
        is_sum = "".join(self.reduce.split()) in ("a+b", "b+a") and self.identity == "0"
        known = self.segments is None and "#define" not in self.of.preamble
        return is_sum and known and [(p.name, p.raw) for p in self.of.inputs] == [(self.map, False)]

    @property
    def takes_last(self) -> bool:
        """Whether results are made of the last item too, so that the inputs are read twice."""
        return self.of.may_use(self.output, "last_item")

    @property
    def gives_item(self) -> bool:
        """Whether the one result is the item, or the one before, as it is."""
        made = "".join(self.output.split()).rstrip(";")
        wanted = [f"{p.name}={item}" for p in self.of.outputs for item in ("item", "prev_item")]
        return made in wanted and len(self.of.outputs) == 1 and "#define" not in self.of.preamble

    @property
    def sees_inputs(self) -> bool:
        """Whether results are made of the inputs too."""
        return any(self.of.may_use(self.output, p.name) for p in self.of.inputs)


def kernel_text(recipe: ScanRecipe, numbers: frozenset[str]) -> str:
    """The whole source; `numbers` are the inputs that are given as numbers rather than as arrays."""
    of = recipe.of
    texts = recipe.map, recipe.reduce, recipe.identity, recipe.output, recipe.segments
    parts = [includes(of, "cudakit/scan/expression.cuh", recipe.acc, *texts), _scan(recipe), _kernel(recipe, numbers)]
    return numbered("\n".join(parts), f"<{of.name}>")


def _scan(recipe: ScanRecipe) -> str:
    """The expressions as what <cudakit/scan/expression.cuh> calls."""
    of = recipe.of
    mapped, state = mapped_text(of, recipe.map, recipe.acc, _INDEX)
    head, arguments = template_head(of.variables), template_arguments(of.variables)
    seen = ", ".join([*seen_inputs(of), *_INDEX])
    lines = [
        mapped,
        f"{head}struct cudakit_scan : cudakit_mapped{arguments} {{\n    using cudakit_state = {state};\n",
        f"    static constexpr bool CUDAKIT_IS_SEGMENTED = {_bool(recipe.segments is not None)};\n",
        f"    static constexpr bool CUDAKIT_OUTPUT_SEES_INPUTS = {_bool(recipe.sees_inputs)};\n",
        f"    static constexpr bool CUDAKIT_COMMUTES = {_commutes(recipe)};\n",
        f"    static constexpr bool CUDAKIT_HAS_NEUTRAL = {_bool(recipe.adds_values)};\n",
        f"    static constexpr bool CUDAKIT_OUTPUT_IS_ITEM = {_bool(recipe.gives_item)};\n",
        "    template <typename T_>\n    static __device__ T_ cudakit_neutral() { return T_(0); }\n",
        *_identity(recipe),
        "    static __device__ cudakit_state cudakit_reduce(const cudakit_state& a, const cudakit_state& b)",
        returned(of, "reduce", recipe.reduce),
    ]
    if recipe.segments is not None:
        lines.append(f"    static __device__ bool cudakit_head({seen}){returned(of, 'segments', recipe.segments)}")
    own = [_member(p, "values_" + ".others" * k + ".first", of.inputs) for k, p in enumerate(of.inputs)]
    own += [_member(p, "results_" + ".others" * k + ".first", of.inputs) for k, p in enumerate(of.outputs)]
    lines += [
        "    template <typename Values_, typename Results_>\n",
        "    static __device__ void cudakit_output(\n",
        "        const cudakit_state& item, const cudakit_state& prev_item, const cudakit_state& last_item,\n",
        f"        {', '.join(_INDEX)}, const Values_& values_, const Results_& results_) {{\n",
        *own,
        f"{placed(statement(of.name, 'output', recipe.output), f'<{of.name} output>')}    }}\n}};\n",
    ]
    return "".join(lines)


def _identity(recipe: ScanRecipe) -> list[str]:
    if recipe.identity is None:
        return []
    return [f"    static __device__ cudakit_state cudakit_identity(){returned(recipe.of, 'identity', recipe.identity)}"]


def _member(p: Parameter, place: str, inputs: tuple[Parameter, ...]) -> str:
    const = "const " if p in inputs else ""
    if p.raw:
        return f"        {const}{p.stored if const else p.type}* const {p.name} = {place};\n"
    return f"        {const}{p.type}& {p.name} = {'' if const else '*'}{place};\n"


def _commutes(recipe: ScanRecipe) -> str:
    """C++ for whether the combination commutes; of structs and complex numbers nothing is known."""
    # A function of the preamble may be called as one of CUDA's is.
    known = "".join(recipe.reduce.split()) in _COMMUTING and not {"max", "min"} & names_in(recipe.of.preamble)
    return "cudakit::commutes<cudakit_state>" if known else "false"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _kernel(recipe: ScanRecipe, numbers: frozenset[str]) -> str:
    of = recipe.of
    types, parameters, several = kernel_inputs(of, numbers)
    scan = f"cudakit_scan{template_arguments(of.variables)}"
    if recipe.identity is None:
        scan = f"cudakit::without_identity<{scan}>"
    parameters += [f"{p.type}* {p.name}" for p in of.outputs]
    ends = "last_"
    if INITIAL in numbers:
        more, first = initial_parameter(of, recipe.acc)
        types, parameters, ends = [*types, *more], [*parameters, first], f"last_, {INITIAL}"
    parameters += ["unsigned char* last_", "unsigned char* status_", "Layout_ layout_"]
    names = ", ".join(p.name for p in of.outputs)
    return (
        f"{template_head([*of.variables, 'How_', *types, 'Layout_'])}"
        f"__global__ void __launch_bounds__(How_::BLOCK, cudakit::SCAN_RESIDENT<How_, {scan}>) {of.name}(\n"
        f"    {', '.join(parameters)}) {{\n"
        f"    How_::template run<{scan}>(\n"
        f"        cudakit::several_of({', '.join(several)}),\n"
        f"        cudakit::several_of({names}), cudakit::ends_of<{scan}>({ends}), status_, layout_);\n}}\n\n"
        f"{template_head(of.variables)}"
        f"__global__ void {SIZE_PROBE}(cudakit::bytes<sizeof(cudakit::item_of<{scan}>)>) {{}}"
    )
