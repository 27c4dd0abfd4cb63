"""All registered ops, by name and by torch overload."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from torch._ops import OpOverload

from vllm_ir.frontends.ops.impl import location_of
from vllm_ir.frontends.ops.op import IrOp


class OpNamespace:
    """Registered ops as attributes: `ops.rms_norm`. Iterating gives their names."""

    def __getattr__(self, name: str) -> IrOp:
        # Ops are instance attributes; Python asks here for everything else.
        raise AttributeError(f"vllm_ir has no op {name!r}; known ops: {', '.join(self) or 'none'}")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(vars(self)))

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __getitem__(self, name: str) -> IrOp:
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


ops = OpNamespace()
_BY_OVERLOAD: dict[object, IrOp] = {}


@overload
def register_op(native: Callable[..., object], /) -> IrOp: ...


@overload
def register_op(
    *, name: str | None = None, activations: Sequence[str] | None = None, allow_inplace: bool | None = None
) -> Callable[[Callable[..., object]], IrOp]: ...


def register_op(
    native: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    activations: Sequence[str] | None = None,
    allow_inplace: bool | None = None,
) -> IrOp | Callable[[Callable[..., object]], IrOp]:
    """Make an op of the decorated function, which is its native definition; the function becomes the `IrOp`.

    Args:
        native: see `IrOp`.
        name: the op's name; the function's own by default.
        activations: see `IrOp`. By default the tensor parameters named `x`, `x_…` or `x1`, `x2`, ….
        allow_inplace: see `IrOp`. By default whether there are activations.

    Raises:
        TypeError: the function's signature cannot be an op's.
        ValueError: the name is taken or not a public identifier, or the options do not fit the signature.
    """

    def register(fn: Callable[..., object]) -> IrOp:
        op_name = getattr(fn, "__name__", "") if name is None else name
        if not op_name.isidentifier() or op_name.startswith("_"):
            raise ValueError(f"{op_name!r} ({location_of(fn)}) cannot name an op: it must be a public identifier")
        if op_name in ops:
            known = location_of(ops[op_name].native)
            raise ValueError(f"vllm_ir.{op_name} is registered twice: at {known} and at {location_of(fn)}")
        op = IrOp(fn, op_name, activations, allow_inplace)
        vars(ops)[op_name] = op
        _BY_OVERLOAD.update({torch_op: op for torch_op in (op.torch_op, op.maybe_inplace) if torch_op is not None})
        return op

    return register if native is None else register(native)


def get_op(torch_op: object) -> IrOp | None:
    """The op that an FX node's target is an overload of (`default` or `maybe_inplace`); None for any other target."""
    return _BY_OVERLOAD.get(torch_op) if isinstance(torch_op, OpOverload) else None  # pyright: ignore[reportUnknownArgumentType]  # the overload's own type parameters
