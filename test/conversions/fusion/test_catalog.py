"""Every fusion that is always there: right on its examples, not where others need a value, and in the index."""

import json

import pytest
import torch
from xdsl.ir import Operation

import vllm_ir as ir
from vllm_ir.conversions.fuse import FUSED, FusePass
from vllm_ir.conversions.fusion.catalog import FUSIONS
from vllm_ir.conversions.fusion.library import INDEX, index_key, source_hash, traced_sketches
from vllm_ir.conversions.fusion.ordering import ordered
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.tools import fusion_checks, fusion_index
from vllm_ir.tools.text import text_context

by_fusion = pytest.mark.parametrize("fusion", FUSIONS, ids=[fusion.name for fusion in FUSIONS])


@by_fusion
def test_some_examples(fusion: ir.Fusion, tmp_path):
    [check] = ir.check_fusions([fusion.name], most=4, directory=tmp_path)
    assert check.problem is None
    assert check.programs


@pytest.mark.slow
@by_fusion
def test_all_examples(fusion: ir.Fusion, tmp_path):
    [check] = ir.check_fusions([fusion.name], directory=tmp_path)
    assert check.problem is None


@by_fusion
def test_a_value_that_goes_away_has_no_other_user(fusion: ir.Fusion):
    """With one more user of a value between them, operations stay, unless a variant gives that value as a result."""
    arguments = next(iter(fusion.examples()))
    count = len(_operations(fusion_checks._program(fusion, arguments)))
    for number in range(count):
        module = fusion_checks._program(fusion, arguments)
        op = _operations(module)[number]
        returned = set(_function(module).terminator.operands)
        inner = [result for result in op.results if result not in returned and result.uses and is_tensor(result.type)]
        if not inner or not op.operands:
            continue
        terminator = _function(module).terminator
        b = CallBuilder(lambda new, at=terminator: at.parent.insert_op_before(new, at))
        user = b.call(torch.ops.aten.clone.default, [inner[0]], [inner[0].type])
        FusePass(only=(fusion.name,)).apply(text_context(), module)
        assert FUSED not in module.attributes or user.operands[0] is not inner[0]
        module.verify()


def _function(module) -> FuncOp:
    return next(op for op in module.body.block.ops if isinstance(op, FuncOp))


def _operations(module) -> list[Operation]:
    return list(_function(module).block.ops)[:-1]


def test_the_index_is_up_to_date():
    """`python -m vllm_ir.tools.fusion_index` writes it. All entries by their sources, every seventh by its content."""
    entries = json.loads(INDEX.read_text(encoding="utf-8"))
    assert {name: entry["source"] for name, entry in entries.items()} == {
        index_key(fusion, decompose): source_hash(fusion) for fusion in FUSIONS for decompose in (False, True)
    }
    for number, fusion in enumerate(FUSIONS):
        if number % 7 == 0:
            assert fusion_index.entry(fusion, decompose=False) == entries[index_key(fusion, False)]


@pytest.mark.slow
def test_all_of_the_index_is_up_to_date():
    assert fusion_index.main(["--check"]) == 0


def test_the_order_follows_from_what_fusions_consist_of():
    names = ["rms_norm_static_quant", "add_rms_norm", "recognize_rms_norm", "qk_norm_rope", "qk_norm_rope_cache"]
    fusions = [fusion for fusion in FUSIONS if fusion.name in names]
    order = [sketch.fusion.name for sketch in ordered([s for f in fusions for s in traced_sketches(f, False)])]
    first = {name: order.index(name) for name in names}
    assert first["recognize_rms_norm"] < first["add_rms_norm"] < first["rms_norm_static_quant"]
    assert first["qk_norm_rope_cache"] < first["qk_norm_rope"]


def test_at_most_four_patterns_for_all_norms_with_quantisation():
    assert len([fusion for fusion in FUSIONS if fusion.name.startswith("rms_norm") and "quant" in fusion.name]) <= 4
