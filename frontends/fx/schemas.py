"""What PyTorch's operator schemas say: arguments, effects, aliases, and functional twins."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import torch
from torch import FunctionSchema
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from xdsl.utils.exceptions import VerifyException

from vllm_ir.frontends.fx.torch_objects import has_side_effects, is_overload, overloads_of, packet_of, schema_of

Target: TypeAlias = OpOverload | HigherOrderOperator | Callable[..., object]
"""What a call node of a normalised graph calls."""


@dataclass(frozen=True)
class Argument:
    """One argument of a schema."""

    name: str
    keyword_only: bool
    writes: bool
    is_out: bool
    has_default: bool
    default: object


@dataclass(frozen=True)
class OpInfo:
    """Facts about one operator overload.

    `writes`: positions of the arguments that it writes. `random`: it draws random numbers. `external`: it acts outside
    the memory of its operands (assertions, printing). `changes_window`: it changes shape or strides of its operand in
    place (`t_`). `is_view`: its results are declared as views of an argument. `metadata_only`: it looks at sizes, not
    at contents.
    """

    overload: OpOverload
    arguments: tuple[Argument, ...]
    writes: tuple[int, ...]
    random: bool
    external: bool
    changes_window: bool
    is_view: bool
    metadata_only: bool
    layout_sensitive: bool

    @cached_property
    def name(self) -> str:
        """The overload's name in the IR: `aten.add.Tensor`."""
        return target_name(self.overload)

    @cached_property
    def has_results(self) -> bool:
        """Whether it returns anything."""
        return bool(schema_of(self.overload).returns)

    @cached_property
    def places_windows(self) -> bool:
        """Whether it gives a window anywhere in the memory of its operand (`as_strided`)."""
        return (self.is_view or self.changes_window) and any(a.name == "storage_offset" for a in self.arguments)

    @cached_property
    def positional(self) -> int:
        """Number of arguments that are passed by position."""
        return sum(not argument.keyword_only for argument in self.arguments)


@cache
def op_info(overload: OpOverload) -> OpInfo:
    """Facts about `overload`, from its schema and tags."""
    schema = schema_of(overload)
    arguments = tuple(
        Argument(
            a.name,
            bool(a.kwarg_only),
            a.alias_info is not None and a.alias_info.is_write,
            bool(a.is_out),
            a.has_default_value(),
            a.default_value if a.has_default_value() else None,
        )
        for a in schema.arguments
    )
    writes = tuple(index for index, argument in enumerate(arguments) if argument.writes)
    tags = overload.tags
    random = torch.Tag.nondeterministic_seeded in tags
    return OpInfo(
        overload,
        arguments,
        writes,
        random,
        not writes and not random and _acts_outside(overload, schema),
        torch.Tag.inplace_view in tags,
        not writes and any(r.alias_info is not None for r in schema.returns),
        bool(schema.returns) and all(str(r.type) in ("int", "SymInt") or _is_symint(r) for r in schema.returns),
        _is_layout_sensitive(overload),
    )


def _is_symint(argument: torch.Argument) -> bool:
    return str(getattr(argument, "real_type", argument.type)) == "SymInt"


def _acts_outside(overload: OpOverload, schema: FunctionSchema) -> bool:
    # An operator that neither returns nor writes anything can only have been called for something else.
    return not schema.returns or has_side_effects(overload)


def _is_layout_sensitive(overload: OpOverload) -> bool:
    """Whether the result may depend on the strides of operands.

    Of what PyTorch ships, only operators that are tagged so, that are given positions in memory (`as_strided`), or that
    draw random numbers, which fill tensors in the order of their memory.
    """
    if torch.Tag.nondeterministic_seeded in overload.tags:
        return True
    if any(argument.name == "storage_offset" for argument in schema_of(overload).arguments):
        return True
    if {torch.Tag.needs_exact_strides, torch.Tag.needs_fixed_stride_order} & set(overload.tags):
        return True
    return overload.namespace not in ("aten", "prims", "vllm_ir") and torch.Tag.flexible_layout not in overload.tags


@dataclass(frozen=True)
class Twin:
    """A functional operator that computes what a writing one does.

    Result `fresh[k]` is the k-th result that the writing one returns without alias, result `updated[k]` the new value
    of its k-th written argument. `arguments` are the writing one's arguments that the twin takes, by position.
    """

    overload: OpOverload
    arguments: tuple[int, ...]
    fresh: tuple[int, ...]
    updated: tuple[int, ...]


@cache
def functional_twin(overload: OpOverload) -> Twin | None:
    """The functional overload with the same arguments, outputs aside; None if PyTorch has none.

    It is in the packet without the trailing underscore, or in the same packet for `out=` and for operators that return
    new values beside what they write.
    """
    schema = schema_of(overload)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for packet in _twin_packets(overload):
        for candidate in overloads_of(packet):
            other = schema_of(candidate)
            if other.is_mutable or [(a.name, str(a.type)) for a in other.arguments] != wanted:
                continue
            if (twin := _match_returns(schema, candidate)) is not None:
                return twin
    return None


def _twin_packets(overload: OpOverload) -> list[OpOverloadPacket]:
    name = schema_of(overload).name.split("::")[1]
    names = [name]
    if name.startswith("__i") and name.endswith("__"):
        names.insert(0, "__" + name[3:])
    elif name.endswith("_"):
        names.insert(0, name[:-1])
    found = [packet_of(overload.namespace, candidate) for candidate in names]
    return [packet for packet in found if packet is not None]


def _match_returns(schema: FunctionSchema, candidate: OpOverload) -> Twin | None:
    writes = [index for index, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    fresh = [index for index, r in enumerate(schema.returns) if r.alias_info is None]
    if len({schema.arguments[index].is_out for index in writes}) > 1:
        return None  # nothing says in which order the functional form returns the new values of both kinds
    returns = schema_of(candidate).returns
    count = len(returns)
    if any(r.alias_info is not None for r in returns) or count != len(fresh) + len(writes):
        return None
    kept = tuple(index for index, a in enumerate(schema.arguments) if not a.is_out)
    return Twin(candidate, kept, tuple(range(len(fresh))), tuple(range(len(fresh), count)))


@cache
def inplace_form(overload: OpOverload) -> OpOverload | None:
    """The overload that writes what `overload` returns into its first argument (`index_put_` of `index_put`)."""
    schema = schema_of(overload)
    if schema.is_mutable or len(schema.returns) != 1:
        return None
    packet = packet_of(overload.namespace, schema.name.split("::")[1] + "_")
    for candidate in overloads_of(packet) if packet is not None else ():
        twin = functional_twin(candidate) if op_info(candidate).writes == (0,) else None
        if twin is not None and twin.overload is overload:
            return candidate
    return None


@cache
def scattered_view(overload: OpOverload) -> OpOverload | None:
    """For an operator that puts a piece, argument 1, into a base (`select_scatter`): the view that takes the piece.

    That is the overload of the packet without `_scatter` that takes the same arguments but the piece.
    """
    schema = schema_of(overload)
    name = schema.name.split("::")[1]
    packet = packet_of(overload.namespace, name.removesuffix("_scatter")) if name.endswith("_scatter") else None
    wanted = [(a.name, str(a.type)) for a in (schema.arguments[0], *schema.arguments[2:])]
    for candidate in overloads_of(packet) if packet is not None else ():
        info = op_info(candidate)
        arguments = [(a.name, str(a.type)) for a in schema_of(candidate).arguments]
        if info.is_view and not info.places_windows and arguments == wanted:
            return candidate
    return None


@cache
def writes_parts(overload: OpOverload) -> bool:
    """Whether an operator gives its first operand with parts replaced: it is told by an index or a mask which.

    The functional form of such an operator copies the operand; that of others computes all of its result anew.
    """
    named = any(argument.name in ("index", "indices", "mask") for argument in op_info(overload).arguments)
    return named and inplace_form(overload) is not None


@cache
def view_twin(overload: OpOverload) -> OpOverload | None:
    """The view operator that computes the window of a window-changing one (`t_` gives `t`); None if there is none."""
    wanted = [(a.name, str(a.type)) for a in schema_of(overload).arguments]
    for packet in _twin_packets(overload):
        for candidate in overloads_of(packet):
            arguments = [(a.name, str(a.type)) for a in schema_of(candidate).arguments]
            if op_info(candidate).is_view and arguments == wanted:
                return candidate
    return None


def target_name(target: Target) -> str:
    """Name of a call's target in the IR: `aten.add.Tensor`, `higher_order.cond`, `python._operator.add`."""
    if is_overload(target):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return f"python.{target.__module__}.{target.__name__}"


@cache
def resolve(name: str) -> Target:
    """The target of that name; `VerifyException` if there is none."""
    found = _found(name)
    # Names come from text: `@aten.__init__.__globals__` is a name too.
    if found is None or target_name(found) != name:
        raise VerifyException(f"operator @{name} is not registered; import the module that defines it")
    return found


def _found(name: str) -> Target | None:
    kind, _, rest = name.partition(".")
    if kind == "python":
        from vllm_ir.frontends.fx.torch_internals import number_functions  # loads SymPy

        return number_functions().get(rest)
    packet, _, overload = rest.rpartition(".")
    parts = (kind, packet, overload) if kind != "higher_order" else (kind, rest)
    if not all(part.isidentifier() for part in parts):
        return None
    if kind == "device_kernel":
        # Text may call kernels that this process has declared but not called yet.
        importlib.import_module("vllm_ir.frontends.ops.device_kernels.operators").define_named(packet)
    found: object = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    return found if is_overload(found) or isinstance(found, HigherOrderOperator) else None


__all__ = ["OpInfo", "Twin", "functional_twin", "op_info", "resolve", "view_twin"]
