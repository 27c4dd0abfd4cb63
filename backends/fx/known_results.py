"""Fake results of calls, for operands of layouts that were seen before: a fake kernel takes ten times as long."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from vllm_ir.frontends.fx.schemas import Target, op_info
from vllm_ir.frontends.fx.storages import storage_key, tensors_in
from vllm_ir.frontends.fx.torch_internals import has_symbolic_metadata, new_fake, new_fake_view
from vllm_ir.frontends.fx.torch_objects import is_overload, map_nodes
from vllm_ir.frontends.fx.values import is_sequence

_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout)


class _Layout(NamedTuple):
    """How to make a result again."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device
    offset: int
    is_view: bool
    """Whether it lies in the memory of the first argument; otherwise it is alone in its own."""

    def make(self, mode: FakeTensorMode, first: object) -> FakeTensor:
        if self.is_view:
            base = cast(FakeTensor, cast(fx.Node, first).meta["val"])
            return new_fake_view(base, self.sizes, self.strides, self.dtype, self.offset)
        return new_fake(mode, self.sizes, self.strides, self.dtype, self.device)


class KnownResults:
    """Runs operators on fakes; one that gives a single tensor runs once for operands of equal layouts."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._layouts: dict[Hashable, _Layout | None] = {}

    def value(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """What a call with these arguments gives, nodes standing for their fakes."""
        key = self._key(target, args, kwargs)
        if key is not None and (layout := self._layouts.get(key)) is not None:
            return layout.make(self.mode, args[0] if args else None)
        fake_args, fake_keywords = map_nodes((args, dict(kwargs)), _value_of)
        with enable_python_dispatcher():  # the C++ versions of composite operators do not all know symbolic sizes
            value = cast(Callable[..., object], target)(*fake_args, **fake_keywords)
        if key is not None and key not in self._layouts:
            self._layouts[key] = _layout(value, (*fake_args, *fake_keywords.values()))
        return value

    def _key(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Hashable:
        if not is_overload(target) or op_info(target).writes:
            return None
        parts = [_part(argument) for argument in (*args, *kwargs.values())]
        return None if None in parts else (target, *parts, *kwargs)


def _value_of(node: fx.Node) -> object:
    return node.meta["val"]


def _part(argument: object) -> Hashable:
    """What the fake result may depend on; None if it cannot be told."""
    if isinstance(argument, fx.Node):
        argument = argument.meta["val"]
    if isinstance(argument, Tensor):
        if (
            type(argument) is not FakeTensor
            or has_symbolic_metadata(argument)
            or argument.is_conj()
            or argument.is_neg()
        ):
            return None
        return argument.dtype, tuple(argument.shape), argument.stride(), argument.storage_offset(), argument.device
    if is_sequence(argument):
        parts = [_part(item) for item in argument]
        return None if None in parts else (type(argument), *parts)
    return (type(argument), argument) if isinstance(argument, _PLAIN) else None


def _layout(value: object, arguments: tuple[object, ...]) -> _Layout | None:
    """How to make the result again; None if it is neither a new tensor nor a view of the first argument."""
    if type(value) is not FakeTensor or has_symbolic_metadata(value) or value.layout != torch.strided:
        return None
    if value.is_conj() or value.is_neg():
        return None
    key, keys = storage_key(value), [storage_key(tensor) for tensor in tensors_in(arguments)]
    is_view = keys.count(key) == 1 and isinstance(arguments[0], FakeTensor) and storage_key(arguments[0]) == key
    if not is_view and (key in keys or value.storage_offset() != 0):
        return None
    return _Layout(value.dtype, tuple(value.shape), value.stride(), value.device, int(value.storage_offset()), is_view)
