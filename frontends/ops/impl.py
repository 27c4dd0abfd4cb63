"""One implementation of an op: a provider's function with the op's signature."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType

import torch

NATIVE = "native"
"""The provider that every op has: its own definition."""


def location_of(fn: Callable[..., object]) -> str:
    """The `file:line` at which a Python function was written, or its `repr` when it has no code object."""
    if isinstance(fn, FunctionType):
        return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
    return repr(fn)


@dataclass(frozen=True, eq=False)
class IrOpImpl:
    """A provider's implementation of an op.

    The function takes exactly the op's parameters and gives results of the same shapes and dtypes as the native
    definition; operands for which it gives others are refused when a graph is lowered. With `inplace` it may overwrite
    the op's activations and return them (or not) as results; without it, it leaves all its arguments as they are.
    """

    op_name: str
    provider: str
    fn: Callable[..., object]
    result_count: int
    supported: bool = True
    """False where the provider cannot run at all in this process: a missing library, another platform."""
    supports_args: Callable[..., object] | None = None
    """Whether `fn` takes these arguments; None accepts all. It is called on fake tensors too."""
    inplace: bool = False

    @property
    def location(self) -> str:
        """The `file:line` of the function."""
        return location_of(self.fn)

    def supports(self, args: Sequence[object]) -> bool:
        """Whether this implementation may run on `args`, the op's arguments by position, defaults filled in."""
        return self.rejection(args) is None

    def rejection(self, args: Sequence[object]) -> str | None:
        """Why this implementation may not run on `args`; None if it may.

        A `supports_args` that raises, or that answers anything but a bool, is a fault of the provider and not a
        reason to pick another one.

        Raises:
            RuntimeError: `supports_args` raised; the cause is chained.
            TypeError: `supports_args` did not return a bool.
        """
        if not self.supported:
            return "not supported in this process"
        if self.supports_args is None:
            return None
        try:
            answer = self.supports_args(*args)
        except Exception as error:
            raise RuntimeError(
                f"vllm_ir.{self.op_name}: supports_args of provider {self.provider!r} "
                f"({location_of(self.supports_args)}) raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(answer, bool | torch.SymBool):
            raise TypeError(
                f"vllm_ir.{self.op_name}: supports_args of provider {self.provider!r} "
                f"({location_of(self.supports_args)}) must return a bool, got {type(answer).__name__}"
            )
        return None if answer else "supports_args refused the arguments"
