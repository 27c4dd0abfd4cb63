"""What vLLM's unit tests of lowering, of `maybe_inplace` in graphs and of clone clean-up describe, in our programs.

They import the registry as `vllm.ir`. The number of copies is that of vLLM's tests where both count the same thing.
"""

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch.fx.experimental.proxy_tensor import make_fx

import vllm_ir
from vllm_ir.frontends.ops import IrOp
from vllm_ir.tools.lowering import written_arguments
from vllm_ir.tools.reports import CompileReport

EPSILON = 1e-5
BACKENDS = ("vllm_ir_eager", "vllm_ir")


@pytest.fixture(scope="module", autouse=True)
def alias() -> Iterator[None]:
    """Only here, `vllm.ir` is this package."""
    names = ("vllm", "vllm.ir", "vllm.ir.op", "vllm.ir.ops")
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    vllm_ir.stand_in_for("vllm.ir")
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@torch.library.custom_op("stand_in::shift", mutates_args=())
def shift(x: Tensor) -> Tensor:
    """A kernel that the compiler cannot look into."""
    return x + 0.5


@shift.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("stand_in::bump_", mutates_args=("x",))
def bump_(x: Tensor) -> None:
    """Another one, which writes."""
    x.add_(1)


def the_report() -> CompileReport:
    (report,) = vllm_ir.compile_reports()
    return report


# --- lowering --------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole_rows() -> Iterator[str]:
    """A provider of `rms_norm` that does not know `variance_size`."""
    from vllm.ir.ops import rms_norm

    def takes(x: Tensor, _weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
        return variance_size is None

    @rms_norm.register_impl("whole_rows", supports_args=takes)
    def _(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
        return rms_norm.native(x, weight, epsilon, variance_size)

    yield "whole_rows"
    rms_norm.remove_impl("whole_rows")


class Norms(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        from vllm.ir import ops

        x = ops.rms_norm(x + 4.0, weight, EPSILON)
        x = ops.rms_norm(x * 5.0, None, EPSILON)
        return ops.rms_norm(x / 2.0, weight, EPSILON, x.shape[-1] // 2) + 3.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_node_gets_the_first_provider_that_takes_it(whole_rows: str, backend: str) -> None:
    import vllm.ir

    vllm_ir.clear_compile_reports()
    x, weight = torch.randn(8, 16), torch.randn(16)
    compiled = torch.compile(Norms(), backend=backend, fullgraph=True)
    with vllm.ir.ops.rms_norm.set_priority([whole_rows, "native"]), vllm.ir.enable_torch_wrap(True):
        got = compiled(x, weight)
        want = Norms()(x, weight)
    selected = the_report().selected_impls["rms_norm"]
    assert list(selected.values()) == [whole_rows, whole_rows, "native"]
    assert list(the_report().rejected_impls["rms_norm"].values()) == [
        [(whole_rows, "supports_args refused the arguments")]
    ]
    # Inductor's vectorised sums have another order.
    tolerance = vllm.ir.ops.rms_norm.get_tolerance(x.dtype, 16) if backend == "vllm_ir" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(got, want, **tolerance)
    with vllm.ir.enable_torch_wrap(True), torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(x, weight), got)  # what was compiled keeps its providers


def call_of(op: IrOp, args: tuple[object, ...]) -> Callable[[], object]:
    return lambda: op(*(arg.clone() if isinstance(arg, Tensor) else arg for arg in args))


@pytest.mark.parametrize(
    ("name", "provider"),
    [("rms_norm", "native"), ("rms_norm", "cpu"), ("fused_add_rms_norm", "cpu"), ("rotary_embedding", "cpu")],
)
def test_lowered_and_eager_calls_use_the_same_implementation(name: str, provider: str) -> None:
    import vllm.ir

    op = vllm.ir.ops[name]
    args = op.generate_inputs()
    call = call_of(op, args)
    results: list[object] = []
    with op.set_priority([*dict.fromkeys((provider, "native"))]):
        dispatched = op.dispatch(*args)
        assert dispatched is op.impls[provider]
        results.append(call())
        vllm_ir.clear_compile_reports()
        results.append(torch.compile(call, backend="vllm_ir_eager", fullgraph=True)())
        assert set(the_report().selected_impls[name].values()) == {provider}
        torch.compiler.reset()
        results.append(torch.compile(call, backend="eager", fullgraph=True)())  # nothing is lowered
        torch.compiler.reset()
        with vllm.ir.enable_torch_wrap(False):  # implementations are traced
            results.append(torch.compile(call, backend="eager", fullgraph=True)())
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


# --- maybe_inplace ---------------------------------------------------------------------------------------------------


def given_away(x: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    from vllm.ir.ops import fused_add_rms_norm as norm

    x, first = norm.maybe_inplace(x, first, weight, EPSILON)
    x, second = norm.maybe_inplace(x, second, weight, EPSILON)
    return x, first, second


def kept(x: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    from vllm.ir.ops import fused_add_rms_norm as norm

    x, first = norm(x, first, weight, EPSILON)
    x, second = norm(x, second, weight, EPSILON)
    return x, first, second


def mixed(x: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    from vllm.ir.ops import fused_add_rms_norm as norm

    between, first = norm.maybe_inplace(x, first, weight, EPSILON)
    x, second = norm(between, second, weight, EPSILON)
    return between, x, first, second


def kernel_between(x: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    from vllm.ir.ops import fused_add_rms_norm as norm

    x, _ = norm.maybe_inplace(x, first, weight, EPSILON)
    x, second = norm(shift(x), second, weight, EPSILON)
    return x, second


def norm_inputs(rows: int = 8) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator) for shape in (*[(rows, 16)] * 3, (16,)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("program", "donated", "copies"),
    [
        (given_away, 3, 0),
        (kept, 0, 3),  # what is between the two norms is nobody's
        (mixed, 2, 2),  # what is between them is returned, and the second residual is the caller's
        (kernel_between, 2, 1),
    ],
)
def test_arguments_given_away_and_copies_left(
    program: Callable[..., tuple[Tensor, ...]], donated: int, copies: int, backend: str
) -> None:
    from vllm.ir.ops import fused_add_rms_norm

    vllm_ir.clear_compile_reports()
    inputs = norm_inputs()
    with fused_add_rms_norm.set_priority(["cpu", "native"]):
        want = program(*norm_inputs())
        got = torch.compile(program, backend=backend, fullgraph=True)(*inputs)
    report = the_report()
    assert list(report.selected_impls["fused_add_rms_norm"].values()) == ["cpu", "cpu"]
    assert len(report.mutated) == donated
    assert (report.clones_inserted, report.clones_inserted - report.clones_removed) == (4, copies)
    assert len(report.copies) == copies
    for left, right in zip(got, want, strict=True):
        assert torch.equal(left, right)
    unwritten = [torch.equal(left, right) for left, right in zip(inputs, norm_inputs(), strict=True)]
    assert unwritten == [position >= donated for position in range(4)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_reading_what_was_given_away_is_an_error(backend: str) -> None:
    from vllm.ir.ops import fused_add_rms_norm as norm

    def program(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        normed, _ = norm.maybe_inplace(x, residual, weight, EPSILON)
        return normed + x

    x, residual, _, weight = norm_inputs()
    line = program.__code__.co_firstlineno
    message = rf"{__file__}:{line + 2}: .*uses %.*x.* after its memory was donated to .* at {__file__}:{line + 1}"
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        torch.compile(program, backend=backend, fullgraph=True)(x, residual, weight)


def test_two_graphs_with_any_number_of_rows() -> None:
    """Each graph gives away what it alone holds; a break between them ends the first."""
    from vllm.ir.ops import fused_add_rms_norm as norm

    def block(x: Tensor, weight: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
        normed, residual = norm.maybe_inplace(x @ projection, x, weight, 1e-5)
        torch._dynamo.graph_break()
        return norm.maybe_inplace(shift(normed) @ projection, residual, weight, 1e-5)

    vllm_ir.clear_compile_reports()
    compiled = torch.compile(block, backend="vllm_ir_eager", dynamic=True)
    projection = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
    for rows in (8, 5):
        x, _, _, weight = norm_inputs(rows)
        with norm.set_priority(["cpu", "native"]):
            want = block(x.clone(), weight, projection)
            got = compiled(x.clone(), weight, projection)
        for left, right in zip(got, want, strict=True):
            assert torch.equal(left, right)
    reports = vllm_ir.compile_reports()
    assert [set(report.selected_impls["fused_add_rms_norm"].values()) for report in reports] == [{"cpu"}] * 2
    assert [len(report.copies) for report in reports] == [0, 0]


# --- copies of the program's own -------------------------------------------------------------------------------------


def read_only(x: Tensor) -> Tensor:
    return x.clone() + 1


def written_and_older_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.relu()
    copy = x.clone()
    copy.add_(1)
    return x, copy


def written_alone(x: Tensor) -> Tensor:
    return x.relu().clone().add_(1)


def chain(x: Tensor) -> Tensor:
    return x.relu().clone().clone() + 1


def two_copies(x: Tensor) -> Tensor:
    return x.clone() + x.clone()


def no_copy(x: Tensor) -> Tensor:
    return x + 1


def unused(x: Tensor) -> Tensor:
    x.clone()
    return x + 1


def callers(x: Tensor) -> tuple[Tensor, Tensor]:
    copy = x.clone()
    copy.add_(1)
    return x, copy


def written_by_a_kernel(x: Tensor) -> Tensor:
    copy = x.relu().clone()
    bump_(copy)
    return copy


def written_by_a_kernel_and_older_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.relu()
    copy = x.clone()
    bump_(copy)
    return x, copy


def callers_by_a_kernel(x: Tensor) -> Tensor:
    copy = x.clone()
    bump_(copy)
    return copy


def copies(graph: fx.GraphModule) -> int:
    return len(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default))


@pytest.mark.parametrize(
    ("program", "before", "after"),
    [
        (read_only, 1, 0),
        (written_and_older_returned, 1, 0),  # the sum is new memory itself
        (written_alone, 1, 0),
        (chain, 2, 0),
        (two_copies, 2, 0),
        (no_copy, 0, 0),
        (unused, 1, 0),
        (callers, 1, 0),
        (written_by_a_kernel, 1, 0),
        (written_by_a_kernel_and_older_returned, 1, 1),
        (callers_by_a_kernel, 1, 1),
    ],
)
def test_copies_that_nobody_notices_go(program: Callable[..., object], before: int, after: int) -> None:
    x = torch.randn(2, 3)
    graph = make_fx(program)(x)
    assert copies(graph) == before
    for _ in range(2):  # the second time there is nothing to do
        graph = vllm_ir.export_fx(vllm_ir.run_passes(vllm_ir.import_fx(graph, [x]), "vllm-ir-in-place"))
        assert copies(graph) == after
        given = x.clone()
        results = graph(given)
        torch.testing.assert_close(results, program(x.clone()), rtol=0, atol=0)
        assert torch.equal(given, x)
        several = results if isinstance(results, tuple) else (results,)
        assert len({result.data_ptr() for result in several}) == len(several)


def test_an_argument_that_is_given_away_needs_no_copy() -> None:
    """One beside it, which is not, keeps its own."""
    import vllm.ir

    @vllm.ir.register_op(allow_inplace=True)
    def stand_in_bumped(x: Tensor) -> Tensor:
        return x + 1

    @stand_in_bumped.register_impl("writes", inplace=True)
    def _(x: Tensor) -> Tensor:
        bump_(x)
        return x

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return stand_in_bumped.maybe_inplace(x), stand_in_bumped(y)

    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    with stand_in_bumped.set_priority(["writes"]):
        graph = vllm_ir.export_fx(vllm_ir.run_passes(vllm_ir.import_callable(program, x, y), "vllm-ir-in-place"))
    assert copies(graph) == 1
    first, second = graph(x, y)
    assert first.data_ptr() == x.data_ptr()
    assert first.unique().tolist() == second.unique().tolist() == [1.0]
    assert y.unique().tolist() == [0.0]


# --- who writes what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "written"),
    [
        (lambda x, y: x, []),
        (lambda x, y: x + y, []),
        (lambda x, y: x.add_(y), [0]),
        (lambda x, y: x.copy_(y), [0]),
        (lambda x, y: (x + 0).add_(y), []),
    ],
    ids=["output", "reads", "add_", "copy_", "new memory"],
)
def test_writes_are_those_of_the_schema(program: Callable[..., object], written: list[int]) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert written_arguments(vllm_ir.import_fx(make_fx(program)(x, y), [x, y])) == written


def test_a_functional_call_of_a_writing_operator_writes_nothing() -> None:
    def program(x: Tensor) -> object:
        return auto_functionalized_v2(bump_._opoverload, _x_base_index=0, _all_bases=[x])[1]

    x = torch.zeros(3)
    graph = make_fx(program)(x)
    module = vllm_ir.import_fx(graph, [x])
    assert written_arguments(module) == []
    assert vllm_ir.export_fx(vllm_ir.run_passes(module, "vllm-ir-in-place"))(x).tolist() == [1.0] * 3
    assert x.tolist() == [0.0] * 3
