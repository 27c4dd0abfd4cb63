"""The overload `maybe_inplace` of an op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.compiler import is_dynamo_compiling

from vllm_ir.frontends.ops.torch_library import TorchOp
from vllm_ir.frontends.ops.torch_wrap import torch_wrap_enabled

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.op import IrOp


class IrOpInplaceOverload:
    """An op whose caller promises not to read the activations afterwards, so that a kernel may overwrite them.

    Attributes:
        op: the op.
        name: `<op>.maybe_inplace`.
        torch_op: `torch.ops.vllm_ir.<op>.maybe_inplace`.
    """

    def __init__(self, op: IrOp, torch_op: TorchOp) -> None:
        """Of an op, with the overload in torch; use `IrOp.maybe_inplace`."""
        self.op = op
        self.name = f"{op.name}.maybe_inplace"
        self.torch_op = torch_op
        self._routes = op.routes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: each op has its own signature, known only at run time
        """Compute the op, perhaps over the activations; tracers record the call as one node."""
        if not is_dynamo_compiling():
            given = tuple(self.op.bound(args, kwargs)) if kwargs else args
            route = self._routes.of(given)
            if route is not None:
                return route.donate(given)
        if torch_wrap_enabled():
            return self.torch_op(*args, **kwargs)
        return self.op.choose(*args, **kwargs).impl_fn(*self.op.bound(args, kwargs))

    def __deepcopy__(self, memo: object) -> IrOpInplaceOverload:
        return self  # copies of models call the same op

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self.op, "maybe_inplace")

    def __repr__(self) -> str:
        return f"<IrOpInplaceOverload {self.name}>"
