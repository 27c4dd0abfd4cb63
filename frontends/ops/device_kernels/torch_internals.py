"""The private and untyped parts of torch that calls of kernels rely on, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Private: stacks of modes and versions of tensors have no public form. Unknown: custom operators lack types.

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch._dispatch.python import no_python_dispatcher
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.fx.node import has_side_effect
from torch.utils._python_dispatch import _disable_current_modes

from vllm_ir.frontends.fx.torch_objects import Overload, overloads_of, packet_of
from vllm_ir.frontends.ops.torch_internals import in_function_transform

Fn = TypeVar("Fn", bound=Callable[..., object])
_PLAIN = (Tensor, nn.Parameter, nn.Buffer)


def runs_plainly(tensors: Iterable[Tensor]) -> bool:
    """Whether operators run here and now: nothing traces or intercepts them, and tensors hold data."""
    # By the stack, which each thread has for itself; the flag that PyTorch keeps beside it is that of all threads.
    if torch._C._len_torch_dispatch_stack() or in_function_transform():
        return False
    return all(type(tensor) in _PLAIN and not tensor.is_meta for tensor in tensors)


@contextmanager
def without_modes() -> Generator[None]:
    """A place in the middle of a trace that is not traced."""
    with _disable_current_modes(), no_python_dispatcher(), temporarily_clear_interpreter_stack():
        yield


def version(tensor: Tensor) -> int | None:
    """A number that grows when the memory of a tensor is written; None for tensors that do not count."""
    return None if tensor.is_inference() else tensor._version


def define_custom_operator(
    namespace: str,
    name: str,
    schema: str,
    written: tuple[str, ...],
    run: Callable[..., object],
    fake: Callable[..., object],
) -> Overload:
    """Define an operator whose results are new memory and which writes the arguments `written`.

    A call with arguments that require gradients is no error; going backward through it is.
    """
    operator = torch.library.custom_op(f"{namespace}::{name}", run, mutates_args=written, schema=schema)
    operator.register_fake(fake)
    packet = packet_of(namespace, name)
    if packet is None:
        raise RuntimeError(f"{namespace}::{name} was not defined")
    (defined,) = overloads_of(packet)
    return defined


def one_node(function: Fn) -> Fn:
    """Let Dynamo record calls of `function` as one node, which FX keeps even if its result is not used."""
    return cast(Fn, torch.compiler.allow_in_graph(has_side_effect(function)))
