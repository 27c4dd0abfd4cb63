"""`ir.export_stablehlo`, and the targets of `vllm-ir-opt` that it stands behind."""

import pytest
import torch
from jaxlib import _hlo
from torch import Tensor

import vllm_ir as ir
from vllm_ir.backends.stablehlo.program import StableHLOProgram
from vllm_ir.tools.vllm_ir_opt import main


def write(cache: Tensor, x: Tensor):
    """Writes a cache and returns all kinds of outputs."""
    cache[1] = x
    return x.sum(), cache, cache[0], None, 5, cache.t(), torch.outer(x, x + 1).t()


@pytest.fixture
def module():
    return ir.import_callable(write, torch.zeros(4, 4), torch.ones(4, 4)[0])


def check_run(program: StableHLOProgram) -> None:
    """Results and memory are those of eager."""
    cache, other, x = torch.zeros(4, 4), torch.zeros(4, 4), torch.arange(4.0)
    results, expected = program.run(cache, x), write(other, x)
    assert torch.equal(cache, other)
    assert results[1] is cache
    assert [r.data_ptr() == cache.data_ptr() for r in (results[2], results[5])] == [True, True]
    assert results[3:5] == (None, 5)
    for result, wanted in zip(results, expected, strict=True):
        if isinstance(wanted, Tensor):
            assert torch.equal(result, wanted)
            assert result.stride() == wanted.stride()


@pytest.mark.parametrize("alias", ["may", "must", "none"])
def test_programs_know_their_aliases_and_run(module, alias):
    before = str(module)
    program = ir.export_stablehlo(module, alias)
    assert str(module) == before, "passes run on a copy"
    assert program.io_map == {1: 0}
    assert program.original_output_count == 7
    assert program.output_views == {
        2: (0, (4,), (1,), 0, torch.float32),
        5: (0, (4, 4), (1, 4), 0, torch.float32),
    }
    check_run(program)


@pytest.mark.parametrize("passes", ["alias-outputs", "alias-outputs,functionalize"])
def test_modules_that_have_been_through_some_passes(module, passes):
    check_run(ir.export_stablehlo(ir.run_passes(module, passes)))


def test_stablehlo_modules_state_their_aliases_themselves(module):
    program = ir.export_stablehlo(ir.run_passes(module, "alias-outputs,functionalize,convert-to-stablehlo"))
    assert program.io_map == {1: 0}
    cache = torch.zeros(4, 4)
    assert program.run(cache, torch.ones(4))[1] is cache
    assert cache.sum() == 4


def test_hlo_protos_through_the_tool(module, tmp_path):
    source, proto = tmp_path / "in.mlir", tmp_path / "out.pb"
    source.write_text(str(module))
    assert main([str(source), "-t", "hlo-proto", "-o", str(proto)]) == 0
    text = _hlo.HloModule.from_serialized_hlo_module_proto(proto.read_bytes()).to_string()
    assert "input_output_alias={ {1}: (0, {}, may-alias) }" in text


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ('vhlo{version="99.0.0"}', "vllm-ir-opt: error: version 99.0.0 cannot be written"),
        ('hlo-proto{alias="maybe"}', "vllm-ir-opt: error: alias is 'maybe', it takes 'may', 'must', 'none'"),
    ],
)
def test_errors_of_the_targets_are_one_line(module, tmp_path, capsys, target, message):
    source = tmp_path / "in.mlir"
    source.write_text(str(module))
    assert main([str(source), "-t", target]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_binary_targets_write_one_module(module, tmp_path, capsys):
    source = tmp_path / "in.mlir"
    source.write_text("\n// -----\n".join([str(module)] * 2))
    assert main([str(source), "--split-input-file", "-t", "vhlo", "-o", str(tmp_path / "out")]) == 1
    assert "target 'vhlo' writes one module; the input holds several" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_symbolic_sizes_are_refused_with_the_input_and_dimension():
    captured: list[str] = []

    def backend(gm, inputs):
        with pytest.raises(Exception, match=r"symbolic size") as caught:
            ir.export_stablehlo(ir.import_fx(gm, inputs))
        captured.append(str(caught.value))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x * 2, backend=backend, dynamic=True)(torch.ones(3, 5))
    assert captured
