"""Decomposition of torch's view-copy operators (`as_strided_copy`, `unbind_copy` …) into the view and a clone.

A view-copy operator may read its operand by storage position. As a view followed by a clone, that read is visible to
alias analysis.
"""

import functools
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.torch_internals import Overload, aten_overload, aten_overloads_tagged, names_of, schema_of


@functools.cache
def view_copy_decompositions() -> Mapping[Overload, Callable[..., object]]:
    """For every functional ATen overload with `torch.Tag.view_copy`: a function that calls the view and clones it."""
    views = {copy: _view_of(copy) for copy in aten_overloads_tagged(torch.Tag.view_copy)}
    return {copy: _decomposition(view) for copy, view in views.items() if view is not None}


def _view_of(copy: Overload) -> Overload | None:
    """The view that `copy` materialises: same arguments, and the first of them aliased by the result."""
    packet, overload = names_of(copy)
    if schema_of(copy).is_mutable or not packet.endswith("_copy"):
        return None
    view = aten_overload(packet.removesuffix("_copy"), overload)
    # make_fx itself writes `lift_fresh_copy`, to keep constants apart from the program's mutations of them.
    if view is None or view in cast("Mapping[object, object]", FakeTensorMode.lift_fns):
        return None
    schema = schema_of(view)
    aliased = bool(schema.arguments) and schema.arguments[0].alias_info is not None and not schema.is_mutable
    return view if aliased and _signature(copy) == _signature(view) else None


def _signature(op: Overload) -> list[tuple[str, str]]:
    # The types are without alias annotations, so a view and its copy agree.
    return [(argument.name, str(argument.type)) for argument in schema_of(op).arguments]


def _decomposition(view: Overload) -> Callable[..., object]:
    def view_then_clone(*args: object, **kwargs: object) -> object:
        return pytree.tree_map_only(torch.Tensor, _contiguous_clone, view(*args, **kwargs))

    return view_then_clone


def _contiguous_clone(view: torch.Tensor) -> torch.Tensor:
    return view.clone(memory_format=torch.contiguous_format)
