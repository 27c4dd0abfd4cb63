"""What fuzzing needs of Dynamo's private parts, behind typed functions."""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false, reportUnknownVariableType=false
# pyright: reportArgumentType=false, reportCallIssue=false
# Private and unknown: none of this is meant as an interface, and little of it has types.

import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch._dynamo
from torch._dynamo.exc import BackendCompilerFailed, InternalTorchDynamoError, Unsupported, UserError


def compile_program(
    program: Callable[..., object], backend: str, options: Mapping[str, object], *, dynamic: bool
) -> Callable[..., object]:
    """The program compiled as one graph by a backend, for changing sizes if it is `dynamic`."""
    return torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic, options=dict(options))


def define_operator(
    library: torch.library.Library,
    name: str,
    schema: str,
    implementation: Callable[..., object],
    fake: Callable[..., object],
) -> None:
    """Add an operator to a library; `fake` is what it does on tensors without data."""
    library.define(name + schema)
    library.impl(name, implementation, "CompositeExplicitAutograd")
    library.impl(name, fake, "Meta")


def values_of(tensor: torch.Tensor) -> object:
    """The elements as Python numbers in nested lists."""
    return tensor.tolist()


def reset_dynamo() -> None:
    """Forget everything that was compiled."""
    torch._dynamo.reset()


def cause(error: Exception) -> Exception:
    """The exception that Dynamo has wrapped, or the exception itself."""
    if isinstance(error, BackendCompilerFailed):
        return error.inner_exception
    if isinstance(error, InternalTorchDynamoError) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return error


_PRODUCT = Path(__file__).parents[2]
_FOLDERS = ("frontends", "conversions", "backends")


def refused_by_dynamo(error: Exception) -> bool:
    """Whether Dynamo has no graph for a program, or fails on it, whatever the backend: none of our code has run."""
    if isinstance(error, Unsupported | UserError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    own = any(str(_PRODUCT / folder) in frame.filename for frame in frames for folder in _FOLDERS)
    return isinstance(error, InternalTorchDynamoError) and not own


@contextmanager
def plain_conditions() -> Generator[None]:
    """Let `torch.cond` run its branches as they are; PyTorch's own compiles them in eager mode, which takes long.

    Both branches run, to see that their results are of the same kind, as a graph needs them to be.
    """

    def cond(
        condition: torch.Tensor,
        first: Callable[..., tuple[torch.Tensor, ...]],
        second: Callable[..., tuple[torch.Tensor, ...]],
        operands: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        one, other = first(*operands), second(*operands)
        if [(t.dtype, t.shape, t.stride()) for t in one] != [(t.dtype, t.shape, t.stride()) for t in other]:
            raise ValueError("the branches give different tensors")
        return one if condition else other

    original = torch.cond
    torch.cond = cond
    try:
        yield
    finally:
        torch.cond = original
