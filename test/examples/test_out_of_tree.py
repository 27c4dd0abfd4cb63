"""`examples/out_of_tree`, installed: everything in it is found by entry points alone."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from os import environ
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.tools.text import text_context

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "out_of_tree"

MODEL = """
import torch
import vllm_ir as ir

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 8), requires_grad=False)
        self.register_buffer("steps", torch.zeros(4, 8))

    def forward(self, x, residual):
        self.steps.add_(1)
        residual.add_(x)
        total = residual + self.steps
        return ir.ops.soft_cap(ir.ops.rms_norm(total, self.weight, 1e-6), 2.0), total * 2, residual.t()

def example_inputs():
    torch.manual_seed(0)
    return torch.randn(4, 8), torch.randn(4, 8)

def without_code(x):
    return (x + 1).sin()

def same(one, other):
    return all(a.stride() == b.stride() and torch.equal(a, b) for a, b in zip(one, other, strict=True))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed package and the file of a model; built offline, from a copy."""
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("sources") / "example")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run(
        [*command, "--target", str(target), str(copy)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (target / "model.py").write_text(MODEL)
    return target


def run(installed: Path, *command: str, **variables: str) -> str:
    environment = environ | {"PYTHONPATH": str(installed)} | variables
    done = subprocess.run(command, env=environment, cwd=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_at_work_in_compiled_models(installed: Path):
    code = """
import torch
from model import *

def reference():
    # The kernels round like native definitions here, so eager mode under the vendor's platform is the reference.
    layer, inputs = Layer(), example_inputs()
    return layer, inputs, layer(*inputs)

def check(backend, **options):
    (expected, given, outputs), layer, inputs = reference(), Layer(), example_inputs()
    torch._dynamo.reset()
    results = torch.compile(layer, backend=backend, options=options or None)(*inputs)
    assert torch.equal(inputs[1], given[1]) and torch.equal(layer.steps, expected.steps), backend
    assert results[2].untyped_storage().data_ptr() == inputs[1].untyped_storage().data_ptr(), backend
    return results, outputs, ir.compile_reports()[-1]

with torch.no_grad():
    # Torch finds the backend by the entry point; nothing of the vendor's has been imported.
    results, outputs, report = check("example_numpy")
    assert report.backend == "example_numpy" and "example-fuse-add-norm" in report.pass_seconds
    # NumPy sums in another order, its roots and tanh may differ in the last bits: some roundoffs of float32.
    assert torch.allclose(results[0], outputs[0], rtol=0, atol=2.0 ** -20) and same(results[1:], outputs[1:])

    assert ir.current_platform.name == "example" and ir.current_platform.is_out_of_tree()
    assert ir.ops.rms_norm.get_priority() == ["example", "native"]

    results, outputs, report = check("vllm_ir_eager")
    assert list(report.selected_impls["rms_norm"].values()) == ["example"], report.selected_impls
    assert list(report.selected_impls["soft_cap"].values()) == ["native"], report.selected_impls
    assert same(results, outputs)

    passes = "functionalize,example-fuse-add-norm,lower,eliminate-clones"
    results, outputs, report = check("vllm_ir_eager", passes=passes)
    assert "rms_norm" not in report.selected_impls and "fused_add_rms_norm" in report.selected_impls
    assert torch.allclose(results[0], outputs[0], rtol=0, atol=2.0 ** -20) and same(results[1:], outputs[1:])

    results, outputs, report = check("vllm_ir_eager", fusions=["example_capped_norm"])
    assert len(report.fusions["example_capped_norm"]) == 1
    assert list(report.selected_impls["capped_rms_norm"].values()) == ["native"]
    assert torch.allclose(results[0], outputs[0], rtol=0, atol=2.0 ** -20) and same(results[1:], outputs[1:])

    try:
        torch.compile(without_code, backend="example_numpy")(torch.ones(2))
    except Exception as error:
        assert "backend 'example_numpy' cannot compile the graph that begins at" in str(error), error
        assert "model.py:22: @aten.sin.default: example_numpy has no code for it" in str(error), error
    else:
        raise AssertionError("aten.sin is compiled")
ir.testing.check_impl(ir.ops.rms_norm, "example")
[checked] = ir.check_fusions(["example_capped_norm"])
assert checked.problem is None and checked.exact == checked.programs == 4, checked
"""
    run(installed, sys.executable, "-c", code, EXAMPLE_VENDOR_DEVICE="1")


def plain(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    return ir.ops.rms_norm(total, weight, 1e-6), total * 2


def part_of_a_row(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (ir.ops.rms_norm(x + residual, None, 1e-6, 4),)


def read_before(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    total = x + residual
    return total * 2, ir.ops.rms_norm(total, weight, 1e-6)


def multiplied(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (ir.ops.rms_norm(torch.add(x, residual, alpha=2), weight, 1e-6),)


def rounded(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (ir.ops.rms_norm(x.bfloat16() + residual.bfloat16(), weight, 1e-6),)


def broadcast(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (ir.ops.rms_norm(x + weight, weight, 1e-6),)


def number(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return (ir.ops.rms_norm(x + 1, weight, 1e-6),)


FUSED = (plain, part_of_a_row)
NOT_FUSED = (read_before, multiplied, rounded, broadcast, number)


@pytest.mark.parametrize("program", [*FUSED, *NOT_FUSED])
def test_the_fusion_changes_no_bit(program: Callable[..., object], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from example_vendor.fuse_add_norm import FuseAddNormPass

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*shape, generator=generator) for shape in ((64, 8), (64, 8), (8,))]
    module = ir.run_passes(ir.import_callable(program, *inputs), "functionalize")
    expected = ir.interpret(module, *inputs)
    FuseAddNormPass().apply(text_context(), module)
    module.verify()
    assert ("vllm_ir.fused_add_rms_norm" in str(module)) == (program in FUSED)
    for one, other in zip(ir.interpret(module, *inputs), expected, strict=True):
        assert torch.equal(one, other)


def test_vllm_ir_opt_knows_the_op_the_pass_and_the_kernel(installed: Path, tmp_path: Path):
    text = tmp_path / "program.mlir"
    text.write_text("""
vllm_ir.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %w: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %sum = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %one = vllm_ir.rms_norm %sum : tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-06 : f64} -> tensor<4x8xf32>
  %two = vllm_ir.rms_norm %x : tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-06 : f64} -> tensor<4x8xf32>
  %capped = "vllm_ir.soft_cap"(%one) <{cap = 2.0 : f64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  vllm_ir.return (%capped, %two) : tensor<4x8xf32>, tensor<4x8xf32>
}
""")
    tool = (sys.executable, "-m", "vllm_ir.tools.vllm_ir_opt", str(text), "--print-between-passes")
    shown = run(installed, *tool, "-p", "example-fuse-add-norm,functionalize,lower", EXAMPLE_VENDOR_DEVICE="1")
    fused, lowered = shown.split("IR after example-fuse-add-norm:")[1].split("IR after functionalize:")
    assert "vllm_ir.fused_add_rms_norm %x, %y" in fused
    assert '"vllm_ir.soft_cap"(%one)' in fused
    assert "torch.call @example_vendor.rms_norm.default(%x, %w" in lowered
