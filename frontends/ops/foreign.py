"""Ops of another registry that defines operators in the same torch namespace, as providers of ours.

vLLM's registry (`vllm.ir.op`) is such a one, and what is asked for here is its shape: a class `IrOp` whose `registry`
maps names to ops; ops with `torch_op`, `activations`, `get_priority()` and `impls`, which maps providers to
implementations; and implementations with `impl_fn`, `supported` and, in later versions, `supports_args` and `inplace`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from vllm_ir.frontends.ops.impl import NATIVE, IrOpImpl

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.op import IrOp

_logger = logging.getLogger("vllm_ir.ops")


class OtherImpl(Protocol):
    """An implementation in another registry."""

    impl_fn: Callable[..., object]
    supported: bool


@runtime_checkable
class OtherOp(Protocol):
    """An op in another registry."""

    torch_op: object
    activations: Sequence[str]
    impls: Mapping[str, OtherImpl]

    def get_priority(self) -> list[str]:
        """The providers that are asked there, in order; empty where none was named."""
        ...


class ForeignOp:
    """The op of another registry that has the same torch operator as one of ours.

    Attributes:
        op: the other registry's op.
    """

    def __init__(self, op: OtherOp) -> None:
        """Of the other registry's op, none of whose implementations is taken yet."""
        self.op = op
        self._taken: dict[str, OtherImpl] = {}

    def refresh(self, ours: IrOp, impls: dict[str, IrOpImpl]) -> bool:
        """Take the implementations that were registered there since the last time into `impls`, and drop others.

        Those of ours stay where both have a provider of one name, and the native definition is ours. Returns whether
        there was any change.
        """
        theirs = self.op.impls
        if theirs == self._taken:
            return False
        before, self._taken = self._taken, dict(theirs)
        for provider in before.keys() - theirs.keys():
            if provider in impls and impls[provider].adopted:
                del impls[provider]
        for provider, impl in theirs.items():
            known = impls.get(provider)
            if before.get(provider) is not impl and provider != NATIVE and (known is None or known.adopted):
                impls[provider] = self._adopted(ours, provider, impl)
        return True

    def priority(self) -> tuple[str, ...] | None:
        """The priority list that is in force there; None if there is none."""
        return tuple(self.op.get_priority()) or None

    def _adopted(self, ours: IrOp, provider: str, impl: OtherImpl) -> IrOpImpl:
        inplace = cast("bool | Sequence[str]", getattr(impl, "inplace", False))
        written = self.op.activations if inplace is True else inplace or ()
        return IrOpImpl(
            ours,
            provider,
            impl.impl_fn,
            impl.supported,
            _predicate(impl),
            tuple(name for name in ours.parameters if name in written),
            bool(getattr(impl, "batch_invariant", False)),
            adopted=True,
        )


def _predicate(impl: OtherImpl) -> Callable[..., object] | None:
    if getattr(impl, "supports_all_args", False):
        return None
    # The function that was registered, where there is one: `uuid` would not see its code through a bound method.
    registered = getattr(impl, "_supports_args", None)
    return registered or cast("Callable[..., object] | None", getattr(impl, "supports_args", None))


def find_foreign(name: str, torch_op: object) -> ForeignOp | None:
    """The op behind an overload that another package has defined, in whichever registry that is loaded."""
    for module in tuple(sys.modules.values()):
        kind = cast("object", getattr(module, "__dict__", {}).get("IrOp"))
        registry = cast("object", getattr(kind, "registry", None))
        if isinstance(registry, Mapping):
            op = cast("Mapping[str, object]", registry).get(name)
            if isinstance(op, OtherOp) and op.torch_op is torch_op:
                return ForeignOp(op)
    _logger.warning(
        "vllm_ir.%s: another package has defined this operator, and no registry has it that is loaded; what kernels it "
        "has are not used unless vllm_ir.adopt(registry) says where they are",
        name,
    )
    return None
