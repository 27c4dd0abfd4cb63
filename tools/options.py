"""`mode` and `options` of `torch.compile(backend="vllm_ir")`."""

import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from vllm_ir.conversions.fusion import using_fusions
from vllm_ir.frontends.ops.priority import only_batch_invariant, wants_batch_invariance
from vllm_ir.tools.fusion_options import FUSION_OPTIONS, FusionOptions, fusion_options
from vllm_ir.tools.pipelines import expand
from vllm_ir.tools.providers import IrOpPriorityConfig, SizeRanges, ops
from vllm_ir.tools.torch_internals import inductor_patches, is_inductor_option

DEFAULT_PASSES = "functionalize,lower,eliminate-clones"

_OWN: Mapping[str, str] = MappingProxyType(
    {
        "ir_op_priority": "{op: [providers] or SizeRanges}",
        "batch_invariant": "True to choose only implementations whose rows do not depend on one another, False for any",
        "passes": f"a pass pipeline as text, {DEFAULT_PASSES!r} by default",
        "validate": "True, or a directory for reproducers: compare what the program does before and behind each pass",
        **FUSION_OPTIONS,
    }
)


@dataclass(frozen=True)
class CompileOptions:
    """What a caller of `torch.compile` may choose."""

    priorities: IrOpPriorityConfig = field(default_factory=IrOpPriorityConfig)
    """Providers by op, on top of those in force when a graph is compiled."""
    batch_invariant: bool | None = None
    """Whether only batch-invariant implementations may be chosen; None leaves what is in force."""
    passes: str = DEFAULT_PASSES
    """The pass pipeline between import and export."""
    validate: str | None = None
    """Where validation writes what shows a fault; None without validation."""
    fusion: FusionOptions | None = None
    """Which fusions apply; None for none but those that `passes` asks for."""
    inductor: Mapping[str, object] = field(default_factory=lambda: {})
    """Configuration patches for Inductor, the `mode` included."""

    def pipeline(self, *, decompose: bool) -> str:
        """The passes, with the fusions right behind `functionalize`.

        Args:
            decompose: the graph consists of the operators that Inductor takes.

        Raises:
            ValueError: there are fusions, and no pass in front of which they could come.
        """
        if self.fusion is None:
            return self.passes
        entries = [str(entry) for entry in expand(self.passes)]
        places = [number for number, entry in enumerate(entries) if entry.partition("{")[0] == "functionalize"]
        if not places:
            raise ValueError(f"option fusions needs functionalize in the pass pipeline, which is {self.passes!r}")
        entries[places[-1] + 1 : places[-1] + 1] = self.fusion.as_passes(decompose=decompose)
        return ",".join(entries)

    @contextmanager
    def apply_priorities(self) -> Generator[None]:
        """A context manager that puts the priorities in force, the restriction to batch-invariant kernels, and fusions.

        Raises:
            ValueError: an op or a provider is not registered, or two fusions have one name.
        """
        try:
            priorities = self.priorities.apply()
        except AttributeError as error:
            raise ValueError(f"option ir_op_priority: {error}") from error
        only = nullcontext() if self.batch_invariant is None else only_batch_invariant(self.batch_invariant)
        with priorities, only, using_fusions(*(self.fusion.added if self.fusion else ())):
            yield

    def resolved(self) -> "CompileOptions":
        """The same options with the priorities of all ops as they are now, for a compilation that happens later."""
        with self.apply_priorities():
            priorities = IrOpPriorityConfig(**{name: ops[name].named_priority() for name in ops})
            return replace(self, priorities=priorities, batch_invariant=wants_batch_invariance())


def parse_options(mode: str | None, options: Mapping[str, object] | None) -> CompileOptions:
    """Read what `torch.compile` hands to a backend.

    Options that are not ours are Inductor's, with the same types and effects as for `backend="inductor"`, and so are
    the modes. The eager backend checks them as well, so that only the backend's name has to change, and ignores them.

    Raises:
        ValueError: an option is unknown or not supported, or a priority list is malformed.
        TypeError: a value has the wrong type.
        RuntimeError: Inductor does not know the mode.
    """
    given = dict(options or {})
    own = {name: given.pop(name) for name in _OWN if name in given}
    unknown = [name for name in given if not is_inductor_option(name)]
    if unknown:
        known = "; ".join(f"{name} ({meaning})" for name, meaning in _OWN.items())
        raise ValueError(
            f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}; known options: {known}; "
            "and every option of Inductor, which torch._inductor.list_options() lists"
        )
    patches = inductor_patches(mode, given)
    if patches.get("freezing"):
        raise ValueError("option 'freezing' is not supported: parameters stay arguments of the compiled graph")
    return CompileOptions(
        priorities=_priorities(own.get("ir_op_priority", {})),
        batch_invariant=_batch_invariant(own.get("batch_invariant")),
        passes=_passes(own.get("passes", DEFAULT_PASSES)),
        validate=_validate(own.get("validate", False)),
        fusion=fusion_options({name: own[name] for name in FUSION_OPTIONS if name in own}),
        inductor=patches,
    )


def _priorities(value: object) -> IrOpPriorityConfig:
    if isinstance(value, IrOpPriorityConfig):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"option ir_op_priority must be {_OWN['ir_op_priority']}, got {value!r}")
    return IrOpPriorityConfig(**cast("Mapping[str, Sequence[str] | SizeRanges]", value))


def _batch_invariant(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"option batch_invariant must be {_OWN['batch_invariant']}, got {value!r}")
    return value


def _passes(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"option passes must be {_OWN['passes']}, got {value!r}")
    expand(value)
    return value


def _validate(value: object) -> str | None:
    if isinstance(value, str | Path):
        return str(value)
    if not isinstance(value, bool):
        raise TypeError(f"option validate must be {_OWN['validate']}, got {value!r}")
    return str(Path(tempfile.gettempdir(), "vllm_ir_reproducers")) if value else None
