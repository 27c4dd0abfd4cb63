"""Running a pass with every limit of rewrites, and comparing what the modules do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.dialects.vllm_ir.function import DONATED, FuncOp
from vllm_ir.tools.operators.observation import Observation, observe
from vllm_ir.tools.pipelines import build_passes
from vllm_ir.tools.text import text_context

Inputs = Callable[[], Sequence[object]]


def applied(module: ModuleOp, spec: str) -> tuple[ModuleOp, Rewrites]:
    """A clone of the module behind one pass, verified and read back from its own text, and what the pass did."""
    (entry,) = build_passes(spec)
    assert isinstance(entry, LimitedPass)
    clone = module.clone()
    entry.apply(text_context(), clone)
    clone.verify()
    text = str(clone)
    assert str(ir.parse(text)) == text
    return clone, entry.rewrites


def main_function(module: ModuleOp) -> FuncOp:
    return next(op for op in module.body.block.ops if isinstance(op, FuncOp))


def donated(module: ModuleOp) -> list[int]:
    """Arguments whose contents after the call are undefined."""
    main = main_function(module)
    return [index for index in range(len(main.block.args)) if DONATED in main.argument_attributes(index)]


def seen_of(module: ModuleOp, make: Inputs, memory: bool = True) -> Observation:
    """What the caller sees, as far as the signature promises it; without `memory`, results alone."""
    seen = observe(lambda *arguments: ir.interpret(module, *arguments), make())
    if not memory:
        seen.memory = []
    if main_function(module).original_output_count is not None:
        # Results of pure functions do not share new memory with each other, and are arguments by their alias facts.
        seen.same_objects = []
        seen.result_memory = [place for place in seen.result_memory if place[0].startswith("memory")]
    return seen


def check_limits(before: ModuleOp, name: str, make: Inputs, *, options: str = "", rest: bool = False) -> int:
    """Run a pass with every limit on clones of a module; returns how many rewrites there are.

    With `rest`, the pass without a limit is run behind each as well.
    """

    def spec(limit: int | None) -> str:
        texts = [options, "" if limit is None else f"limit={limit}"]
        given = " ".join(filter(None, texts))
        return f"{name}{{{given}}}" if given else name

    full, rewrites = applied(before, spec(None))
    assert rewrites.last is None
    memory = not donated(full)
    expected = seen_of(before, make, memory)
    expected.compare(seen_of(full, make, memory), f"{name} without a limit")
    previous = ""
    for limit in range(rewrites.done + 2):
        after, counted = applied(before, spec(limit))
        assert counted.done == min(limit, rewrites.done)
        assert (counted.last is None) == (limit == 0 or limit > rewrites.done)
        if limit == 0:
            assert str(after) == str(before)
        if limit >= rewrites.done:
            assert str(after) == str(full)
        if name == "eliminate-clones" and counted.last is not None and counted.last.what.startswith("is d"):
            assert str(after) != previous, f"{counted.last} changes nothing"
        previous = str(after)
        expected.compare(seen_of(after, make, memory), f"{name} with limit {limit} of {rewrites.done}\n{after}")
        if rest:
            completed, _ = applied(after, spec(None))
            expected.compare(seen_of(completed, make, memory), f"{name} behind limit {limit}")
    return rewrites.done
