"""Fake results of calls, for operands of layouts that were seen before: a fake kernel takes ten times as long."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias, cast

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from vllm_ir.frontends.fx.schemas import Target, op_info
from vllm_ir.frontends.fx.storages import storage_key, tensors_in
from vllm_ir.frontends.fx.torch_internals import has_symbolic_metadata, new_fake
from vllm_ir.frontends.fx.torch_objects import is_overload, map_nodes
from vllm_ir.frontends.fx.values import is_sequence

_Layout: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], torch.device]
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout)


class KnownResults:
    """Runs operators on fakes; one that gives a single new tensor runs once for operands of equal layouts."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._layouts: dict[Hashable, _Layout | None] = {}

    def value(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """What a call with these arguments gives, nodes standing for their fakes."""
        key = self._key(target, args, kwargs)
        if key is not None and (layout := self._layouts.get(key)) is not None:
            dtype, sizes, strides, device = layout
            return new_fake(self.mode, sizes, strides, dtype, device)
        fake_args, fake_keywords = map_nodes((args, dict(kwargs)), _value_of)
        value = cast(Callable[..., object], target)(*fake_args, **fake_keywords)
        if key is not None and key not in self._layouts:
            self._layouts[key] = _layout(value, (*fake_args, *fake_keywords.values()))
        return value

    def _key(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Hashable:
        if not is_overload(target) or op_info(target).is_view or op_info(target).writes:
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
    """How to make the result again; None if it is no new tensor alone in its memory."""
    if type(value) is not FakeTensor or has_symbolic_metadata(value) or value.layout != torch.strided:
        return None
    keys = [storage_key(tensor) for tensor in tensors_in(arguments)]
    if storage_key(value) in keys or value.storage_offset() != 0 or value.is_conj() or value.is_neg():
        return None
    return value.dtype, tuple(value.shape), value.stride(), value.device
