"""All registered ops, by name and by torch overload."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import torch
from torch._ops import OpOverload

from vllm_ir.frontends.ops.op import IrOp
from vllm_ir.frontends.ops.signature import RegistrationError, location_of
from vllm_ir.frontends.ops.torch_library import TorchOp


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

    def sources_in_use(self, names: Iterable[str]) -> Iterable[object]:
        """What code depends on in which `names` occur: the ops that it names. See `sources.py`."""
        return (self[name] for name in self if name in names)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


ops = OpNamespace()
_BY_OVERLOAD: dict[object, IrOp] = {}


@overload
def register_op(native: Callable[..., object], /) -> IrOp: ...


@overload
def register_op(
    *,
    name: str | None = None,
    tags: tuple[torch.Tag, ...] = (),
    activations: Sequence[str] | None = None,
    allow_inplace: bool = False,
    reuses: Sequence[str | None] | None = None,
    batch_invariant: bool = False,
    row_wise: bool = False,
) -> Callable[[Callable[..., object]], IrOp]: ...


def register_op(
    native: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    tags: tuple[torch.Tag, ...] = (),
    activations: Sequence[str] | None = None,
    allow_inplace: bool = False,
    reuses: Sequence[str | None] | None = None,
    batch_invariant: bool = False,
    row_wise: bool = False,
) -> IrOp | Callable[[Callable[..., object]], IrOp]:
    """Make an op of the decorated function, which is its native definition; the function becomes the `IrOp`.

    Args:
        native: see `IrOp`.
        name: the op's name; the function's own by default.
        tags: see `IrOp`.
        activations: see `IrOp`. By default the tensor parameters whose names start with `x`.
        allow_inplace: whether the op has the overload `maybe_inplace`.
        reuses: see `IrOp`. By default results reuse activations one to one, in order.
        batch_invariant: see `IrOp`.
        row_wise: see `IrOp`.

    Raises:
        RegistrationError: the name is taken or invalid, the function's signature cannot be an op's, or the options do
            not fit the signature.
    """

    def register(fn: Callable[..., object]) -> IrOp:
        op_name = getattr(fn, "__name__", "") if name is None else name
        if op_name in ops:
            known = location_of(ops[op_name].native)
            raise RegistrationError(f"vllm_ir.{op_name} is registered twice: at {known} and at {location_of(fn)}")
        op = IrOp(op_name, fn, tags, activations, allow_inplace, reuses, batch_invariant, row_wise)
        vars(ops)[op_name] = op
        IrOp.registry[op_name] = op
        _BY_OVERLOAD.update(dict.fromkeys(_overloads(op), op))
        return op

    return register if native is None else register(native)


def unregister(op: IrOp) -> None:
    """Forget an op that `register_op` has made, in torch as well; for tests, which make ops of their own.

    Raises:
        ValueError: it is not registered.
    """
    if IrOp.registry.get(op.name) is not op:
        raise ValueError(f"vllm_ir.{op.name} is not registered")
    del IrOp.registry[op.name]
    del vars(ops)[op.name]
    for torch_op in _overloads(op):
        del _BY_OVERLOAD[torch_op]
    op.undefine()


def _overloads(op: IrOp) -> list[TorchOp]:
    return [op.torch_op] if op.maybe_inplace is None else [op.torch_op, op.maybe_inplace.torch_op]


def get_op(torch_op: object) -> IrOp | None:
    """The op that an FX node's target is an overload of (`default` or `maybe_inplace`); None for any other target."""
    return _BY_OVERLOAD.get(torch_op) if isinstance(torch_op, OpOverload) else None  # pyright: ignore[reportUnknownArgumentType]  # the overload's own type parameters


def donates(torch_op: object) -> bool:
    """Whether an FX node's target is an op's overload `maybe_inplace`."""
    op = get_op(torch_op)
    return op is not None and torch_op is not op.torch_op
