"""`uuid` changes with all that an implementation does, and with nothing else."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from vllm_ir.backends import kernels
from vllm_ir.frontends.ops import IrOp, ops
from vllm_ir.frontends.ops.sources import source_hash

HELPER = '''
SCALE = 2.0
def helper(x):
    """A docstring."""
    return x * SCALE
def unrelated(x):
    return x - 1
class Kernel:
    factor = 3
    def __init__(self, bias=0.5):
        self.bias = bias
    def run(self, x):
        return x * self.factor + self.bias
class Slotted:
    __slots__ = ("width",)
    def __init__(self, width):
        self.width = width
    @property
    def twice(self):
        return self.factor * 2
'''
MODULE = '''
import functools
import torch
from torch import Tensor
import sources_helper
from sources_helper import helper
from vllm_ir.frontends.ops import ops
TABLE = {"a": [1, 2]}
OFFSET = torch.tensor([1.0, 2.0])
KERNEL = sources_helper.Kernel()
SLOTTED = sources_helper.Slotted(7)
@functools.cache
def cached(size):
    return size + 6
@torch.library.custom_op("sources::defined", mutates_args=())
def defined(x: Tensor) -> Tensor:
    return x + 8
@defined.register_fake
def _(x):
    return torch.empty_like(x)
def nine(x):
    return ops.silu_and_mul.native(x)
def deep(x):
    return [helper(y) for y in (x,)][0] + KERNEL.twice
def outer(by):
    def inner(x):
        return x + by
    return inner
INNER = outer(4)
ADD = functools.partial(torch.add, alpha=2)
def other(x: Tensor) -> Tensor:
    return x * 100
def predicate(x, size):
    return x.dim() == 2
def implementation(x: Tensor, size: int = 3) -> Tensor:
    """Computes."""
    # A comment.
    y = deep(x) + TABLE["a"][0] + INNER(x) + ADD(x, x) + SLOTTED.width + cached(size) + defined(x) + nine(x)
    y = [y.to(kind, "cpu") for kind in ("float32",)][0] if size in {3, 5} else y
    return torch.ops.aten.relu.default(y) * sources_helper.SCALE + OFFSET.sum() + KERNEL.run(x)
'''

SEMANTIC = [
    (HELPER, "SCALE = 2.0", "SCALE = 2.5"),
    (HELPER, "return x * SCALE", "return x / SCALE"),
    (HELPER, "factor = 3", "factor = 4"),
    (HELPER, "return x * self.factor", "return x + self.factor"),
    (HELPER, "bias=0.5", "bias=1.5"),
    (HELPER, "self.factor * 2", "self.factor * 3"),
    (MODULE, '"a": [1, 2]', '"a": [1, 3]'),
    (MODULE, "[1.0, 2.0]", "[1.0, 2.5]"),
    (MODULE, "for y in (x,)", "for y in (x, x)"),
    (MODULE, "return x + by", "return x - by"),
    (MODULE, "outer(4)", "outer(5)"),
    (MODULE, "Slotted(7)", "Slotted(8)"),
    (MODULE, "size + 6", "size + 7"),
    (MODULE, "x + 8", "x + 9"),
    (MODULE, "torch.empty_like(x)", "torch.empty_like(x.t())"),
    (MODULE, "ops.silu_and_mul.native", "ops.gelu_and_mul.native"),
    (MODULE, '"cpu"', '"meta"'),
    (MODULE, "{3, 5}", "{3, 6}"),
    (MODULE, "alpha=2", "alpha=3"),
    (MODULE, "torch.add", "torch.sub"),
    (MODULE, "aten.relu", "aten.neg"),
    (MODULE, "x.dim() == 2", "x.dim() == 3"),
    (MODULE, "OFFSET.sum()", "OFFSET.mean()"),
]
UNRELATED = [
    (HELPER, "return x - 1", "return x - 2"),
    (HELPER, '"""A docstring."""', '"""Another."""'),
    (MODULE, "x * 100", "x * 200"),
    (MODULE, "# A comment.", "# Another, which is longer.\n"),
    (MODULE, '"""Computes."""', '"""Something else."""'),
    (MODULE, "import functools\n", "import functools\n\n\n"),
    (MODULE, "return inner", "return inner  # a closure"),
]


def native(x: torch.Tensor, size: int = 3) -> torch.Tensor:
    return x


def uuid_of(tmp_path: Path, sources: dict[str, str], files: tuple[Path, ...] = ()) -> str:
    modules: dict[str, ModuleType] = {}
    for name, text in sources.items():
        modules[name] = ModuleType(name)
        sys.modules[name] = modules[name]
        exec(compile(text, str(tmp_path / f"{name}.py"), "exec"), vars(modules[name]))
    op = IrOp("sources_op", native)
    try:
        register = op.register_impl("p", supports_args=modules["sources_module"].predicate, sources=files)
        return register(modules["sources_module"].implementation).uuid()
    finally:
        op.undefine()
        for name in sources:
            del sys.modules[name]


def edited(edit: tuple[str, str, str] | None = None) -> dict[str, str]:
    sources = {"sources_helper": HELPER, "sources_module": MODULE}
    if edit is not None:
        original, old, new = edit
        assert original.count(old) == 1, old
        sources = {name: text.replace(old, new) if text == original else text for name, text in sources.items()}
    return sources


@pytest.mark.parametrize("edit", SEMANTIC, ids=lambda edit: edit[2])
def test_semantic_edits_change_it(tmp_path: Path, edit: tuple[str, str, str]) -> None:
    assert uuid_of(tmp_path, edited(edit)) != uuid_of(tmp_path, edited())


@pytest.mark.parametrize("edit", UNRELATED, ids=lambda edit: edit[2][:20])
def test_unrelated_edits_do_not(tmp_path: Path, edit: tuple[str, str, str]) -> None:
    assert uuid_of(tmp_path, edited(edit)) == uuid_of(tmp_path, edited())


STRINGS = """
import sys
sys.path.insert(0, sys.argv[1])
from vllm_ir.frontends.ops.sources import source_hash
from strings import f
print(source_hash([f]))
"""


def test_processes_agree(tmp_path: Path) -> None:
    """Sets of strings have another order in each process."""
    (tmp_path / "strings.py").write_text(
        'NAMES = {"a", "b", "c"}\ndef f(x): return x in NAMES or x in {"d", "e", "f"}\n'
    )
    command = [sys.executable, "-c", STRINGS, str(tmp_path)]
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    runs = [subprocess.Popen(command, env=seed, stdout=subprocess.PIPE, text=True) for seed in seeds]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second != ""


def test_files_belong_to_it(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cpp"
    seen = set()
    for text in ("int a;", "int b;", "int a;"):
        file.write_text(text)
        seen.add(uuid_of(tmp_path, edited(), (file,)))
    assert len(seen) == 2
    assert kernels.cpu.providers.rms_norm.sources


def test_every_implementation_has_one_of_its_own() -> None:
    first = {
        (name, p): impl.uuid() for name in ops for p, impl in ops[name].impls.items() if not name.startswith("sou")
    }
    again = {(name, p): ops[name].impls[p].uuid() for name, p in first}
    assert first == again
    assert len(set(first.values())) == len(first)


def test_cycles_end() -> None:
    items: list[object] = [1]
    items.append(items)

    def recursive(n: int) -> object:
        return recursive(n - 1) if n else items

    assert source_hash([recursive]) == source_hash([recursive])
