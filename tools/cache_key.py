"""What compiled artifacts depend on, as keys of caches: versions, our own sources, and what was decided for a graph."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

import torch
import xdsl
from xdsl.dialects.builtin import ModuleOp

from vllm_ir import backends, conversions, dialects, frontends
from vllm_ir.backends import kernels
from vllm_ir.backends.inductor.torch_internals import rounds_between_operators
from vllm_ir.conversions.analysis.structure import structural_hash
from vllm_ir.frontends.ops.priority import wants_batch_invariance
from vllm_ir.tools import post_grad
from vllm_ir.tools.providers import ops
from vllm_ir.tools.reports import NOTES, selected_impls

_FOLDERS = tuple(Path(str(it.__file__)).parent for it in (dialects, frontends, conversions, backends, post_grad))
_KERNELS = Path(str(kernels.__file__)).parent


def versions() -> tuple[str, ...]:
    """What made an artifact: PyTorch, xDSL and this compiler, which is told by its sources and not by its number.

    Left out are the kernels and the native definitions: of those, an artifact depends on what it uses.
    """
    return str(torch.__version__), str(xdsl.__version__), _sources(_FOLDERS, _implementation_files())


def tracing_facts() -> tuple[str, ...]:
    """What a trace depends on that no operation says: versions, and the state of PyTorch."""
    state = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
        rounds_between_operators(),
    )
    return (*versions(), *map(str, state))


def cache_key(module: ModuleOp, passes: str) -> str:
    """A hash of a lowered module with what led to it.

    It has the module's structure, which says what is written, donated and shared; for each op of the registry in it the
    priorities in force, and the implementations that were chosen, with the code that they use; the pipeline; versions.
    """
    chosen = selected_impls(module)
    used = {(name, provider) for name, nodes in chosen.items() for provider in nodes.values()}
    facts = [
        structural_hash(module, without=NOTES),
        passes,
        wants_batch_invariance(),
        [(name, ops[name].named_priority(), ops[name].get_priority()) for name in sorted(chosen)],
        [(name, provider, ops[name].impls[provider].uuid()) for name, provider in sorted(used)],
        versions(),
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _implementation_files() -> frozenset[Path]:
    """Files of modules that hold implementations."""
    modules = {impl.impl_fn.__module__ for name in ops for impl in ops[name].impls.values()}
    files = (getattr(sys.modules.get(module), "__file__", None) for module in modules)
    return frozenset(Path(file) for file in files if file is not None)


@cache
def _sources(folders: tuple[Path, ...], without: frozenset[Path]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if path not in without and not path.is_relative_to(_KERNELS):
                digest.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


__all__ = ["cache_key", "tracing_facts", "versions"]
