"""Validation of passes: what it calls exact, what it puts down to rounding, and what it catches."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.tools.pipelines import PASSES
from vllm_ir.tools.validation.validate import compare
from vllm_ir.tools.validation.validator import Validator

STAGES = (
    "functionalize,lower,eliminate-clones",
    "alias-outputs,functionalize,lower",
    "alias-outputs,functionalize,convert-to-stablehlo,narrow-updates",
    "functionalize,cse,dce,canonicalize",
)


def step(cache: Tensor, x: Tensor, weight: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """A norm, a write at an index, and a window that comes back."""
    y = ir.ops.rms_norm(x, weight, 1e-5)
    layer = cache[1]
    layer.index_copy_(0, place, y)
    layer[0].sub_(y[1])
    return layer, torch.softmax(layer, -1) @ y.t()


def step_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.zeros(2, 8, 4), torch.randn(2, 4), torch.randn(4), torch.tensor([3, 5])


def imported() -> ModuleOp:
    return ir.import_callable(step, *step_inputs())


@pytest.mark.parametrize("spec", STAGES)
def test_our_passes(spec: str, tmp_path: Path) -> None:
    validator = Validator(tmp_path)
    ir.run_passes(imported(), spec, between=validator.between)
    statuses = {verdict.name: verdict.status for verdict in validator.verdicts}
    assert list(statuses) == spec.split(",")
    expected = {"convert-to-stablehlo": ("exact", "rounding")}
    assert all(status in expected.get(name, ("exact",)) for name, status in statuses.items())
    assert all({"plain", "edge values"} <= set(verdict.runs) for verdict in validator.verdicts)
    assert not list(tmp_path.iterdir())


def test_kinds_of_inputs() -> None:
    exported = torch.export.export(
        _Pair(), (torch.ones(4, 3), torch.ones(4, 3)), dynamic_shapes=({0: torch.export.Dim("n")},) * 2
    )
    module = ir.import_exported(exported)
    verdict = compare("functionalize", module.clone(), ir.run_passes(module, "functionalize"))
    assert verdict.status == "exact"
    assert verdict.runs == ["plain", "other numbers", "edge values", "shared inputs", "sizes 4", "sizes 2"]


class _Pair(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * 2).add_(y)


# Faults


@dataclass(frozen=True)
class Faulty(ModulePass):
    """A pass that does something wrong to the first operation for which it can."""

    name = "faulty"
    change: ClassVar[Callable[[Operation], bool]]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        next((True for inner in list(op.walk()) if type(self).change(inner)), False)


def calls(op: Operation, target: str) -> bool:
    return isinstance(op, CallOp) and op.target == target


def no_write(op: Operation) -> bool:
    if isinstance(op, WriteOp):
        op.detach()
        return True
    return False


def swapped(op: Operation) -> bool:
    if calls(op, "aten.sub.Tensor"):
        op.operands = list(op.operands)[::-1]
        return True
    return False


def another_operator(op: Operation) -> bool:
    if calls(op, "aten.rsqrt.default"):
        op.properties["callee"] = SymbolRefAttr("aten.sqrt.default")
        return True
    return False


def nearly(op: Operation) -> bool:
    """An epsilon that was rounded on the way: an error far beyond what rounding explains."""
    if calls(op, "aten.mean.dim") and isinstance(op, CallOp):
        op.properties["callee"] = SymbolRefAttr("aten.sum.dim_IntList")
        return True
    return False


FAULTS = {fault.__name__: fault for fault in (no_write, swapped, another_operator, nearly)}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_faults_are_caught_and_reduced(fault: Callable[[Operation], bool], tmp_path: Path, plant: None) -> None:
    module = ir.run_passes(imported(), "functionalize,lower")
    before = len(list(module.walk()))
    Faulty.change = fault
    with pytest.raises(PassFailedException) as caught:
        ir.run_passes(module, "faulty", between=Validator(tmp_path).between)
    message = str(caught.value)
    assert "\n" not in message
    assert re.match(r"validation: pass faulty changes what the program does: (output|memory) \d+", message)
    [path] = tmp_path.iterdir()
    assert str(path) in message
    text = path.read_text()
    assert text.startswith("// RUN: vllm-ir-opt %s -p 'faulty' --validate --validate-inputs 'plain'")
    reduced = ir.parse(text)
    assert len(list(reduced.walk())) <= 6 < before
    # What was written shows the fault by itself.
    after = reduced.clone()
    Faulty().apply(Context(), after)
    assert compare("faulty", reduced, after, only="plain").status == "failed"


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, "faulty", lambda: Faulty)


def divide_by_the_root(op: Operation) -> bool:
    """A quotient in the place of a product with the reciprocal of the root, which rounds once more."""
    if calls(op, "aten.mul.Tensor") and isinstance(op, CallOp):
        root = op.operands[1].owner
        assert calls(root, "aten.rsqrt.default")
        root.properties["callee"] = SymbolRefAttr("aten.sqrt.default")
        op.properties["callee"] = SymbolRefAttr("aten.div.Tensor")
        return True
    return False


def test_rounding_is_told_from_faults(tmp_path: Path, plant: None) -> None:
    def norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    module = ir.import_callable(norm, torch.randn(64, 64))
    Faulty.change = divide_by_the_root
    validator = Validator(tmp_path)
    ir.run_passes(module, "faulty", between=validator.between)
    [verdict] = validator.verdicts
    assert verdict.status == "rounding"
    assert 0 < verdict.error <= verdict.bound < 1e-4
    assert re.match(r"faulty: rounding, largest error .*, bound .* \(plain", str(verdict))


def test_program_that_takes_no_generated_inputs(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 1e9)  # pyright: ignore[reportPrivateUsage]  # the call that data decides about
        return x + 1

    module = ir.import_callable(program, torch.full((2,), 1e10))
    verdict = compare("functionalize", module.clone(), ir.run_passes(module, "functionalize"))
    assert verdict.status == "not run"
    assert re.match(r"functionalize: not run: before the pass, the program fails: .*_assert_async", str(verdict))


# As an option of the compiler


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir", "vllm_ir_xla"])
def test_option(backend: str, tmp_path: Path) -> None:
    ir.clear_compile_reports()
    compiled = torch.compile(step, backend=backend, options={"validate": str(tmp_path)}, fullgraph=True)
    compiled(*step_inputs())
    [report] = ir.compile_reports()
    names = [line.partition(":")[0] for line in report.verdicts]
    expected = {
        "vllm_ir_eager": ["functionalize", "lower", "eliminate-clones"],
        "vllm_ir": ["functionalize", "lower", "eliminate-clones"],
        "vllm_ir_xla": ["alias-outputs", "functionalize", "convert-to-stablehlo", "narrow-updates"],
    }
    assert names == expected[backend]
    assert all(": exact (" in line or ": rounding, " in line for line in report.verdicts)


def test_option_of_the_wrong_type() -> None:
    with pytest.raises(Exception, match="option validate must be True, or a directory for reproducers"):
        torch.compile(step, backend="vllm_ir_eager", options={"validate": 3}, fullgraph=True)(*step_inputs())
