"""One implementation of an op: a provider's function with the op's signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import StackSummary
from typing import TYPE_CHECKING, Any

from vllm_ir.frontends.ops.eager import run_functional
from vllm_ir.frontends.ops.predicates import accepts
from vllm_ir.frontends.ops.signature import location_of
from vllm_ir.frontends.ops.sources import source_hash
from vllm_ir.frontends.ops.torch_library import unpacked

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.op import IrOp

NATIVE = "native"
"""The provider that every op has: its own definition."""

RESERVED_PROVIDERS = (NATIVE, "unfused")
"""Names that no implementation can be registered under."""


@dataclass(frozen=True, eq=False, repr=False)
class IrOpImpl:
    """A provider's implementation of an op; call it like the function it was made from.

    The function takes exactly the op's parameters and gives results of the same shapes and dtypes as the native
    definition; operands for which it gives others are refused when a graph is lowered. It leaves its arguments as they
    are, except for the activations named in `written`, which it may overwrite and return (or not) as results.
    """

    op: IrOp
    provider: str
    impl_fn: Callable[..., object]
    """The function itself; it overwrites what is in `written`."""
    supported: bool = True
    """False where the provider cannot run at all in this process: a missing library, another platform."""
    predicate: Callable[..., object] | None = None
    """`supports_args` as it was registered; None accepts all."""
    written: tuple[str, ...] = ()
    """The activations that the function really writes, in the order of the parameters."""
    batch_invariant: bool = False
    """Whether each row's bits depend neither on the other rows nor on their number; the provider's own word."""
    sources: tuple[Path, ...] = ()
    """Files that the function depends on beside its Python code: those of a compiled kernel."""
    registration_stack: StackSummary | None = field(default=None, compare=False)
    """Where it was registered, the innermost frame last."""
    adopted: bool = False
    """Whether it comes from another registry; one of ours under the same provider takes its place."""

    written_indices: tuple[int, ...] = field(init=False, compare=False)
    """The positions of `written` among the op's parameters."""

    def __post_init__(self) -> None:
        """Look up the positions once: they are needed in every call."""
        object.__setattr__(self, "written_indices", tuple(map(self.op.parameters.index, self.written)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: each op has its own signature, known only at run time
        """Call the function as it is; it overwrites what is in `written`."""
        return self.impl_fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<IrOpImpl {self.op.name} by {self.provider!r} at {self.location}>"

    @property
    def op_name(self) -> str:
        """The name of the op."""
        return self.op.name

    @property
    def inplace(self) -> bool:
        """Whether the function writes any activation."""
        return bool(self.written)

    @property
    def location(self) -> str:
        """The `file:line` of the function."""
        return location_of(self.impl_fn)

    @property
    def supports_all_args(self) -> bool:
        """Whether it takes all arguments that the op takes."""
        return self.predicate is None

    def uuid(self) -> str:
        """A hash of all that the implementation depends on: its code, the code it calls, its predicate, its files.

        What is unrelated in the same files plays no part; versions of PyTorch and others belong beside it.
        """
        facts = (self.op.name, self.provider, self.op.schema_text, self.written, self.supported, self.batch_invariant)
        return source_hash([*facts, self.impl_fn, self.predicate, *self.sources])

    def sources_in_use(self, names: Iterable[str]) -> Iterable[object]:
        """What code depends on that calls the implementation: its function, wherever that stands."""
        return (self.op.name, self.provider, self.impl_fn)

    def func_impl_fn(self, *args: Any, **kwargs: Any) -> Any:  # Any: as above
        """The implementation without effects: on copies of what it writes, with results in memory of their own."""
        return unpacked(run_functional(self, self.op.bound(args, kwargs)))

    def supports_args(self, *args: object, **kwargs: object) -> bool:
        """Whether it takes these arguments, real or fake; defaults are filled in. Errors are those of `rejection`.

        Whether the process supports the provider at all is `supported`.
        """
        return self._refusal(self.op.bound(args, kwargs)) is None

    def rejection(self, args: Sequence[object]) -> str | None:
        """Why this implementation may not run on `args`, by position with defaults filled in; None if it may.

        A `supports_args` that raises, or that has no answer for all sizes, is a fault of the provider and not a reason
        to pick another one. Errors are those of `predicates.accepts`.
        """
        return self._refusal(args) if self.supported else "not supported in this process"

    def _refusal(self, args: Sequence[object]) -> str | None:
        if self.predicate is None:
            return None
        asked = f"vllm_ir.{self.op.name}: supports_args of provider {self.provider!r}"
        return None if accepts(self.predicate, args, asked) else "supports_args refused the arguments"
