"""`vllm-ir-opt --run`: what a module gives, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.interpreter.interpret import interpret
from vllm_ir.tools.validation.generate import Recipe, generate, parameters
from vllm_ir.tools.validation.observe import flat, same_elements


def run_module(module: ModuleOp, inputs: Sequence[object] | None = None, seed: int = 0) -> str:
    """Interpret a module; gives its outputs, and the inputs that changed, a paragraph each.

    Args:
        module: at any level.
        inputs: what the program was imported on; without them, inputs are made from the signature.
        seed: makes other inputs.

    Raises what `interpret` raises.
    """
    arguments = generate(parameters(module), Recipe("plain"), seed) if inputs is None else _flat(inputs)
    before = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
    result = interpret(module, *arguments)
    return "\n".join([*_outputs(result, arguments), *_changes(before, arguments)]) + "\n"


def _flat(values: object) -> list[object]:
    return cast("list[object]", pytree.tree_leaves(values))


def _outputs(result: object, arguments: Sequence[object]) -> Iterator[str]:
    memory: dict[int, int] = {}
    for position, value in enumerate(arguments):
        if isinstance(value, Tensor):
            memory.setdefault(value.untyped_storage().data_ptr(), position)
    for position, leaf in enumerate(_flat(result)):
        if not isinstance(leaf, Tensor):
            yield f"output {position}: {leaf!r}"
            continue
        whose = memory.get(leaf.untyped_storage().data_ptr()) if leaf.numel() else None
        where = "" if whose is None else f", memory of input {whose}"
        yield f"output {position}: {_described(leaf)}{where}\n{_numbers(leaf)}"


def _changes(before: Sequence[object], after: Sequence[object]) -> Iterator[str]:
    for position, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            continue
        same = old.shape == new.shape and bool(same_elements(flat(old), flat(new)).all())
        if not same:
            yield f"input {position} afterwards: {_described(new)}\n{_numbers(new)}"


def _described(value: Tensor) -> str:
    """Dtype, shape, and strides where they are not row-major."""
    strides = "" if value.is_contiguous() else f" strides {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}"


def _numbers(value: Tensor) -> str:
    """The elements, as PyTorch shows them."""
    return f"  {value.tolist()}"  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
