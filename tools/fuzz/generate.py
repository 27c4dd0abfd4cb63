"""Programs by seed and number: the same two always give the same program."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from vllm_ir.tools.fuzz import calls, values, views, writes
from vllm_ir.tools.fuzz.draw import Draw
from vllm_ir.tools.fuzz.footprint import overlap
from vllm_ir.tools.fuzz.inputs import draw_inputs
from vllm_ir.tools.fuzz.operators import PROVIDERS
from vllm_ir.tools.fuzz.program import Program, Statement, Window, render
from vllm_ir.tools.fuzz.simulate import RejectedError, Simulation, check

Kind = Callable[[Draw], Statement | None]

KINDS: dict[str, tuple[Kind, int]] = {
    "view": (views.view, 10),
    "pieces": (views.pieces, 2),
    "changed metadata": (views.changed_metadata, 1),
    "new": (values.new, 6),
    "write": (writes.write, 12),
    "swap": (writes.swap, 1),
    "buffer": (writes.replace_buffer, 1),
    "custom": (calls.custom, 3),
    "donated": (calls.donated, 3),
    "cond": (calls.cond, 1),
}
"""Kinds of statements, with how often they are drawn."""


@dataclass(frozen=True)
class Generated:
    """A program, and what was drawn in vain for it."""

    program: Program
    source: str
    """The program as a file."""
    discarded: int
    """Statements that eager refused, or that have no defined result."""


def generate(seed: int, index: int) -> Generated:
    """Program number `index` of a seed."""
    attempt = 0
    while True:
        try:
            title = f"Program {index} of seed {seed}."
            return _generate(random.Random(f"{seed}:{index}:{attempt}"), title)
        except RejectedError:
            attempt += 1


def _generate(rng: random.Random, title: str) -> Generated:
    dynamic = rng.random() < 0.12
    module = not dynamic and rng.random() < 0.12
    count = rng.choice((1, 2, 2, 3, 3, 4))
    buffers = tuple(f"self.h{i}" for i in range(rng.choice((1, 2)))) if module else ()
    inputs = draw_inputs(rng, count + len(buffers), dynamic=dynamic)
    arguments = tuple("abcd"[:count])
    if buffers and any(_tied(call.windows, len(buffers)) for call in inputs.calls):
        raise RejectedError("a buffer shares its memory with an argument")
    simulation = Simulation(arguments, buffers, inputs.calls)
    draw = Draw(rng, simulation, (*buffers, *arguments), dynamic)
    discarded = _fill(draw, rng.choice((3, 5, 6, 8, 10, 12, 16)))
    providers = {op: (rng.choice(names),) for op, names in PROVIDERS.items()}
    text = "".join(statement.template for statement in simulation.body)
    program = Program(
        arguments,
        inputs.calls,
        tuple(simulation.body),
        _returns(draw),
        tuple(simulation.branches),
        buffers,
        dynamic,
        {op: names for op, names in providers.items() if f"{op}." in text or f"{op}(" in text},
    )
    return Generated(program, render(program, title, undefined=check(program)), discarded)


def _tied(windows: Sequence[Window], buffers: int) -> bool:
    """Whether arguments and buffers share memory, which a rendered file cannot make."""
    return bool({w.storage for w in windows[:buffers]} & {w.storage for w in windows[buffers:]})


def _fill(draw: Draw, count: int) -> int:
    """Add statements; the number of those that were drawn in vain."""
    # Few kinds at a time meet each other more often than all.
    kinds = [kind for kind in KINDS if kind in ("view", "write") or draw.chance(0.5)]
    weights = [KINDS[kind][1] for kind in kinds]
    discarded = 0
    for _ in range(3 * count):
        if len(draw.simulation.body) >= count:
            break
        (kind,) = draw.rng.choices(kinds, weights)
        statement = KINDS[kind][0](draw)
        if statement is None:
            continue
        try:
            draw.simulation.step(statement)
        except RejectedError:
            discarded += 1
            continue
        draw.names += [name for name in statement.results if draw.tensor(name) is not None and name not in draw.names]
    return discarded


def _returns(draw: Draw) -> str:
    """What the program returns: any of its values, in containers, with what is no tensor among them."""
    items: list[str] = []
    for _ in range(draw.one_of((0, 1, 2, 3, 4, 5))):
        name = draw.pick()
        if name is None or _given_away(draw, name):
            continue
        items.append(draw.one_of([name, name, name, name, f"{name} * 1", f"{name}.view_as({name})"]))
    if draw.chance(0.1):
        items.append(draw.one_of(["None", "3", "a.dim()", "2.5"]))
    if not items:
        return ""
    if len(items) == 1 and draw.chance(0.5):
        return items[0]
    if draw.chance(0.1):
        return "{" + ", ".join(f'"{i}": {item}' for i, item in enumerate(items)) + "}"
    if len(items) > 1 and draw.chance(0.15):
        return f"({items[0]}, [{', '.join(items[1:])}])"
    return f"({', '.join(items)},)"


def _given_away(draw: Draw, name: str) -> bool:
    return any(
        isinstance(value := environment.tensor(name), Tensor)
        and any(overlap(value, donated) for donated in environment.donated)
        for environment in draw.simulation.environments
    )
