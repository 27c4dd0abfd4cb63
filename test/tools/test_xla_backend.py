"""Programs through `torch.compile(backend="vllm_ir_xla")`: results, memory, aliases and errors."""

import re

import pytest
import torch
from torch import Tensor, nn

from vllm_ir.tools.reports import clear_compile_reports, compile_reports
from vllm_ir.tools.xla import vllm_ir_xla


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    clear_compile_reports()


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def compiled(program, **options):
    return torch.compile(program, backend=vllm_ir_xla, fullgraph=True, **options)


@pytest.mark.usefixtures("no_grad")
def test_writes_aliases_and_fresh_results():
    def program(x: Tensor, y: Tensor):
        x[1:].mul_(2)
        old = y.clone()
        y.copy_(x[0] + y)
        return x, y.view(2, 2), x * 1, old, y + 0, None, x.t(), x.shape[0]

    x, y = torch.randn(3, 4), torch.randn(4)
    other_x, other_y = x.clone(), y.clone()
    pointers = x.data_ptr(), y.data_ptr()
    results, expected = compiled(program)(x, y), program(other_x, other_y)
    assert (x.data_ptr(), y.data_ptr()) == pointers
    for result, wanted in zip((*results, x, y), (*expected, other_x, other_y), strict=True):
        if isinstance(wanted, Tensor):
            assert torch.equal(result, wanted)
            assert result.stride() == wanted.stride()
        else:
            assert result == wanted
    assert results[0] is x
    assert results[1].data_ptr() == y.data_ptr()
    assert results[6].data_ptr() == x.data_ptr()
    assert len({value.untyped_storage().data_ptr() for value in (x, y, *results[2:5])}) == 5


@pytest.mark.usefixtures("no_grad")
def test_a_window_follows_an_argument_that_is_elsewhere_in_its_storage():
    def program(x: Tensor):
        x.add_(1)
        return x[1:, ::2]

    run, base = compiled(program), torch.zeros(4, 8)
    for start in (0, 2):
        x = base.view(-1)[start * 8 : start * 8 + 16].view(2, 8)
        window = run(x)
        assert window.data_ptr() == x[1:, ::2].data_ptr()
        assert window.tolist() == [[1] * 4]


@pytest.mark.usefixtures("no_grad")
def test_steps_of_a_cache_in_one_tensor_stay_in_its_memory():
    def step(cache: Tensor, k: Tensor, position: Tensor):
        total = 0
        for layer in range(2):
            cache[layer].index_copy_(0, position, k + layer)
            total = total + cache[layer].sum(0)
        return total

    cache, other = torch.zeros(2, 32, 16), torch.zeros(2, 32, 16)
    run, pointer = compiled(step), cache.data_ptr()
    for i in range(8):
        k, position = torch.randn(1, 16), torch.tensor([i])
        torch.testing.assert_close(run(cache, k, position), step(other, k, position))
    assert cache.data_ptr() == pointer
    assert torch.equal(cache, other)
    assert len(compile_reports()) == 1


@pytest.mark.usefixtures("no_grad")
def test_arguments_that_overlap_get_a_program_of_their_own():
    def program(x: Tensor, y: Tensor):
        x.add_(1)
        return x + y

    run = compiled(program)
    for _ in range(2):
        x, y = torch.zeros(4), torch.zeros(4)
        assert run(x, y).tolist() == [1] * 4
        assert run(x, x).tolist() == [4] * 4  # one from the call before
    assert len(compile_reports()) == 2


@pytest.mark.usefixtures("no_grad")
def test_overlapping_windows_see_each_other():
    def program(x: Tensor, y: Tensor):
        x.add_(1)
        y.mul_(3)
        return x + y

    base, other = torch.ones(6), torch.ones(6)
    result = compiled(program)(base[:4], base[2:])
    assert torch.equal(result, program(other[:4], other[2:]))
    assert torch.equal(base, other)


@pytest.mark.usefixtures("no_grad")
def test_sizes_are_compiled_one_by_one_and_kept():
    def program(x: Tensor, y: Tensor):
        x[:, : y.shape[0]].add_(1)
        return x * y.shape[0], x.shape[0]

    run = compiled(program, dynamic=True)
    for rows, columns in ((3, 5), (4, 6), (3, 5), (4, 6)):
        x, other, y = torch.zeros(rows, columns), torch.zeros(rows, columns), torch.ones(columns - 2)
        result, expected = run(x, y), program(other, y)
        assert torch.equal(result[0], expected[0])
        assert result[1] == rows
        assert torch.equal(x, other)
    assert len(compile_reports()) == 2


@pytest.mark.usefixtures("no_grad")
def test_parameters_and_buffers_of_modules():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return self.linear(x) + self.count

    model, x = Counter(), torch.randn(2, 4)
    run = compiled(model)
    for number in range(1, 4):
        torch.testing.assert_close(run(x), model.linear(x) + number)
        model.linear.weight.mul_(2)  # in place, where XLA has it
    model.linear.weight = nn.Parameter(torch.zeros(4, 4))
    torch.testing.assert_close(run(x), model.linear.bias + model.count.clone().expand(2, 4))


def test_gradients_go_through_autograd():
    weight, x = torch.randn(4, 4, requires_grad=True), torch.randn(2, 4)
    other = weight.detach().clone().requires_grad_()
    compiled(lambda x, w: (x @ w).relu().sum())(x, weight).backward()
    (x @ other).relu().sum().backward()
    torch.testing.assert_close(weight.grad, other.grad)
    assert [report.kind for report in compile_reports()] == ["forward", "backward"]


@pytest.mark.usefixtures("no_grad")
def test_reports_say_what_was_done():
    def program(kv: Tensor, x: Tensor):
        kv[0] = x
        return kv.sum()

    compiled(program)(torch.zeros(3, 4), torch.ones(4))
    (report,) = compile_reports()
    assert report.backend == "vllm_ir_xla"
    assert report.kind == "inference"
    assert [name.strip("_").removeprefix("l_") for name in report.mutated] == ["kv"]
    passes = ["normalize", "import", "alias-outputs", "functionalize", "convert-to-stablehlo", "narrow-updates"]
    passes += ["export", "backend"]
    assert list(report.pass_seconds) == passes
    assert report.op_counts["convert-to-stablehlo"] > 0


@pytest.mark.usefixtures("no_grad")
def test_what_has_no_form_in_stablehlo_is_one_error_with_its_line():
    with pytest.raises(Exception, match=r"test_xla_backend\.py:\d+: @aten\.(bernoulli|rand)") as caught:
        compiled(lambda x: x + torch.rand_like(x))(torch.ones(4))
    assert re.search("test_xla_backend.py", str(caught.value))


@pytest.mark.usefixtures("no_grad")
def test_options_are_those_of_the_other_backends():
    with pytest.raises(Exception, match="unknown option 'nonsense'"):
        compiled(lambda x: x + 1, options={"nonsense": 1})(torch.ones(4))
    with pytest.raises(Exception, match="is not pure; run alias-outputs,functionalize first"):
        compiled(lambda x: x + 1, options={"passes": "functionalize"})(torch.ones(4))
