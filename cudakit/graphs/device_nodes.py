"""The nodes of a captured graph: which of them use a named argument, and how that is changed in the executable graph.

An address may stand in any parameter of a kernel: a pointer, a strided array, a struct, or the arrays that CuPy passes
by value. A node's parameters are therefore searched for addresses within the named arrays, eight bytes at a time, but
for those that cudakit itself passed as numbers. Views of an array are found too, and keep their offset.

The driver's bindings do it, not cuda.core's nodes: those of 1.2 take all of a kernel's arguments anew, as Python's,
which are not known of kernels that others launched; refuse kernels of clusters and cooperative ones; and know copies of
one dimension only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from cudakit.errors import LaunchError
from cudakit.graphs.executable import Step
from cudakit.graphs.named_arguments import ADDRESS, VALUES, Named
from cudakit.streams.order.ranges import span_of
from cudakit.streams.witnesses import Call
from cudakit.types import scalars
from cudakit.types.arguments import texture_handle

#: The most parameters that a kernel can have: 32764 bytes of them.
_MOST_PARAMETERS = 8192


def checked(result: tuple[Any, ...], what: str) -> Any:
    """What a driver call returned beside its status.

    Raises
    ------
    LaunchError
        Where the driver refused it.
    """
    status, *rest = result
    if int(status) != 0:
        raise LaunchError(f"graph: the driver refused {what}: {status.name}")
    return rest[0] if len(rest) == 1 else rest


class Node(Step):
    """A node; where its parameters can be changed, they are kept here."""

    #: What the driver's functions for it have in their names, if there are any.
    family = ""
    #: Whether those want the context.
    in_context = True
    _parameters: Any

    def __init__(self, handle: Any, name: str, change: str = "") -> None:
        super().__init__(name)
        self.handle, self._change = handle, change
        self.foreign = True

    def push(self, executable: Any) -> None:
        """Change the node in an executable graph, for its next launches; its device is current."""
        from cuda.bindings import driver

        if self.family:
            change = getattr(driver, f"cuGraphExec{self.family}NodeSetParams")
            context = (checked(driver.cuCtxGetCurrent(), "the current context"),) if self.in_context else ()
            checked(change(executable, self.handle, self._parameters, *context), self._change)

    def define(self) -> None:
        """Change the node in the graph itself, for graphs that it is put into."""
        from cuda.bindings import driver

        if self.family:
            checked(getattr(driver, f"cuGraph{self.family}NodeSetParams")(self.handle, self._parameters), self._change)

    def _find_place(self, named: Named, field: str, on_host: bool = False) -> None:
        """Find a named argument where a parameter is an address."""
        from cuda.bindings import driver

        parameters = self._parameters
        held = named.holding(int(getattr(parameters, field) or 0))
        if held is not None:
            name, distance = held

            def write(address: int) -> None:
                value = address + distance
                setattr(parameters, field, value if on_host else driver.CUdeviceptr(value))

            self.uses.append((name, write))


class KernelNode(Node):
    """A kernel: of cudakit, whose call is known, or of anyone else."""

    family, in_context = "Kernel", False

    def __init__(self, handle: Any, named: Named, call: Call | None) -> None:
        from cuda.bindings import driver

        self._parameters = checked(driver.cuGraphKernelNodeGetParams(handle), "a kernel node's parameters")
        kernel, function = self._parameters.kern, self._parameters.func
        name = _kernel_name(kernel, function) if call is None else str(call.target.specialization.name_expression)
        super().__init__(handle, name, f"other arguments for {name}")
        self.foreign = call is None
        if not named.values or not int(self._parameters.kernelParams or 0):
            return
        layout = _layout(kernel, function, self.name)
        if not layout:
            return
        source = (ctypes.c_void_p * len(layout)).from_address(int(self._parameters.kernelParams))
        size = layout[-1][0] + layout[-1][1]
        self._memory = ctypes.create_string_buffer(size + 64)
        base = -(-ctypes.addressof(self._memory) // 64) * 64
        for address, (offset, width) in zip(source, layout, strict=True):
            ctypes.memmove(base + offset, address, width)
        self._pointers = (ctypes.c_void_p * len(layout))(*[base + offset for offset, _ in layout])
        self._parameters.kernelParams = ctypes.addressof(self._pointers)
        self._view = memoryview(self._memory).cast("B")[base - ctypes.addressof(self._memory) :]
        # An array that is taken whole is several of the driver's parameters.
        parameters = () if call is None else call.target.parameters
        owners = [position for position, parameter in enumerate(parameters) for _ in range(parameter.parts)]
        for number, (offset, width) in enumerate(layout):
            position = owners[number] if number < len(owners) else 0
            kind = parameters[position].kind if number < len(owners) else None
            if call is not None and kind in VALUES:
                if texture_handle(call.arguments[position]) is not None:
                    named.refuse_inside(span_of(call.arguments[position])[0], self.name, "texture")
                self._find_number(named, call, position, offset)
            elif kind == "tensor_map":
                for place, *_ in named.addresses_in(self._view[offset : offset + width]):
                    named.refuse_inside(ADDRESS.unpack_from(self._view, offset + place)[0], self.name, "tensor map")
            else:
                self._find_addresses(named, offset, width)

    def _find_addresses(self, named: Named, offset: int, width: int) -> None:
        view = self._view[offset : offset + width]
        for place, name, distance in named.addresses_in(view):

            def write(address: int, place: int = place, distance: int = distance) -> None:
                ADDRESS.pack_into(view, place, address + distance)

            self.uses.append((name, write))

    def _find_number(self, named: Named, call: Call, position: int, offset: int) -> None:
        parameter = call.target.parameters[position]
        use = self.number_of(named, parameter, call.arguments[position])
        if use is not None:
            name, convert = use
            view = self._view

            def write(value: Any) -> None:
                data = scalars.to_bytes(convert(value), parameter.dtype)
                view[offset : offset + len(data)] = data

            self.uses.append((name, write))


class CopyNode(Node):
    """A copy between two places in memory."""

    family = "Memcpy"

    def __init__(self, handle: Any, named: Named) -> None:
        from cuda.bindings import driver

        parameters = checked(driver.cuGraphMemcpyNodeGetParams(handle), "a copy node's parameters")
        self._parameters = parameters
        size = parameters.WidthInBytes * max(1, parameters.Height)
        super().__init__(handle, f"copy of {size} bytes", "other places for a copy")
        for side in ("src", "dst"):
            on_host = getattr(parameters, f"{side}MemoryType") == driver.CUmemorytype.CU_MEMORYTYPE_HOST
            self._find_place(named, f"{side}{'Host' if on_host else 'Device'}", on_host)


class FillNode(Node):
    """A fill of memory with one value."""

    family = "Memset"

    def __init__(self, handle: Any, named: Named) -> None:
        from cuda.bindings import driver

        parameters = checked(driver.cuGraphMemsetNodeGetParams(handle), "a fill node's parameters")
        self._parameters = parameters
        size = parameters.elementSize * parameters.width * max(1, parameters.height)
        super().__init__(handle, f"fill of {size} bytes", "another place for a fill")
        self._find_place(named, "dst")


def nodes_of(graphs: Iterable[Any], named: Named, calls: Mapping[int, Call]) -> list[Node]:
    """The nodes of some graphs, and of the graphs inside them.

    Parameters
    ----------
    graphs : iterable of CUgraph
    named : Named
    calls : mapping
        The calls that cudakit made, by the address of their node.
    """
    from cuda.bindings import driver

    kinds = driver.CUgraphNodeType
    found: list[Node] = []
    waiting = list(graphs)
    while waiting:
        for handle in _handles(waiting.pop(0)):
            kind = checked(driver.cuGraphNodeGetType(handle), "a node's type")
            if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
                found.append(KernelNode(handle, named, calls.get(int(handle))))
            elif kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
                found.append(CopyNode(handle, named))
            elif kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
                found.append(FillNode(handle, named))
            else:
                found.append(Node(handle, kind.name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()))
            if kind == kinds.CU_GRAPH_NODE_TYPE_GRAPH:
                waiting.append(checked(driver.cuGraphChildGraphNodeGetGraph(handle), "a graph inside a graph"))
    return found


def _handles(graph: Any) -> list[Any]:
    from cuda.bindings import driver

    _, count = checked(driver.cuGraphGetNodes(graph, 0), "a graph's nodes")
    nodes, count = checked(driver.cuGraphGetNodes(graph, count), "a graph's nodes")
    return list(nodes[:count])


def _layout(kernel: Any, function: Any, name: str) -> list[tuple[int, int]]:
    """Offset and size of each parameter of a kernel, in bytes."""
    from cuda.bindings import driver

    layout: list[tuple[int, int]] = []
    for position in range(_MOST_PARAMETERS):
        if int(function):
            status, offset, size = driver.cuFuncGetParamInfo(function, position)
        else:
            status, offset, size = driver.cuKernelGetParamInfo(kernel, position)
        if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
            break
        if int(status) != 0:
            raise LaunchError(
                f"graph: the driver does not tell the parameters of {name} ({status.name}), which named arguments "
                "need; it is older than CUDA 12.4: update it, or name nothing"
            )
        layout.append((int(offset), int(size)))
    return layout


def _kernel_name(kernel: Any, function: Any) -> str:
    from cuda.bindings import driver

    named = driver.cuFuncGetName(function) if int(function) else driver.cuKernelGetName(kernel)
    return str(checked(named, "a kernel's name").decode())
