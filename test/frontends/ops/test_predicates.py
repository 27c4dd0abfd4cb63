"""What a `supports_args` may look at."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import vllm_ir as ir
from vllm_ir.frontends.ops import register_op, statically_known


@register_op
def predicates_op(x: Tensor) -> Tensor:
    return x + 1


def _register(provider: str, predicate) -> None:
    predicates_op.register_impl(provider, supports_args=predicate)(predicates_op.native)


_register("batch", lambda x: x.shape[0] == 8)
_register("guards", lambda x: bool(x.shape[0] == 8))
_register("data", lambda x: bool(x.sum() > 0))
_register("known", lambda x: statically_known(x.shape[0] == 8))
_register("columns", lambda x: x.shape[1] == 4)


def symbolic() -> Tensor:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    real = torch.ones(8, 4)
    torch._dynamo.mark_dynamic(real, 0)
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    return mode.from_tensor(real, symbolic_context=context)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (
            "batch",
            r"'batch' \(.*test_predicates.py:\d+\) depends on a size that is not known .*Eq\(s\d+, 8\); ask with",
        ),
        ("guards", r"'guards' \(.*test_predicates.py:\d+\) depends on a size that is not known .*Eq\(s\d+, 8\)"),
        ("data", r"'data' \(.*test_predicates.py:\d+\) raised .*"),
    ],
)
def test_predicates_that_look_too_closely_are_named(provider: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        predicates_op.impls[provider].supports_args(symbolic())


def test_answers_that_hold_for_all_sizes() -> None:
    x = symbolic()
    assert not predicates_op.impls["known"].supports_args(x)
    assert predicates_op.impls["columns"].supports_args(x)
    assert not x.fake_mode.shape_env.guards
    assert predicates_op.impls["batch"].supports_args(torch.ones(8, 4))


def test_a_compilation_names_the_predicate() -> None:
    x = torch.ones(8, 4)
    torch._dynamo.mark_dynamic(x, 0)
    options = {"ir_op_priority": {"predicates_op": ["batch"]}}
    compiled = torch.compile(lambda x: predicates_op(x), backend="vllm_ir_eager", options=options, fullgraph=True)
    with pytest.raises(Exception, match=r"'batch' .* depends on a size that is not known when the graph is compiled"):
        compiled(x)
    assert ir.statically_known(True)
