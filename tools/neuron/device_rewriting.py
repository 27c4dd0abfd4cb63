"""`device-rewriting`: every device in a graph becomes the target.

An argument is a device if it is a `torch.device`, or if a schema says so: that of the overload that is called, or, for
methods and functions of PyTorch, those of the overloads of that name, which have a `Device` in its place and nothing
else that takes a string or a number there. The same string elsewhere (a mode, an `einsum` equation) is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import cast

import torch
from torch import Tensor, fx
from torch._ops import OpOverloadPacket
from torch.fx.node import Argument

from vllm_ir.frontends.fx.torch_objects import is_overload, packet_of, schema_of
from vllm_ir.tools.neuron.graphs import Result, copied, graphs_in

_KEPT = ("placeholder", "get_attr")


def rewrite_devices(gm: fx.GraphModule, target_device: str | torch.device) -> Result:
    """A copy of `gm` in which all devices are `target_device`: of `to`, of `cuda()` and `cpu()`, of factories.

    A string stays a string and a `torch.device` one. What nodes give is noted anew by whoever needs it, so notes about
    values on other devices are dropped, except those of inputs.

    Metadata: `rewrite_count`, the number of devices that were others before.

    Raises:
        RuntimeError: PyTorch has no device of that name.
    """
    gm = copied(gm)
    rewriter = _Rewriter(torch.device(target_device))
    for module in graphs_in(gm):
        for node in module.graph.nodes:
            rewriter.rewrite(node)
    if rewriter.count:
        for module in graphs_in(gm):
            _drop_values(module)
            module.recompile()
    return gm, {"rewrite_count": rewriter.count}


def device_of_inputs(gm: fx.GraphModule, example_inputs: Sequence[object] | None) -> torch.device | None:
    """The device that most inputs of a graph are on; None if none is a tensor."""
    metas = [node.meta for node in gm.graph.find_nodes(op="placeholder")]
    values: Iterable[object] = (
        [meta.get("val", meta.get("example_value")) for meta in metas] if example_inputs is None else example_inputs
    )
    devices = [value.device for value in values if isinstance(value, Tensor)]
    return max(devices, key=devices.count) if devices else None


class _Rewriter:
    def __init__(self, target: torch.device) -> None:
        self.target = target
        self.count = 0

    def rewrite(self, node: fx.Node) -> None:
        if node.op == "call_method":
            self._method(node)
        elif node.op == "call_function" and is_overload(node.target):
            arguments = schema_of(node.target).arguments
            positions = {index for index, argument in enumerate(arguments) if _is_device(argument)}
            names = {argument.name for argument in arguments if _is_device(argument)}
            self._replace(node, positions, names)
        elif node.op == "call_function" and node.target is torch.device:
            if torch.device(*node.args, **node.kwargs) != self.target:  # pyright: ignore[reportCallIssue, reportArgumentType]  # constants, as FX holds them
                self.count += 1
                node.args, node.kwargs = (str(self.target),), {}
        elif getattr(node.target, "__objclass__", None) is not None and _moves(_name(node.target)):
            self._move(node, _name(node.target))
        elif node.op == "call_function":
            overloads = _named_overloads(node.target)
            self._replace(node, *_places(overloads, node))

    def _method(self, node: fx.Node) -> None:
        name = str(node.target)
        if _moves(name):
            self._move(node, name)
            return
        packet = packet_of("aten", name)
        self._replace(node, *_places(() if packet is None else _overloads(packet), node))

    def _move(self, node: fx.Node, name: str) -> None:
        """`x.cuda(device, non_blocking)` as `x.to(target, non_blocking=...)`."""
        names = ("memory_format",) if name == "cpu" else ("device", "non_blocking", "memory_format")
        given = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
        given.pop("device", None)
        self.count += torch.device(name).type != self.target.type
        node.op, node.target = "call_method", "to"
        node.args = (node.args[0], str(self.target))
        node.kwargs = given

    def _replace(self, node: fx.Node, positions: set[int], names: set[str]) -> None:
        """Replace devices at these places, and everything that is a `torch.device`."""
        args = [self._value(value, index in positions) for index, value in enumerate(node.args)]
        kwargs = {name: self._value(value, name in names) for name, value in node.kwargs.items()}
        node.args = cast("tuple[Argument, ...]", tuple(args))
        node.kwargs = cast("dict[str, Argument]", kwargs)

    def _value(self, value: object, is_device: bool) -> object:
        if isinstance(value, torch.device):
            self.count += value != self.target
            return self.target
        if not is_device or not isinstance(value, str | int) or isinstance(value, bool):
            return value
        if isinstance(value, str) and torch.device(value) == self.target:
            return value
        self.count += 1
        return str(self.target)


@cache
def _moves(name: str) -> bool:
    """Whether tensors have a method of that name which moves them: it is called as a type of device."""
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return hasattr(Tensor, name)


def _name(function: object) -> str:
    return str(getattr(function, "__name__", ""))


def _is_device(argument: torch.Argument) -> bool:
    return str(argument.type) in ("Device", "Optional[Device]")


def _takes(argument: torch.Argument, value: object) -> bool:
    """Whether a string, or a number, may be passed for an argument that is no device."""
    kind = str(getattr(argument, "real_type", argument.type)).removeprefix("Optional[").removesuffix("]")
    return kind == "str" if isinstance(value, str) else kind in ("int", "SymInt", "number", "float", "Scalar")


def _places(overloads: Sequence[tuple[torch.Argument, ...]], node: fx.Node) -> tuple[set[int], set[str]]:
    """Positions and names at which a call, of one of these overloads, has a device."""
    positions: set[int] = set()
    for index, value in enumerate(node.args):
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        there = [a for arguments in overloads for a in _positional(arguments, index)]
        if any(map(_is_device, there)) and not any(_takes(a, value) for a in there if not _is_device(a)):
            positions.add(index)
    names = {a.name for arguments in overloads for a in arguments if _is_device(a)}
    return positions, names


def _positional(arguments: Sequence[torch.Argument], index: int) -> Iterable[torch.Argument]:
    allowed = [argument for argument in arguments if not argument.kwarg_only]
    return allowed[index : index + 1]


@cache
def _overloads(packet: OpOverloadPacket[..., object]) -> tuple[tuple[torch.Argument, ...], ...]:
    # Those called `prim_...` are for TorchScript, where dtypes are numbers.
    names = [name for name in packet.overloads() if not name.startswith("prim_")]
    return tuple(tuple(schema_of(getattr(packet, name)).arguments) for name in names)


def _named_overloads(target: object) -> tuple[tuple[torch.Argument, ...], ...]:
    """Schemas of the ATen operators that a function of PyTorch may be; none for all other functions."""
    if isinstance(target, OpOverloadPacket):
        return _overloads(cast("OpOverloadPacket[..., object]", target))
    module = str(getattr(target, "__module__", None) or "torch")  # built-in functions name none
    name = _name(target)
    packet = packet_of("aten", name) if name and module.partition(".")[0] == "torch" else None
    return () if packet is None else _overloads(packet)


def _drop_values(module: fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.op not in _KEPT:
            for key in ("val", "example_value", "tensor_meta"):
                node.meta.pop(key, None)


FxFunction = Callable[[fx.GraphModule], Result]


def traced_on(device: torch.device | None, target: torch.device | None, gm: fx.GraphModule, run: FxFunction) -> Result:
    """Run a pass that traces the graph, on the device that its inputs are on.

    `gm` is for `target`, which PyTorch may know by name only. All devices in it are the same, so that they can stand
    for another while it is traced.
    """
    if device is None or target is None or device == target:
        return run(gm)
    here, _ = rewrite_devices(gm, device)
    result, metadata = run(here)
    there, _ = rewrite_devices(result, target)
    return there, metadata
