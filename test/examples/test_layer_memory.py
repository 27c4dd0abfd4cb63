"""The layer step allocates two activations with the default overload and none with `maybe_inplace`."""

from pathlib import Path

import pytest
import torch

import vllm_ir as ir

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_IR_PROGRESS", "0")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import layer_memory

    return layer_memory


@pytest.mark.parametrize(
    ("backend", "layer"),
    [
        ("eager", (2, 0)),
        # Nobody reads what attention gave after the norm: the compiler makes no copy of it.
        ("vllm_ir_eager", (1, 0)),
        ("vllm_ir", (1, 0)),
    ],
)
def test_activations_that_a_step_allocates(example, backend: str, layer: tuple[int, int]) -> None:
    assert ir.ops.fused_add_rms_norm.impls["cpu"].written == ("x", "x_residual")
    counted = example.measure(example.make_inputs(tokens=64, hidden=512), backend)
    assert counted == {"layer": layer, "norm": (2, 0)}


def test_both_steps_give_the_same(example) -> None:
    inputs = example.make_inputs(tokens=8, hidden=128)
    with ir.ops.fused_add_rms_norm.set_priority(["cpu"]):
        results = [
            step(inputs.residual.clone(), inputs.weight, *inputs.attention)
            for step in (example.layer, example.layer_in_place)
        ]
    for default, in_place in zip(*results, strict=True):
        assert torch.equal(default, in_place)


def test_the_table(example, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--tokens", "16", "--hidden", "128", "--backends", "eager"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " eager " in line]
    assert rows == [["layer", "eager", "2", "0"], ["norm", "eager", "2", "0"]]
    with pytest.raises(SystemExit, match="2"):
        example.main(["--hidden", "100"])
    assert "--hidden must be a multiple of 64, got 100" in capsys.readouterr().err
