"""Collectives over the ranks of a process group, in terms of torch's functional collectives.

`group_name` is the name under which torch knows the group, `ProcessGroup.group_name`. All ranks of the group call the
same op with tensors of the same dtype and shape. Results wait for the other ranks before anything reads them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# torch's operators lack types.

from typing import cast

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op

if torch.distributed.is_available():
    import torch.distributed._functional_collectives  # pyright: ignore[reportUnusedImport]  # defines fake collectives

_functional = torch.ops._c10d_functional


@register_op(allow_inplace=True)
def all_reduce(x: Tensor, group_name: str) -> Tensor:
    """The sum of what all ranks give as `x`, on every rank.

    Args:
        x: any tensor that the group's backend adds up.
        group_name: the group.

    Returns:
        A contiguous tensor like `x`.
    """
    return summed(x, group_name)


@register_op
def reduce_scatter(x: Tensor, dim: int, world_size: int, group_name: str) -> Tensor:
    """A rank's piece of the sum of what all ranks give as `x`, cut along `dim` into one piece for each rank.

    Args:
        x: any tensor that the group's backend adds up.
        dim: the dimension that is cut; a negative one counts from the end.
        world_size: number of ranks in the group.
        group_name: the group.

    Returns:
        Like `x`, but `dim`, which is `world_size` times shorter; contiguous.

    Raises:
        ValueError: `x` has no such dimension, or its size is no multiple of `world_size`, or that is not positive.
    """
    dim = _dimension("reduce_scatter", x, dim, world_size)
    if x.shape[dim] % world_size:
        raise ValueError(
            f"vllm_ir.reduce_scatter: dimension {dim} of x must be a multiple of world_size {world_size}, got shape "
            f"{list(x.shape)}"
        )
    # Pieces lie behind one another in what is sent.
    pieces = x.unflatten(dim, (world_size, x.shape[dim] // world_size)).movedim(dim, 0).contiguous()
    return _waited(_functional.reduce_scatter_tensor(pieces, "sum", world_size, group_name)).squeeze(0)


@register_op
def all_gather(x: Tensor, dim: int, world_size: int, group_name: str) -> Tensor:
    """What all ranks give as `x`, behind one another along `dim` in the order of the ranks, on every rank.

    Args:
        x: any tensor with a dimension.
        dim: the dimension that grows; a negative one counts from the end.
        world_size: number of ranks in the group.
        group_name: the group.

    Returns:
        Like `x`, but `dim`, which is `world_size` times longer; contiguous.

    Raises:
        ValueError: `x` has no such dimension, or `world_size` is not positive.
    """
    dim = _dimension("all_gather", x, dim, world_size)
    # Nothing is computed, and gloo knows no 8-bit floats: their bytes are sent.
    as_bytes = x.is_floating_point() and x.itemsize == 1
    sent = (x.view(torch.uint8) if as_bytes else x).unsqueeze(0).contiguous()
    pieces = _waited(_functional.all_gather_into_tensor(sent, world_size, group_name))
    whole = pieces.movedim(0, dim).flatten(dim, dim + 1).contiguous()
    return whole.view(x.dtype) if as_bytes else whole


def summed(x: Tensor, group_name: str) -> Tensor:
    """The definition of `all_reduce`."""
    return _waited(_functional.all_reduce(x, "sum", group_name))


@all_reduce.register_input_generator
def generate_all_reduce_inputs(
    num_tokens: int = 16, hidden_size: int = 64, group_name: str = "0", dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments; the default group of a process has the name "0"."""
    return torch.randn(num_tokens, hidden_size).to(dtype), group_name


@reduce_scatter.register_input_generator
def generate_reduce_scatter_inputs(
    num_tokens: int = 16,
    hidden_size: int = 64,
    dim: int = 0,
    world_size: int = 1,
    group_name: str = "0",
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments; `num_tokens` or `hidden_size`, as `dim` says, is made a multiple of `world_size`."""
    shape = [num_tokens, hidden_size]
    shape[dim] = -(-shape[dim] // world_size) * world_size
    return torch.randn(shape).to(dtype), dim, world_size, group_name


@all_gather.register_input_generator
def generate_all_gather_inputs(
    num_tokens: int = 16,
    hidden_size: int = 64,
    dim: int = 0,
    world_size: int = 1,
    group_name: str = "0",
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments."""
    return torch.randn(num_tokens, hidden_size).to(dtype), dim, world_size, group_name


def _waited(sent: object) -> Tensor:
    return cast("Tensor", _functional.wait_tensor(sent))


def _dimension(op: str, x: Tensor, dim: int, world_size: int) -> int:
    """`dim` counted from the front."""
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"vllm_ir.{op}: dim {dim} is no dimension of x, which has shape {list(x.shape)}")
    if world_size < 1:
        raise ValueError(f"vllm_ir.{op}: world_size must be positive, got {world_size}")
    return dim % x.dim()
