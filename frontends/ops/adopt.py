"""Taking the ops of another registry of the torch namespace `vllm_ir` over into ours."""

from collections.abc import Mapping
from types import FunctionType
from typing import cast

from vllm_ir.frontends.ops.foreign import ForeignOp, OtherOp
from vllm_ir.frontends.ops.impl import NATIVE
from vllm_ir.frontends.ops.op import IrOp
from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.signature import RegistrationError, location_of, schema_of
from vllm_ir.frontends.ops.torch_internals import find_overload, parse_schema
from vllm_ir.frontends.ops.torch_library import NAMESPACE, same_schema, schema_text


def adopt(registry: Mapping[str, object]) -> list[IrOp]:
    """Make the ops of another registry ops of ours, and its implementations providers of them.

    An op that both have keeps our native definition, and where both have a provider of one name, our implementation.
    What is registered there later is picked up. Calls of the torch operator dispatch over the providers of both; the
    priority list in force there counts where none of ours is set.

    `register_op` does the same by itself, for ops of that name, when the other package was imported first. A package
    that comes second uses the operators that exist (`torch.ops.vllm_ir.<name>.default` and `.maybe_inplace`) instead of
    defining them again, which torch refuses, and calls this function.

    Args:
        registry: ops by name, of the shape of vLLM's `vllm.ir.op.IrOp.registry`.

    Returns:
        Our ops, in the order of the registry.

    Raises:
        TypeError: something in the registry is no such op, or has no native implementation.
        RegistrationError: an op's schema is not that of our op of the same name, or its `torch_op` is not the operator
            of that name; nothing is adopted then.
    """
    theirs = {name: _checked(name, op) for name, op in registry.items() if IrOp.registry.get(name) is not op}
    return [_linked(name, op) for name, op in theirs.items()]


def _checked(name: str, op: object) -> OtherOp:
    native = op.impls.get(NATIVE) if isinstance(op, OtherOp) else None
    if not isinstance(op, OtherOp) or native is None:
        raise TypeError(
            f"vllm_ir.{name}: {op!r} is no op of a registry like vLLM's; it needs torch_op, activations, get_priority "
            "and impls with a native implementation"
        )
    overload = find_overload(NAMESPACE, name, "default")
    if overload is None or op.torch_op is not overload:
        raise RegistrationError(f"vllm_ir.{name}: torch_op of the other registry is {op.torch_op}, not {overload}")
    ours = IrOp.registry.get(name)
    text = schema_of(native.impl_fn, f"vllm_ir.{name}: native implementation of the other registry")
    schema = parse_schema(f"{NAMESPACE}::{name}{text}")
    if ours is not None and not same_schema(schema, ours.schema):
        raise RegistrationError(
            f"vllm_ir.{name}: another registry has the schema {schema_text(schema)} ({location_of(native.impl_fn)}), "
            f"which does not match {schema_text(ours.schema)} ({location_of(ours.native)}); rename one of the ops"
        )
    if ours is not None and getattr(op, "maybe_inplace", None) is not None:
        written = tuple(parameter for parameter in ours.parameters if parameter in op.activations)
        if written != ours.activations:
            raise RegistrationError(
                f"vllm_ir.{name}: another registry has the activations {list(written)} "
                f"({location_of(native.impl_fn)}), which do not match {list(ours.activations)} "
                f"({location_of(ours.native)}); rename one of the ops"
            )
    return op


def _linked(name: str, theirs: OtherOp) -> IrOp:
    ours = IrOp.registry.get(name)
    if ours is None:
        inplace = getattr(theirs, "maybe_inplace", None) is not None
        native = cast("FunctionType", theirs.impls[NATIVE].impl_fn)
        ours = register_op(name=name, activations=theirs.activations, allow_inplace=inplace)(native)
    if ours.foreign is None or ours.foreign.op is not theirs:
        ours.foreign = ForeignOp(theirs)
    return ours
