"""Both sides of a fusion on the operands of a site: the last word on whether the fusion may be used there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import PassFailedException, VerifyException

from vllm_ir.conversions.fusion.fusion import Numerics
from vllm_ir.conversions.fusion.matcher import Match, Miss, disagreement
from vllm_ir.conversions.fusion.pattern import Side, Variant
from vllm_ir.conversions.trace import Examples
from vllm_ir.dialects.vllm_ir.types import is_symbolic, shape_of
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.quiet_refusals import quiet_refusals
from vllm_ir.frontends.fx.types import is_shaped, is_tensor
from vllm_ir.frontends.fx.values import decode

_Kinds: TypeAlias = tuple[TensorType[Attribute], ...]
_Parameters: TypeAlias = tuple[tuple[int, Attribute], ...]
_Key: TypeAlias = tuple[Variant, _Kinds, _Parameters]


@dataclass(frozen=True)
class Instance:
    """A variant on operands of certain types, with certain parameters."""

    before: Side
    after: Side


class Instances:
    """The instances that one module needs: layers that are alike are traced once."""

    def __init__(self, allowed: Numerics) -> None:
        self.allowed = allowed
        self.examples = Examples()
        self._known: dict[_Key, Instance | str] = {}
        """Instances, or why the fusion does not apply to such operands."""

    def check(self, variant: Variant, match: Match) -> Instance | Miss:
        """The instance for a match of operators and edges, or why the match is none."""
        root = match.operations[variant.root]
        for number in variant.parameters:
            if number not in match.parameters:
                return Miss(len(variant.nodes), root, f"nothing says what argument {number} of the fusion is")
        kinds = tuple([_tensor_type(value.type) for value in match.tensors])
        parameters = tuple(match.parameters.items())
        # Most types say nothing of their layout, and have no symbols then.
        if not any(not isinstance(kind.encoding, NoneAttr) and is_symbolic(kind) for kind in kinds):
            instance = _static(variant, kinds, parameters, self.allowed)
        elif (instance := self._known.get((variant, kinds, parameters))) is None:
            instance = _traced(variant, kinds, parameters, self.allowed, self.examples)
            self._known[variant, kinds, parameters] = instance
        if isinstance(instance, str):
            return Miss(len(variant.nodes), root, instance)
        miss = disagreement(match, variant, instance.before, self.examples.original)
        return instance if miss is None else miss


@lru_cache(maxsize=1024)
def _static(variant: Variant, kinds: _Kinds, parameters: _Parameters, allowed: Numerics) -> Instance | str:
    """Without symbols, an instance is the same for all modules."""
    return _traced(variant, kinds, parameters, allowed, Examples())


def _traced(
    variant: Variant, kinds: _Kinds, parameters: _Parameters, allowed: Numerics, examples: Examples
) -> Instance | str:
    fusion = variant.fusion
    numbers = {number: decode(found, [], str) for number, found in parameters}
    arguments = variant.filled([examples.tensor(kind) for kind in kinds], numbers)
    numerics = fusion.numerics_of(arguments)
    if numerics > allowed:
        return f"its rounding is {numerics.name.lower()}, allowed is {allowed.name.lower()}"
    if fusion.requires is not None and not fusion.requires(*arguments):
        return f"the condition {getattr(fusion.requires, '__name__', 'requires')} does not hold"
    sides: list[Side] = []
    for which, function in (("before", fusion.before), ("after", fusion.after)):
        try:
            with quiet_refusals():
                sides.append(variant.trace(function, kinds, numbers, examples))
        except (FxImportError, PassFailedException, VerifyException) as error:
            return f"{which} does not take operands of these types: {error_summary(error)}"
    reason = _mismatch(*sides)
    return Instance(*sides) if reason is None else reason


def _mismatch(before: Side, after: Side) -> str | None:
    """How the results of the two sides differ, layout aside."""
    if any(final is not None for final in after.traced.finals):
        return "after writes its arguments"
    if len(before.outputs) != len(after.outputs):
        return f"before gives {len(before.outputs)} results, after {len(after.outputs)}"
    ours, theirs = before.groups, after.groups
    if ours != theirs:
        return f"before has collectives of groups {ours or 'none'}, after of {theirs or 'none'}"
    for index, (one, other) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        if _kind(one.type) != _kind(other.type):
            return f"result {index} is {one.type} before, {other.type} after"
    return None


def _kind(kind: Attribute) -> object:
    return (kind.element_type, shape_of(kind)) if is_shaped(kind) else kind


def _tensor_type(kind: Attribute) -> TensorType[Attribute]:
    if not is_tensor(kind):
        raise TypeError(f"{kind} is not a tensor")
    return kind
