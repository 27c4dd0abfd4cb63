"""The dialects that our modules are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.context import Context
from xdsl.ir import Dialect


def _builtin() -> Dialect:
    from xdsl.dialects.builtin import Builtin

    return Builtin


def _arith() -> Dialect:
    from xdsl.dialects.arith import Arith

    return Arith


def _func() -> Dialect:
    from xdsl.dialects.func import Func

    return Func


def _pdl() -> Dialect:
    from xdsl.dialects.pdl import PDL

    return PDL


def _stablehlo() -> Dialect:
    from vllm_ir.dialects.stablehlo import StableHlo

    return StableHlo


def _test() -> Dialect:
    from xdsl.dialects.test import Test

    return Test


def _torch() -> Dialect:
    from vllm_ir.dialects.torch import Torch

    return Torch


def _vllm_ir() -> Dialect:
    from vllm_ir.dialects.vllm_ir import VllmIr

    return VllmIr


OUR_DIALECTS: Mapping[str, Callable[[], Dialect]] = {"torch": _torch, "vllm_ir": _vllm_ir}
"""Our dialects by name, imported when they are called."""

DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    "builtin": _builtin,
    "arith": _arith,
    "func": _func,
    "pdl": _pdl,
    "stablehlo": _stablehlo,
    "test": _test,
    **OUR_DIALECTS,
}
"""All dialects that a module may use."""


def make_context(allow_unregistered: bool = False) -> Context:
    """A context that loads each of `DIALECTS` when it is first used."""
    context = Context(allow_unregistered=allow_unregistered)
    for name, factory in DIALECTS.items():
        context.register_dialect(name, factory)
    return context
