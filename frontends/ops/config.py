"""Priorities of several ops as one immutable value."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from vllm_ir.frontends.ops.priority import override, priority
from vllm_ir.frontends.ops.registry import ops
from vllm_ir.frontends.ops.size_ranges import Priority, SizeRanges


@dataclass(frozen=True, init=False, repr=False)
class IrOpPriorityConfig:
    """Priority lists by op: `IrOpPriorityConfig(rms_norm=["cpu", "native"])`.

    Ops and providers may be registered after the config is made; they are looked up when it is applied.
    """

    priorities: tuple[tuple[str, Priority], ...]
    """(op, providers or size ranges) pairs, sorted by op."""

    def __init__(self, **priorities: Sequence[str] | SizeRanges) -> None:
        """Make a config.

        Raises:
            TypeError: a priority is not a list of strings.
            ValueError: a priority names a provider twice.
        """
        pairs = [(op, priority(op, priorities[op])) for op in sorted(priorities)]
        object.__setattr__(self, "priorities", tuple(pairs))

    def __repr__(self) -> str:
        lists = (f"{op}={list(p) if isinstance(p, tuple) else p}" for op, p in self.priorities)
        return f"IrOpPriorityConfig({', '.join(lists)})"

    def apply(self) -> AbstractContextManager[None]:
        """A context manager that puts these priorities in force; ops that are not named keep theirs.

        The platform's own order comes behind what is named.

        Raises:
            AttributeError: an op is not registered.
            ValueError: a provider has no implementation of its op.
        """
        return override({op: ops[op].before_platform(providers) for op, providers in self.priorities})


@dataclass(frozen=True)
class KernelConfig:
    """How kernels are chosen: `KernelConfig(ir_op_priority={"rms_norm": ["cpu", "native"]})`."""

    ir_op_priority: IrOpPriorityConfig | Mapping[str, Sequence[str] | SizeRanges] = field(
        default_factory=IrOpPriorityConfig
    )
    """Priority lists by op; a mapping becomes an `IrOpPriorityConfig`."""

    def __post_init__(self) -> None:
        """Check the priorities' form; errors as for `IrOpPriorityConfig`."""
        if not isinstance(self.ir_op_priority, IrOpPriorityConfig):
            object.__setattr__(self, "ir_op_priority", IrOpPriorityConfig(**self.ir_op_priority))

    def apply(self) -> AbstractContextManager[None]:
        """A context manager that puts this config in force; errors as for `IrOpPriorityConfig.apply`."""
        config = self.ir_op_priority
        return (config if isinstance(config, IrOpPriorityConfig) else IrOpPriorityConfig(**config)).apply()
