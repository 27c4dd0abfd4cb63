"""One decoding step as text: printed, run through `vllm-ir-opt`, parsed, exported to FX and executed again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_decode_step
import torch
from llama_decoder import Step, largest_difference
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from transformers import StaticCache

import vllm_ir as ir

PASSES = "vllm-ir-functional"
STEP_FILE = Path(llama_decode_step.__file__)


@dataclass(frozen=True)
class Comparison:
    """What was run from text, against what the text came from."""

    name: str
    lines: int
    """Length of the text that was parsed."""
    difference: float
    """The largest, over the outputs and over all arguments after the call."""
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the limit; NaN is not."""
        return self.difference <= self.limit


def check_decode_graph(step: Step, ids: Tensor, cache: StaticCache, directory: Path) -> Iterator[Comparison]:
    """Send the graph that Dynamo captures of a decoding step through text; `directory` receives the files.

    `ids` and `cache` are the step's arguments. The capture itself makes the step, so the cache has one token more
    afterwards.
    """
    graph, inputs = _capture(step, ids, cache)
    printed = directory / "decode.mlir"
    printed.write_text(str(ir.import_fx(graph, inputs)) + "\n", encoding="utf-8")
    functional = optimise(printed, directory / "decode.functional.mlir")
    # The same operators on the same values: not a bit may differ.
    yield _compare("decode graph, imported", printed, graph, inputs, 0.0)
    yield _compare("decode graph, functional", functional, graph, inputs, 0.0)


def check_decode_step(directory: Path, tolerance: float) -> Iterator[Comparison]:
    """The other inputs of `vllm-ir-opt`: an exported program, and a module in a Python file."""
    step, (ids, tensors) = llama_decode_step.decode, llama_decode_step.example_inputs()
    program = torch.export.export(step, (ids, tensors))
    saved = directory / "decode_step.pt2"
    torch.export.save(program, saved)
    inputs = [ids, *tensors]
    text = optimise(saved, directory / "decode_step.pt2.mlir")
    yield _compare(f"{saved.name}, functional", text, _flattened(program.module()), inputs, 0.0, program.module())
    text = optimise(f"{STEP_FILE}:decode", directory / "decode_step.py.mlir")
    # Transformers builds the attention mask in another way while it is traced, which rounds differently.
    yield _compare(f"{STEP_FILE.name}:decode, functional", text, _flattened(step), inputs, tolerance, step)


def optimise(source: Path | str, result: Path) -> Path:
    """Run `vllm-ir-opt` on a file, as a user would, and return the file with its output."""
    tool = Path(sys.executable).with_name("vllm-ir-opt")
    subprocess.run([tool, source, "-p", PASSES, "-t", "mlir", "-o", result], check=True)
    return result


@torch.no_grad()
def _capture(step: Step, ids: Tensor, cache: StaticCache) -> tuple[fx.GraphModule, list[object]]:
    """The graph that a backend of `torch.compile` gets for `step`, with its inputs."""
    captured: list[tuple[fx.GraphModule, list[object]]] = []

    def backend(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        captured.append((graph, list(example_inputs)))
        return graph.forward

    torch.compile(step, backend=backend, fullgraph=True, dynamic=False)(ids, cache)
    (only,) = captured
    return only


def _flattened(module: nn.Module) -> Callable[..., object]:
    return lambda ids, *tensors: module(ids, list(tensors))


@torch.no_grad()
def _compare(
    name: str,
    text: Path,
    expected: Callable[..., object],
    inputs: Sequence[object],
    limit: float,
    like: nn.Module | None = None,
) -> Comparison:
    """Run the text and what it came from, each on its own copy of the inputs."""
    content = text.read_text(encoding="utf-8")
    program = ir.export_fx(ir.parse(content), like=like)
    ours, theirs = _run(program, inputs), _run(expected, inputs)
    differences = [largest_difference(a, b) for a, b in zip(ours, theirs, strict=True)]
    return Comparison(name, content.count("\n"), torch.tensor(differences, dtype=torch.float64).max().item(), limit)


def _run(program: Callable[..., object], inputs: Sequence[object]) -> list[Tensor]:
    """Results of a call, and its arguments as it left them."""
    arguments = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
    leaves = pytree.tree_leaves((program(*arguments), arguments))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
