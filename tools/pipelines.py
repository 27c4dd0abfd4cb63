"""Passes and pipelines by name, and running them.

Passes are imported when they are asked for, so that a tool which needs none of ours does not load PyTorch. Names that
are neither ours nor xDSL's are looked up among the passes of other distributions (`plugin_passes.py`).
"""

from __future__ import annotations

import difflib
import gc
import importlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipelineCallbackType
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from vllm_ir.tools.plugin_passes import plugin_passes
from vllm_ir.tools.text import text_context

PassFactory: TypeAlias = Callable[[], type[ModulePass]]


def _imported(path: str) -> PassFactory:
    """A factory for the pass class at `module:Class`."""
    module, _, name = path.partition(":")
    return lambda: cast("type[ModulePass]", getattr(importlib.import_module(module), name))


TORCH_PASSES: Mapping[str, PassFactory] = {
    "alias-outputs": _imported("vllm_ir.conversions.alias_outputs:AliasOutputsPass"),
    "specialize": _imported("vllm_ir.conversions.specialize:SpecializePass"),
    "functionalize": _imported("vllm_ir.conversions.functionalize:FunctionalizePass"),
    "eliminate-no-ops": _imported("vllm_ir.conversions.eliminate_no_ops:EliminateNoOpsPass"),
    "coalesce-splits": _imported("vllm_ir.conversions.coalesce_splits:CoalesceSplitsPass"),
    "forward-scatters": _imported("vllm_ir.conversions.forward_scatters:ForwardScattersPass"),
    "fuse": _imported("vllm_ir.conversions.fuse:FusePass"),
    "sequence-parallel": _imported("vllm_ir.conversions.sequence_parallel:SequenceParallelPass"),
    "check-shards": _imported("vllm_ir.conversions.sequence_parallel:CheckShardsPass"),
    "async-tp": _imported("vllm_ir.conversions.async_tp:AsyncTpPass"),
    "lower": _imported("vllm_ir.conversions.lower:LowerPass"),
    "convert-to-stablehlo": _imported("vllm_ir.conversions.convert_to_stablehlo:ConvertToStablehloPass"),
    "narrow-updates": _imported("vllm_ir.conversions.narrow_updates:NarrowUpdatesPass"),
    "eliminate-clones": _imported("vllm_ir.conversions.eliminate_clones:EliminateClonesPass"),
    "print-aliases": _imported("vllm_ir.conversions.analysis.print_aliases:PrintAliasesPass"),
    "print-liveness": _imported("vllm_ir.conversions.analysis.print_liveness:PrintLivenessPass"),
}
"""Our passes. They ask PyTorch what operators do."""

MEMORY_PASS = "eliminate-clones"
"""The pass behind which a module is no longer about values alone."""

GROUP_PASSES = ("sequence-parallel", "async-tp")
"""Passes that ask the module what its process is in the groups of collectives."""

_XDSL_PASSES: Mapping[str, PassFactory] = {
    "apply-pdl": _imported("xdsl.transforms.apply_pdl:ApplyPDLPass"),
    "canonicalize": _imported("xdsl.transforms.canonicalize:CanonicalizePass"),
    "cse": _imported("vllm_ir.conversions.cse:CsePass"),
    "dce": _imported("xdsl.transforms.dead_code_elimination:DeadCodeElimination"),
}

PASSES: dict[str, PassFactory] = {**TORCH_PASSES, **_XDSL_PASSES}
"""The passes that are always there: ours, and those of xDSL that are right on our IR."""

PIPELINES: dict[str, str] = {
    "vllm-ir-functional": "functionalize",
    "vllm-ir-lowered": "functionalize,lower",
    "vllm-ir-in-place": "functionalize,lower,eliminate-clones",
}
"""Named sequences of passes; a pipeline may name them wherever it may name a pass."""


def find_pass(name: str) -> PassFactory | None:
    """The factory of the pass of that name, ours or of another distribution; None if there is none.

    Raises:
        RuntimeError: what another distribution brings along is faulty; see `plugin_passes`.
    """
    return PASSES.get(name) or plugin_passes().get(name)


def relies_on_effects(name: str) -> bool:
    """Whether a pass may rely on what calls state about their effects. Of those of others nothing is known."""
    return name not in _XDSL_PASSES


def expand(spec: str) -> list[ArgSpec]:
    """The passes of a pipeline such as `"vllm-ir-functional,lower{option=value},cse"`, named pipelines expanded.

    Raises:
        ValueError: the text is malformed, or names a pass that does not exist.
    """
    try:
        entries = list(parse_pipeline(spec))
    except ArgSpecParseError as error:
        raise ValueError(f"pass pipeline {spec!r}: {_one_line(error)}") from None
    passes: list[ArgSpec] = []
    for entry in entries:
        if entry.name not in PIPELINES:
            if find_pass(entry.name) is None:
                raise ValueError(_unknown(entry.name))
            passes.append(entry)
        elif entry.parameters:
            raise ValueError(f"pipeline {entry.name!r} takes no options, its passes do: {PIPELINES[entry.name]}")
        else:
            passes.extend(expand(PIPELINES[entry.name]))
    return passes


def needs_group_places(spec: str) -> bool:
    """Whether a pipeline has a pass that asks for groups; errors as for `expand`."""
    return any(entry.name in GROUP_PASSES for entry in expand(spec))


def split_passes(spec: str) -> tuple[str, str]:
    """A pipeline in two: up to values, and from `eliminate-clones`, which puts them into memory, on."""
    entries = expand(spec)
    names = [entry.name for entry in entries]
    first = names.index(MEMORY_PASS) if MEMORY_PASS in names else len(names)
    return ",".join(map(str, entries[:first])), ",".join(map(str, entries[first:]))


def writes_in_place(spec: str) -> bool:
    """Whether a pipeline puts values into memory."""
    return bool(split_passes(spec)[1])


def _one_line(error: ArgSpecParseError) -> str:
    # The error is a sentence, `pass-pipeline:1:column`, the text, a marker below it, and what is wrong.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    column = next((line.rpartition(":")[2] for line in lines if line.startswith("pass-pipeline:")), "?")
    return f"column {column}: {lines[-1]}"


def _unknown(name: str) -> str:
    passes = [*PASSES, *plugin_passes()]
    near = difflib.get_close_matches(name, [*passes, *PIPELINES], n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return f"unknown pass {name!r}{hint} passes are {', '.join(passes)}; pipelines are {', '.join(PIPELINES)}"


def needs_torch(spec: str) -> bool:
    """Whether the pipeline holds a pass that loads PyTorch, or may; errors as for `expand`."""
    return any(relies_on_effects(entry.name) for entry in expand(spec))


def pass_class(name: str) -> type[ModulePass]:
    """The pass of that name. Raises `ValueError` if there is none, and what `find_pass` raises."""
    factory = find_pass(name)
    if factory is None:
        raise ValueError(_unknown(name))
    return factory()


def build_passes(spec: str) -> tuple[ModulePass, ...]:
    """The passes of a pipeline, with their options.

    Raises:
        ValueError: as for `expand`, or a pass does not have an option that it is given.
    """
    passes: list[ModulePass] = []
    for entry in expand(spec):
        try:
            passes.append(pass_class(entry.name).from_spec(entry))
        except ValueError as error:
            raise ValueError(f"pass {entry.name!r}: {error}") from error
    return tuple(passes)


def check_effects(module: ModuleOp) -> None:
    """Check that the calls in `module` state the effects that PyTorch's schemas have. Loads PyTorch and all kernels.

    Raises:
        VerifyException: a call states others, or its operator is not registered.
    """
    from vllm_ir.frontends.fx.checks import check_module

    importlib.import_module("vllm_ir.tools.providers")  # operators that modules call, and what `lower` may choose
    check_module(module)


@contextmanager
def _collector_paused() -> Generator[None]:
    """Hold the cyclic garbage collector, which would scan the many linked objects of a module again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_passes(
    module: ModuleOp,
    spec: str,
    *,
    on_pass: Callable[[str, float], None] | None = None,
    check: bool = True,
    verify_each: bool = False,
    context: Context | None = None,
    between: PassPipelineCallbackType | None = None,
) -> ModuleOp:
    """Run the passes of a pipeline on `module`, in place; returns `module`.

    Args:
        module: what the passes change.
        spec: a pipeline, see `expand`.
        on_pass: called behind each pass with its name and the seconds it took.
        check: first check, where one of the passes relies on it, that calls state their true effects. A module that was
            just imported states them by construction.
        verify_each: verify the module before the first and behind every pass.
        context: dialects that passes may use; ours by default.
        between: called with the pass before, the module and the pass behind, before the first pass, between two, and
            behind the last.

    Raises:
        ValueError: the pipeline is malformed, names an unknown pass or option.
        VerifyException: the module is not valid, before or behind a pass.
        PassFailedException: a pass cannot do its work; the module may be half-changed.
    """
    passes = build_passes(spec)
    context = text_context() if context is None else context
    if verify_each:
        module.verify()
    if check and any(relies_on_effects(entry.name) for entry in passes):
        check_effects(module)
    with _collector_paused():
        _apply(module, passes, context, on_pass, verify_each, between)
    return module


def _apply(
    module: ModuleOp,
    passes: Sequence[ModulePass],
    context: Context,
    on_pass: Callable[[str, float], None] | None,
    verify_each: bool,
    between: PassPipelineCallbackType | None,
) -> None:
    if between is not None:
        between(None, module, passes[0] if passes else None)
    for number, entry in enumerate(passes, 1):
        start = time.perf_counter()
        entry.apply(context, module)
        seconds = time.perf_counter() - start
        if on_pass is not None:
            on_pass(entry.name, seconds)
        if verify_each:
            module.verify()
        if between is not None:
            between(entry, module, passes[number] if number < len(passes) else None)
