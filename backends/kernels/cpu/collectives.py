"""Provider `cpu` of the collectives: `all_reduce` in the operand's memory, on groups whose backend for the CPU is gloo.

`reduce_scatter` and `all_gather` have no implementation here. Their results are new memory in any case, of which the
functional collectives allocate exactly what is needed; the variants with `out` would be given the same memory.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# torch's operators lack types.

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.layouts import is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define, in_place_fake
from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
SUPPORTED = torch.distributed.is_available()


def _all_reduce_(x: Tensor, group_name: str) -> None:
    functional = torch.ops._c10d_functional
    whole = x.contiguous()
    functional.wait_tensor(functional.all_reduce_(whole, "sum", group_name))
    if whole is not x:
        x.copy_(whole)


# An operator of our own: torch's in-place collective has a functional twin, which compilers put in its place, and that
# copies what it is given.
ALL_REDUCE_ = define("all_reduce_(Tensor(a!) x, str group_name) -> ()", in_place_fake, _all_reduce_)


def _is_contiguous(x: Tensor) -> bool:
    """Whether elements lie behind one another, which gloo asks of what it writes; certain, and without a guard."""
    expected: int | torch.SymInt = 1
    for size, stride in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        if not known(size == 1) and not known(stride == expected):
            return False
        expected = expected * size
    return True


def takes_all_reduce(x: Tensor, group_name: str) -> bool:
    """Whether the sum can be made in the memory of `x`."""
    if not is_dense(x) or x.dtype not in (*_FLOATS, *_INTEGERS) or not _is_contiguous(x):
        return False
    # Not there in a torch without collectives.
    from vllm_ir.frontends.distributed.torch_internals import cpu_backend, group_named

    group = group_named(group_name)
    return group is not None and cpu_backend(group) == "gloo"


@ops.all_reduce.register_impl(PROVIDER, supported=SUPPORTED, supports_args=takes_all_reduce, inplace=True)
def all_reduce(x: Tensor, group_name: str) -> Tensor:
    """`all_reduce` in place of `x`."""
    call(ALL_REDUCE_, x, group_name)
    return x
