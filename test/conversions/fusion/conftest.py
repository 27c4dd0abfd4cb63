"""Programs in plain PyTorch, raised to ops: what became of them, and that they do the same."""

import os
from collections.abc import Callable
from dataclasses import dataclass

os.environ["HF_HUB_OFFLINE"] = "1"  # configurations and weights are made here

import pytest
from torch import Tensor
from torch._inductor.decomposition import select_decomp_table
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.conversions.fuse import FUSED, UNFUSED
from vllm_ir.conversions.trace import Examples, trace_callable
from vllm_ir.frontends.fx.types import TypeCache
from vllm_ir.tools.validation.validate import compare


@dataclass
class Raised:
    """A functional module behind the pass."""

    module: ModuleOp
    fusions: dict[str, int]
    reasons: str
    """Near misses."""

    def count(self, op: str) -> int:
        """How many operations there are of that name."""
        return sum(operation.name == f"vllm_ir.{op}" for operation in self.module.walk())


@pytest.fixture(scope="session")
def raised() -> Callable[..., Raised]:
    """See `raise_program`."""
    return raise_program


def raise_program(
    function: Callable[..., object], *inputs: Tensor, only: str = "", decompose: bool = False, numerics: str = "exact"
) -> Raised:
    """Trace a program, decomposed as for Inductor or not, fuse it, and lower it; results must be equal bit for bit.

    With other numerics than `exact` they may differ by rounding.
    """
    types = TypeCache()
    table = select_decomp_table() if decompose else None
    module = trace_callable(
        function, [types.tensor(x) for x in inputs], Examples(), table, pure=True
    ).function.parent_op()
    flag = f"decompose={str(decompose).lower()}"
    before = module.clone()
    options = f"{f'only={only} ' if only else ''}numerics={numerics} explain=true {flag}"
    ir.run_passes(module, f"eliminate-no-ops,dce,fuse{{{options}}}")
    module.verify()
    verdict = compare("fuse", before, ir.run_passes(module.clone(), f"lower{{{flag}}}"))
    assert verdict.status in (("exact",) if numerics == "exact" else ("exact", "rounding")), verdict
    fused = module.attributes.get(FUSED)
    fusions = {name: len(places.data) for name, places in fused.data.items()} if fused else {}
    return Raised(module, fusions, str(module.attributes.get(UNFUSED, "")))
