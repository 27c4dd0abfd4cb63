"""Asking a `supports_args`: it may look at everything about its arguments but values and sizes that are not known."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vllm_ir.frontends.ops.memory import tensors_in
from vllm_ir.frontends.ops.signature import location_of


def statically_known(condition: bool | torch.SymBool) -> bool:
    """Whether a condition holds for every size that a graph is compiled for, without making it depend on them."""
    if isinstance(condition, bool):
        return condition
    # Loaded by the time there are symbols.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def accepts(predicate: Callable[..., object], args: Sequence[object], described: str) -> bool:
    """Whether a predicate takes arguments; `described` begins each message.

    On fake tensors, an answer that holds for some sizes only is refused: it would tie the graph to them, or choose a
    kernel that does not fit all. `statically_known` answers without.

    Raises:
        RuntimeError: the predicate raised (the cause is chained), looked at data that is not there, or made the graph
            depend on a size.
        TypeError: it did not return a bool.
    """
    asked = f"{described} ({location_of(predicate)})"
    environment = _shape_environment(args)
    before = len(environment.guards) if environment is not None else 0
    try:
        answer = predicate(*args)
    except Exception as error:
        raise RuntimeError(f"{asked} raised {type(error).__name__}: {error}") from error
    if environment is not None and len(environment.guards) > before:
        raise RuntimeError(_depends(asked, environment.guards[before].expr))
    if isinstance(answer, torch.SymBool):
        return _known(answer, asked)
    if not isinstance(answer, bool):
        raise TypeError(f"{asked} must return a bool, got {type(answer).__name__}")
    return answer


def _known(answer: torch.SymBool, asked: str) -> bool:
    if statically_known(answer):
        return True
    if statically_known(cast("torch.SymBool", torch.sym_not(answer))):  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        return False
    raise RuntimeError(_depends(asked, answer))


def _depends(asked: str, fact: object) -> str:
    return (
        f"{asked} depends on a size that is not known when the graph is compiled: {fact}; "
        "ask with vllm_ir.statically_known, or not at all"
    )


def _shape_environment(args: Sequence[object]) -> Any:  # torch's ShapeEnv, which takes long to load
    for tensor in tensors_in(args):
        if isinstance(tensor, FakeTensor) and (environment := tensor.fake_mode.shape_env) is not None:
            return environment
    return None


__all__ = ["accepts", "statically_known"]
