"""`ir.interpret` on every level, and what it says of modules that do not mean what they state."""

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import InterpretationError

import vllm_ir as ir

LEVELS = {
    "imported": "",
    "functional": "functionalize",
    "in place": "functionalize,lower,eliminate-clones",
    "marked": "alias-outputs",
    "pure": "alias-outputs,functionalize",
    "lowered and pure": "alias-outputs,functionalize,lower",
}


def cache_step(cache: Tensor, row: Tensor, n: int) -> tuple[Tensor, Tensor, int]:
    """A write through views, a read behind it, and a window that is returned."""
    layer = cache.unbind(0)[1]
    before = layer * 1
    layer[n].copy_(row)
    layer[0].add_(before[1])
    return layer, layer @ row, n + 1


def step_inputs() -> tuple[Tensor, Tensor, int]:
    return torch.arange(24.0).reshape(2, 4, 3), torch.tensor([1.0, 2.0, 3.0]), 2


@pytest.mark.parametrize("passes", LEVELS.values(), ids=list(LEVELS))
def test_levels(passes: str) -> None:
    module = ir.run_passes(ir.import_callable(cache_step, *step_inputs()), passes)
    cache, row, n = step_inputs()
    expected = cache_step(cache, row, n)
    mine, row, n = step_inputs()
    result = ir.interpret(module, mine, row, n)
    assert torch.equal(mine, cache)
    assert isinstance(result, tuple)
    assert torch.equal(result[0], expected[0])
    assert result[0].data_ptr() == mine[1].data_ptr()
    assert torch.equal(result[1], expected[1])
    assert result[2] == 3


@pytest.mark.parametrize("passes", LEVELS.values(), ids=list(LEVELS))
def test_sizes_are_learned_from_the_inputs(passes: str) -> None:
    def grow(x: Tensor) -> tuple[Tensor, Tensor]:
        x[1:].mul_(2)
        return torch.cat([x, x]), x.nonzero()

    exported = torch.export.export(_Module(grow), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    module = ir.run_passes(ir.import_exported(exported), passes)
    for rows in (2, 5):
        x = torch.arange(3.0 * rows).reshape(rows, 3)
        expected = grow(y := x.clone())
        result = ir.interpret(module, x)
        assert isinstance(result, tuple)
        assert torch.equal(x, y)
        assert [tuple(value.shape) for value in result] == [tuple(value.shape) for value in expected]
        assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


def test_attributes_come_from_the_module() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.steps.add_(1)

    counter = Counter()
    module = ir.import_callable(counter, torch.ones(2))
    assert torch.equal(ir.interpret(module, torch.ones(2), like=counter), torch.full((2,), 2.0))
    assert counter.steps == 1


@pytest.mark.parametrize("passes", ["", "functionalize"])
def test_branches(passes: str) -> None:
    def pick(x: Tensor) -> Tensor:
        x.add_(1)
        return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: -a, (x,))

    module = ir.run_passes(ir.import_callable(pick, torch.ones(2)), passes)
    assert torch.equal(ir.interpret(module, torch.ones(2)), torch.full((2,), 4.0))
    assert torch.equal(ir.interpret(module, torch.full((2,), -3.0)), torch.full((2,), 2.0))


# Donation


def donating(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Gives both operands away."""
    return ir.ops.fused_add_rms_norm.maybe_inplace(x, residual, None, 1e-5)


@pytest.mark.parametrize("passes", ["", "functionalize", "functionalize,lower,eliminate-clones"])
def test_donated_arguments_are_poisoned(passes: str) -> None:
    inputs = torch.ones(2, 3), torch.ones(2, 3)
    expected = ir.ops.fused_add_rms_norm(inputs[0].clone(), inputs[1].clone(), None, 1e-5)
    module = ir.run_passes(ir.import_callable(donating, *inputs), passes)
    result = ir.interpret(module, *inputs)
    assert isinstance(result, tuple)
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    assert inputs[0].isnan().all()
    assert inputs[1].isnan().all()


def test_donated_memory_is_not_read() -> None:
    text = """
    vllm_ir.func @main(%x: !vllm_ir.buffer<2x3xf32> {vllm_ir.mutated}, %r: !vllm_ir.buffer<2x3xf32> {vllm_ir.mutated})
        -> (tensor<2x3xf32>, tensor<3xf32>) {
      %row = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<2x3xf32>) -> !vllm_ir.buffer<3xf32, offset = 3>
      %n, %s = vllm_ir.fused_add_rms_norm %x, %r : !vllm_ir.buffer<2x3xf32>, !vllm_ir.buffer<2x3xf32>
          {epsilon = 1.0e-05 : f64, donated = array<i64: 0, 1>} -> tensor<2x3xf32>, tensor<2x3xf32>
      %late = vllm_ir.read %row : !vllm_ir.buffer<3xf32, offset = 3> -> tensor<3xf32>
      vllm_ir.return (%n, %late) : tensor<2x3xf32>, tensor<3xf32>
    }
    """
    with pytest.raises(InterpretationError, match=r"vllm_ir.read reads .*row.*, whose memory was donated before"):
        ir.interpret(ir.parse(text), torch.ones(2, 3), torch.ones(2, 3))


# Modules that lie. Most lies are found when text is compared with PyTorch's schemas; what is left shows when it runs.


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compared with schemas, so that the interpreter itself has to see what is wrong."""
    monkeypatch.setattr("vllm_ir.backends.interpreter.interpret.check_module", lambda module: None)


def run_text(body: str, *inputs: object) -> object:
    return ir.interpret(ir.parse(body), *inputs)


@pytest.mark.usefixtures("believed")
def test_result_of_another_type() -> None:
    with pytest.raises(InterpretationError, match=r"@aten.neg.default gives float32\[2\] for .*: tensor<3xf32>"):
        run_text(
            """
            vllm_ir.func @main(%x: tensor<2xf32>) -> tensor<3xf32> {
              %y = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<3xf32>
              vllm_ir.return %y : tensor<3xf32>
            }
            """,
            torch.ones(2),
        )


@pytest.mark.usefixtures("believed")
def test_window_at_another_place() -> None:
    with pytest.raises(InterpretationError, match=r"moves the window by 4 bytes, the types of %x and .* by 8"):
        run_text(
            """
            vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>)
                -> (!vllm_ir.buffer<2xf32, offset = 2> {vllm_ir.aliases = 0}) {
              %y = vllm_ir.view @aten.slice.Tensor(%x, 0, 1, 3, 1)
                : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<2xf32, offset = 2>
              vllm_ir.return %y : !vllm_ir.buffer<2xf32, offset = 2>
            }
            """,
            torch.ones(4),
        )


@pytest.mark.usefixtures("believed")
def test_operator_that_refuses_its_operands() -> None:
    with pytest.raises(InterpretationError, match=r"@aten.add.Tensor: RuntimeError: The size of tensor a"):
        run_text(
            """
            vllm_ir.func @main(%x: tensor<2xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
              %z = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<2xf32>, tensor<3xf32>) -> tensor<3xf32>
              vllm_ir.return %z : tensor<3xf32>
            }
            """,
            torch.ones(2),
            torch.ones(3),
        )


def test_values_are_not_what_is_written_later() -> None:
    """A value that was read keeps its elements, also if it is looked at through a view."""
    result = run_text(
        """
        vllm_ir.func @main(%x: !vllm_ir.buffer<3xf32> {vllm_ir.mutated}) -> (tensor<3xf32>, tensor<3x1xf32>) {
          %old = vllm_ir.read %x : !vllm_ir.buffer<3xf32> -> tensor<3xf32>
          %column = torch.call @aten.unsqueeze.default(%old, 1) : (tensor<3xf32>) -> tensor<3x1xf32>
          %fill = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0]
            : (!vllm_ir.buffer<3xf32>) -> !vllm_ir.buffer<3xf32>
          vllm_ir.return (%old, %column) : tensor<3xf32>, tensor<3x1xf32>
        }
        """,
        x := torch.ones(3),
    )
    assert isinstance(result, tuple)
    assert x.eq(0).all()
    assert all(value.eq(1).all() for value in result)


# Inputs that do not fit

SIGNATURE = """
vllm_ir.func @main(%x: !vllm_ir.buffer<?x3xf32, sizes = ["s0", 3]> {vllm_ir.mutated},
                   %y: tensor<?x3xf32, #vllm_ir.layout<sizes = ["s0", 3]>>, %n: i64 {vllm_ir.symbol = "s0"}) -> () {
  vllm_ir.write %y, %x
    : tensor<?x3xf32, #vllm_ir.layout<sizes = ["s0", 3]>>, !vllm_ir.buffer<?x3xf32, sizes = ["s0", 3]>
  vllm_ir.return ()
}
"""


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((torch.ones(2, 3),), r"@main takes 3 inputs, 1 were given"),
        ((torch.ones(2, 3), 1.0), r"input 1 \(%y\) is a float, it takes a tensor"),
        ((torch.ones(2, 3), torch.ones(2, 3).double()), r"input 1 \(%y\) is float64\[2, 3\], it takes tensor"),
        ((torch.ones(2, 3), torch.ones(4, 3)), r"input 1 \(%y\) is float32\[4, 3\], .* with sizes \[2, 3\]"),
        ((torch.ones(2, 3), torch.ones(2, 3), 5), r"input 2 \(%n\) is 5, the sizes of other inputs make s0 = 2"),
        ((torch.ones(3, 2).t(), torch.ones(2, 3)), r"input 0 \(%x\) has strides \[1, 2\], it takes \[3, 1\]"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Sequence[object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ir.interpret(ir.parse(SIGNATURE), *inputs)
    assert "\n" not in str(caught.value)


def test_overlapping_inputs() -> None:
    x = torch.ones(4, 3)
    with pytest.raises(ValueError, match=re.escape("input 0 (%x) and input 1 (%y) overlap")):
        ir.interpret(ir.parse(SIGNATURE), x[:2], x[1:3])


def test_inputs_have_to_share_what_the_signature_says() -> None:
    x = torch.ones(3)
    module = ir.import_callable(lambda a, b: a.add_(b), x, x)
    with pytest.raises(ValueError, match="are in different memory, they take one storage"):
        ir.interpret(module, torch.ones(3), torch.ones(3))
