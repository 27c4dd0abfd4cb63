"""What the pass `fuse` has noted on a module, for people: `vllm-ir-opt --explain-fusions`, `ir.explain_fusions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from vllm_ir.conversions.fuse import FUSED, UNFUSED, UNLIKE, FusePass
from vllm_ir.dialects.torch.arguments import children


def explaining(passes: Sequence[ModulePass]) -> tuple[ModulePass, ...]:
    """The passes, of which those that fuse keep what came close.

    Raises:
        ValueError: none of them fuses.
    """
    if not any(isinstance(entry, FusePass) for entry in passes):
        raise ValueError("there are no fusions to explain: the pipeline has no pass 'fuse'")
    return tuple(replace(entry, explain=True) if isinstance(entry, FusePass) else entry for entry in passes)


def explain_fusions(module: ModuleOp) -> str:
    """What was fused where, how often, what came close, and which fusions found nothing that resembles them."""
    lines: list[str] = []
    for name, places in fused(module).items():
        lines.append(f"{name}: applied {_times(len(places))}")
        lines += [f"  {place}{f' ({times} times)' if times > 1 else ''}" for place, times in Counter(places).items()]
    for name, reasons in unfused(module).items():
        lines.append(f"{name}: not applied to")
        lines += [f"  {reason}{f' ({times} times)' if times > 1 else ''}" for reason, times in Counter(reasons).items()]
    lines = lines or ["nothing was fused, and nothing came close"]
    for name, operators in unlike(module).items():
        lines.append(f"{name}: nothing resembles it{', there is no ' * bool(operators)}{' and no '.join(operators)}")
    return "\n".join(lines)


def fused(module: ModuleOp) -> dict[str, list[str]]:
    """`{fusion: [place]}`, where each was applied; a place is `file:line` of the last operation, or its name."""
    return _lists(module, FUSED)


def unfused(module: ModuleOp) -> dict[str, list[str]]:
    """`{fusion: [place: reason]}` of what came close, if the pass was asked to explain."""
    return _lists(module, UNFUSED)


def unlike(module: ModuleOp) -> dict[str, list[str]]:
    """`{fusion: [operator]}` of all others, if the pass was asked to explain: what the program would need at least."""
    return _lists(module, UNLIKE)


def _lists(module: ModuleOp, name: str) -> dict[str, list[str]]:
    entries = module.attributes.get(name)
    found: Mapping[str, Attribute] = entries.data if isinstance(entries, DictionaryAttr) else {}
    return {
        fusion: [item.data for item in children(items) if isinstance(item, StringAttr)]
        for fusion, items in found.items()
    }


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
