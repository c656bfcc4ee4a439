"""Nodes of a captured graph, on a stand-in for the driver: what is found in their parameters, and how it is changed."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from copy import copy as copied
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.graphs import device_capture
from cudakit.graphs.device_capture import CopyNode, FillNode, KernelNode, Node, nodes_of
from cudakit.graphs.recording import NamedArguments
from cudakit.jit.specialise.specialise import BoundParameter

driver = pytest.importorskip("cuda.bindings.driver")
pytestmark = pytest.mark.emulator

GOOD, INVALID = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE
REFUSED = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
KINDS = driver.CUgraphNodeType
HOST, DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
EXECUTABLE, CONTEXT = "executable", "context"


class Kernel:
    """A kernel's node as the driver has it, with the bytes of each parameter."""

    def __init__(self, parameters: Sequence[bytes], offsets: Sequence[int] = (), function: int = 0) -> None:
        self.data = [ctypes.create_string_buffer(each, len(each)) for each in parameters]
        self.pointers = (ctypes.c_void_p * len(self.data))(*map(ctypes.addressof, self.data))
        self.kern, self.func = 50, function
        self.kernelParams = ctypes.addressof(self.pointers) if self.data else 0
        self.offsets = list(offsets) or [8 * k for k in range(len(self.data))]
        self.kind = KINDS.CU_GRAPH_NODE_TYPE_KERNEL

    def info(self, position: int) -> tuple[Any, int, int]:
        """What the driver says of a parameter."""
        if position >= len(self.data):
            return INVALID, 0, 0
        return GOOD, self.offsets[position], len(self.data[position])


class Driver:
    """The graphs, the nodes in them, and what was asked for."""

    def __init__(self) -> None:
        self.graphs: dict[Any, list[int]] = {}
        self.nodes: dict[int, Any] = {}
        self.log: list[tuple[Any, ...]] = []
        self.status = GOOD

    def add(self, number: int, node: Any, graph: Any = "graph") -> int:
        self.nodes[number] = node
        self.graphs.setdefault(graph, []).append(number)
        return number

    def set(self, name: str) -> Any:
        def call(*given: Any) -> tuple[Any]:
            self.log.append((name, *given))
            return (self.status,)

        return call

    def kernel(self) -> Kernel:
        (found,) = (node for node in self.nodes.values() if isinstance(node, Kernel))
        return found

    def parameter(self, name: str, expected: int) -> Any:
        def call(handle: int, position: int) -> Any:
            assert handle == expected
            return self.kernel().info(position)

        return call


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()

    def nodes(graph: Any, count: int) -> tuple[Any, list[int], int]:
        handles = found.graphs[graph]
        return GOOD, [*handles, 0, 0][: count or 0], len(handles)

    answers = {
        "cuGraphGetNodes": nodes,
        "cuGraphNodeGetType": lambda handle: (GOOD, found.nodes[handle].kind),
        "cuGraphChildGraphNodeGetGraph": lambda handle: (GOOD, found.nodes[handle].graph),
        "cuCtxGetCurrent": lambda: (GOOD, CONTEXT),
        "cuFuncGetParamInfo": found.parameter("function", 60),
        "cuKernelGetParamInfo": found.parameter("kernel", 50),
        "cuFuncGetName": lambda function: (GOOD, f"function {function}".encode()),
        "cuKernelGetName": lambda kernel: (GOOD, f"kernel {kernel}".encode()),
    }
    for kind in ("Kernel", "Memcpy", "Memset"):
        answers[f"cuGraph{kind}NodeGetParams"] = lambda handle: (GOOD, found.nodes[handle])
        for what in (f"cuGraphExec{kind}NodeSetParams", f"cuGraph{kind}NodeSetParams"):
            answers[what] = found.set(what)
    answers["cuGraphKernelNodeGetParams"] = lambda handle: (GOOD, copied(found.nodes[handle]))
    for name, answer in answers.items():
        monkeypatch.setattr(driver, name, answer)
    return found


def address_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def pointer(array: np.ndarray, after: int = 0) -> bytes:
    return struct.pack("<Q", address_of(array) + after)


def parameter(name: str, kind: Any, dtype: Any = None, cpp: str = "T") -> BoundParameter:
    return BoundParameter(name, cpp, kind, None if dtype is None else np.dtype(dtype))


def call(arguments: Sequence[Any], *parameters: BoundParameter) -> Any:
    target = SimpleNamespace(parameters=parameters, specialization=SimpleNamespace(name_expression="k<int>"))
    return SimpleNamespace(target=target, arguments=tuple(arguments))


def parameters_of(node: KernelNode, sizes: Sequence[int]) -> list[bytes]:
    """The bytes of each parameter that the driver would be given."""
    pointers = (ctypes.c_void_p * len(sizes)).from_address(node._parameters.kernelParams)
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


@pytest.fixture
def x() -> np.ndarray:
    return np.zeros(100, "f4")


def test_addresses_are_found_in_a_foreign_kernels_parameters(here: Driver, x: np.ndarray) -> None:
    struct_ = struct.pack("<I4xQQ", 7, address_of(x) + 40, 5)
    here.add(1, Kernel([struct.pack("<i", 3), pointer(x), struct_], [0, 8, 16]))
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {})
    assert isinstance(node, KernelNode)
    assert (node.name, node.foreign, node.handle) == ("kernel 50", True, 1)
    assert [name for name, _ in node.uses] == ["x", "x"]
    for _, write in node.uses:
        write(1 << 40)
    assert parameters_of(node, [4, 8, 24]) == [
        struct.pack("<i", 3),
        struct.pack("<Q", 1 << 40),
        struct.pack("<I4xQQ", 7, (1 << 40) + 40, 5),
    ]
    assert int.from_bytes(here.kernel().data[1], "little") == address_of(x), "the driver's own are left"
    node.push(EXECUTABLE)
    node.define()
    assert here.log == [
        ("cuGraphExecKernelNodeSetParams", EXECUTABLE, 1, node._parameters),
        ("cuGraphKernelNodeSetParams", 1, node._parameters),
    ]


def test_a_kernel_that_is_a_function_is_asked_as_one(here: Driver, x: np.ndarray) -> None:
    here.add(1, Kernel([pointer(x)], function=60))
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {})
    assert (node.name, len(node.uses)) == ("function 60", 1)


def test_parameters_are_kept_at_multiples_of_64_bytes(here: Driver, x: np.ndarray) -> None:
    here.add(1, Kernel([b"12345678", pointer(x, 4)], [0, 4096]))
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {})
    assert isinstance(node, KernelNode)
    assert [name for name, _ in node.uses] == ["x"]
    first, second = (ctypes.c_void_p * 2).from_address(node._parameters.kernelParams)
    assert first is not None
    assert second is not None
    assert first % 64 == 0
    assert second == first + 4096
    assert parameters_of(node, [8, 8]) == [b"12345678", pointer(x, 4)]


def test_a_kernel_without_parameters_or_names_is_left_alone(here: Driver, x: np.ndarray) -> None:
    number = here.add(1, Kernel([]))
    named = NamedArguments({"x": x})
    assert KernelNode(number, named, None).uses == []
    here.nodes[1] = Kernel([pointer(x)])
    former = here.kernel().kernelParams
    node = KernelNode(number, NamedArguments({}), None)
    assert (node.uses, node._parameters.kernelParams) == ([], former)
    here.kernel().info = lambda position: (INVALID, 0, 0)  # type: ignore[method-assign]
    node = KernelNode(number, named, None)
    assert (node.uses, node._parameters.kernelParams) == ([], former)


def test_a_driver_that_does_not_tell_parameters_is_named(here: Driver, x: np.ndarray) -> None:
    here.add(1, Kernel([pointer(x)]))
    here.kernel().info = lambda position: (REFUSED, 0, 0)  # type: ignore[method-assign]
    with pytest.raises(ck.LaunchError, match=r"parameters of kernel 50 \(CUDA_ERROR_NOT_SUPPORTED\).*update it"):
        nodes_of(["graph"], NamedArguments({"x": x}), {})


def test_numbers_of_a_call_are_found_by_their_objects(here: Driver, x: np.ndarray) -> None:
    named = NamedArguments({"x": x, "n": 100, "a": 2.5})
    n, a = named.values["n"], named.values["a"]
    arguments = (x, n, 100, a)
    here.add(1, Kernel([pointer(x), *[struct.pack("<i", 100)] * 2, struct.pack("<f", 2.5)], [0, 8, 12, 16]))
    parameters = (
        parameter("x", "pointer", "f4"), parameter("n", "scalar", "i4"), parameter("m", "scalar", "i4"),
        parameter("a", "scalar", "f4"),
    )  # fmt: skip
    (node,) = nodes_of(["graph"], named, {1: call(arguments, *parameters)})
    assert isinstance(node, KernelNode)
    assert (node.name, node.foreign) == ("k<int>", False)
    assert [name for name, _ in node.uses] == ["x", "n", "a"]
    for (_, write), value in zip(node.uses, (1 << 33, 7, 0.5), strict=True):
        write(value)
    assert parameters_of(node, [8, 4, 4, 4]) == [
        *[struct.pack("<Q", 1 << 33), struct.pack("<i", 7), struct.pack("<i", 100), struct.pack("<f", 0.5)]
    ]
    with pytest.raises(ck.ArgumentError, match=r"graph: n, k<int>'s parameter n \(T\)"):
        node.uses[1][1]("seven")


def test_a_number_that_looks_like_an_address_is_none(here: Driver, x: np.ndarray) -> None:
    here.add(1, Kernel([pointer(x), pointer(x)]))
    parameters = parameter("n", "scalar", "u8"), parameter("p", "pointer", "f4")
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {1: call((address_of(x), x), *parameters)})
    assert [name for name, _ in node.uses] == ["x"]
    node.uses[0][1](8)
    assert isinstance(node, KernelNode)
    assert parameters_of(node, [8, 8]) == [pointer(x), struct.pack("<Q", 8)]


def test_what_is_neither_array_nor_number_cannot_be_named(here: Driver) -> None:
    named = NamedArguments({"z": 1j})
    here.add(1, Kernel([bytes(8)]))
    z = call((named.values["z"],), parameter("z", "vector", "f4", "float2"))
    with pytest.raises(ck.ArgumentError, match=r"graph: z goes to k<int>'s parameter z \(float2\); what can be"):
        nodes_of(["graph"], named, {1: z})


def test_an_array_that_is_several_parameters_has_one_owner(
    here: Driver, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = NamedArguments({"x": x, "n": 5})
    monkeypatch.setattr(BoundParameter, "parts", property(lambda self: 3 if self.category == "tensor" else 1))
    words = [pointer(x), struct.pack("<q", 5), struct.pack("<q", 6), struct.pack("<i", 5), pointer(x, 8)]
    here.add(1, Kernel(words))
    parameters = parameter("x", "tensor", "f4"), parameter("n", "scalar", "i4")
    # The last one is nobody's: code that is added behind the parameters.
    (node,) = nodes_of(["graph"], named, {1: call((x, named.values["n"]), *parameters)})
    assert [name for name, _ in node.uses] == ["x", "n", "x"]
    for (_, write), value in zip(node.uses, (64, 9, 64), strict=True):
        write(value)
    assert isinstance(node, KernelNode)
    assert parameters_of(node, [8, 8, 8, 4, 8]) == [
        *[struct.pack("<Q", 64), *words[1:3], struct.pack("<i", 9), struct.pack("<Q", 72)]
    ]


def test_textures_and_tensor_maps_of_named_arrays_are_refused(
    here: Driver, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TextureObject:
        handle = 7

    monkeypatch.setattr(device_capture, "span_of", lambda array: (address_of(x) + 4, 0))
    here.add(1, Kernel([struct.pack("<Q", 7)]))
    texture = call((TextureObject(),), parameter("t", "scalar", "u8"))
    with pytest.raises(ck.ArgumentError, match="k<int> is given a texture of x, which holds the array's address"):
        nodes_of(["graph"], NamedArguments({"x": x}), {1: texture})
    assert nodes_of(["graph"], NamedArguments({"y": np.zeros(3)}), {1: texture})[0].uses == []
    here.nodes[1] = Kernel([bytes(8), bytes(8) + pointer(x) + bytes(8)], [0, 64])
    tensor_map = call((1, "map"), parameter("n", "scalar", "i8"), parameter("m", "tensor_map"))
    with pytest.raises(ck.ArgumentError, match="k<int> is given a tensor map of x"):
        nodes_of(["graph"], NamedArguments({"x": x}), {1: tensor_map})
    assert nodes_of(["graph"], NamedArguments({"y": np.zeros(3)}), {1: tensor_map})[0].uses == []


def copy(source: Any, target: Any, width: int = 40, height: int = 0) -> Any:
    """A copy's node; sides as (type, address)."""
    sides: dict[str, Any] = {}
    for side, (kind, address) in (("src", source), ("dst", target)):
        sides[f"{side}MemoryType"] = kind
        sides[f"{side}Host"] = address if kind == HOST else None
        sides[f"{side}Device"] = address if kind == DEVICE else 0
    return SimpleNamespace(kind=KINDS.CU_GRAPH_NODE_TYPE_MEMCPY, WidthInBytes=width, Height=height, **sides)


@pytest.mark.parametrize(("source", "target"), [(HOST, DEVICE), (DEVICE, HOST), (DEVICE, DEVICE), (HOST, HOST)])
def test_both_sides_of_a_copy_are_changed(here: Driver, x: np.ndarray, source: Any, target: Any) -> None:
    y = np.zeros(100, "f4")
    here.add(4, copy((source, address_of(x) + 8), (target, address_of(y))))
    (node,) = nodes_of(["graph"], NamedArguments({"x": x, "y": y}), {})
    assert isinstance(node, CopyNode)
    assert (node.name, node.foreign) == ("copy of 40 bytes", True)
    assert [name for name, _ in node.uses] == ["x", "y"]
    node.uses[0][1](1000)
    node.uses[1][1](2000)
    found = here.nodes[4]
    for side, kind, address in (("src", source, 1008), ("dst", target, 2000)):
        field = getattr(found, f"{side}{'Host' if kind == HOST else 'Device'}")
        assert isinstance(field, int if kind == HOST else driver.CUdeviceptr)
        assert int(field) == address
        assert getattr(found, f"{side}{'Device' if kind == HOST else 'Host'}") in (0, None)
    node.push(EXECUTABLE)
    node.define()
    assert here.log == [
        ("cuGraphExecMemcpyNodeSetParams", EXECUTABLE, 4, found, CONTEXT),
        ("cuGraphMemcpyNodeSetParams", 4, found),
    ]


def test_a_copy_of_other_memory_uses_nothing(here: Driver, x: np.ndarray) -> None:
    here.add(4, copy((DEVICE, 16), (DEVICE, address_of(x)), 10, 3))
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {})
    assert (node.name, [name for name, _ in node.uses]) == ("copy of 30 bytes", ["x"])


@pytest.mark.parametrize(("height", "size"), [(0, 80), (1, 80), (3, 240)])
def test_the_place_of_a_fill_is_changed(here: Driver, x: np.ndarray, height: int, size: int) -> None:
    fill = SimpleNamespace(
        kind=KINDS.CU_GRAPH_NODE_TYPE_MEMSET, dst=address_of(x) + 16, elementSize=4, width=20, height=height
    )
    here.add(5, fill)
    (node,) = nodes_of(["graph"], NamedArguments({"x": x}), {})
    assert isinstance(node, FillNode)
    assert (node.name, [name for name, _ in node.uses]) == (f"fill of {size} bytes", ["x"])
    node.uses[0][1](4096)
    assert isinstance(fill.dst, driver.CUdeviceptr)
    assert int(fill.dst) == 4112
    node.push(EXECUTABLE)
    node.define()
    assert here.log == [
        ("cuGraphExecMemsetNodeSetParams", EXECUTABLE, 5, fill, CONTEXT),
        ("cuGraphMemsetNodeSetParams", 5, fill),
    ]
    fill.dst = 16
    assert nodes_of(["graph"], NamedArguments({"x": x}), {})[0].uses == []


def test_nodes_of_all_graphs_and_of_those_inside_are_found(here: Driver, x: np.ndarray) -> None:
    here.add(1, SimpleNamespace(kind=KINDS.CU_GRAPH_NODE_TYPE_GRAPH, graph="inner"), "outer")
    here.add(2, SimpleNamespace(kind=KINDS.CU_GRAPH_NODE_TYPE_EMPTY), "outer")
    here.add(3, copy((DEVICE, 16), (DEVICE, 16)), "body")
    here.add(4, SimpleNamespace(kind=KINDS.CU_GRAPH_NODE_TYPE_HOST), "inner")
    found = nodes_of(["outer", "body"], NamedArguments({"x": x}), {})
    assert [(node.handle, node.name) for node in found] == [
        *[(1, "graph"), (2, "empty"), (3, "copy of 40 bytes"), (4, "host")]
    ]
    assert [type(node) for node in found] == [Node, Node, CopyNode, Node]
    for node in (found[0], found[1]):
        node.push(EXECUTABLE)
        node.define()
    assert here.log == []


def test_what_the_driver_refuses_is_said(here: Driver, x: np.ndarray) -> None:
    here.add(1, Kernel([pointer(x)]))
    here.add(4, copy((DEVICE, address_of(x)), (DEVICE, 16)))
    here.add(5, SimpleNamespace(kind=KINDS.CU_GRAPH_NODE_TYPE_MEMSET, dst=16, elementSize=4, width=20, height=1))
    nodes = nodes_of(["graph"], NamedArguments({"x": x}), {})
    here.status = REFUSED
    words = ["other arguments for kernel 50", "other places for a copy", "another place for a fill"]
    for node, what in zip(nodes, words, strict=True):
        for change in (lambda node=node: node.push(EXECUTABLE), node.define):
            with pytest.raises(ck.LaunchError, match=f"refused {what}: CUDA_ERROR_NOT_SUPPORTED"):
                change()
    assert device_capture.checked((GOOD,), "nothing") == []
    assert device_capture.checked((GOOD, 1), "one") == 1
    assert device_capture.checked((GOOD, 1, 2), "two") == [1, 2]
