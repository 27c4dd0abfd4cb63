"""This package under the name of vLLM's registry, for programs that were written against that."""

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import vllm_ir
from vllm_ir import op
from vllm_ir.tools.providers import ops


def stand_in_for(name: str = "vllm.ir") -> None:
    """Make every later import of the module `name` give this package, in this process.

    `name` itself becomes `vllm_ir`, and the modules `op` and `ops` below it `vllm_ir.op` and the registered ops:
    `from vllm import ir`, `import vllm.ir.op` and `from vllm.ir.ops import rms_norm` work. The package that `name` lies
    in is imported where it is installed, and is an empty one where it is not.

    Args:
        name: a dotted name of two parts.

    Raises:
        ValueError: the name has not two parts.
        RuntimeError: a module of that name is loaded already; ops would be registered in it and here.
    """
    package, _, inner = name.partition(".")
    if not package or not inner.isidentifier():
        raise ValueError(f"stand_in_for: expected a name like 'vllm.ir', got {name!r}")
    loaded = sys.modules.get(name)
    if loaded is not None and loaded is not vllm_ir:
        origin = getattr(loaded, "__file__", None)
        raise RuntimeError(f"stand_in_for: {name!r} is loaded already, from {origin}; call it before that import")
    sys.modules[name] = vllm_ir
    sys.modules[f"{name}.op"] = op
    sys.modules[f"{name}.ops"] = _ops_module(f"{name}.ops")
    setattr(_package(package), inner, vllm_ir)


def _ops_module(name: str) -> ModuleType:
    """The registered ops, those of later too, as a module: tracers of Python follow imports of modules only."""
    module = ModuleType(name, "The ops of vllm_ir.")
    vars(module).update(__getattr__=partial(getattr, ops), __dir__=partial(list, ops))
    return module


def _package(name: str) -> ModuleType:
    if name in sys.modules or find_spec(name) is not None:
        return import_module(name)
    package = ModuleType(name, "Made by vllm_ir.stand_in_for.")
    package.__path__ = []
    sys.modules[name] = package
    return package
