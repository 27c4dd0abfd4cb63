"""Compilers of tensor programs behind `torch.compile`: what they are given, and what is done around them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends import registry
from torch._dynamo.exc import BackendCompilerFailed
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.backends.interpreter.interpret import execute
from vllm_ir.tools.register_backend import Backend

Compile = Callable[[ModuleOp], Callable[..., object]]
_names = (f"tested_{number}" for number in count())


@pytest.fixture
def register() -> Iterator[Callable[..., Backend]]:
    """Registers a backend by a name of its own, and takes it out of torch afterwards."""
    made: list[str] = []

    def add(compile: Compile, **options: object) -> Backend:
        made.append(next(_names))
        return ir.register_backend(made[-1], compile=compile, **options)

    yield add
    for name in made:
        registry._COMPILER_FNS.pop(name, None)
        registry._BACKENDS.pop(name, None)


def interpreted(module: ModuleOp) -> Callable[..., object]:
    """A compiler that is certainly right about values: the interpreter, which leaves the arguments as they are here."""
    return lambda *arguments: execute(module, arguments, values_only=True).result


def returns(*picks: Callable[[Sequence[object]], object]) -> Compile:
    """A compiler that does not look at the module, whose function returns these of its arguments."""
    return lambda module: lambda *arguments: tuple(pick(arguments) for pick in picks)


def compiled(backend: Backend, program: Callable[..., object], *inputs: object) -> Callable[..., object]:
    """The program through the backend alone."""
    graph = torch.fx.symbolic_trace(program)
    return backend(graph, inputs)


def assert_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    for left, right in zip(one, other, strict=True):
        assert torch.equal(left, right)
        assert left.stride() == right.stride()


class Cell(nn.Module):
    """Writes an argument and a buffer; returns an argument, a view of one, and new tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4), requires_grad=False)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        self.seen += x.sum(0)
        cache[1:3].mul_(x[0])
        y = ir.ops.rms_norm(x + cache, self.weight, 1e-6)
        return y, cache, cache[2], (y + self.seen).t()


def test_writes_aliases_and_buffers_are_as_in_eager_mode(register):
    name = register(interpreted).__name__
    eager, model = Cell(), Cell()
    call = torch.compile(model, backend=name)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x, cache = torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)
        given, expected_cache = cache, cache.clone()
        with torch.no_grad():
            expected, results = eager(x, expected_cache), call(x, given)
        assert_same(results, expected)
        assert torch.equal(given, expected_cache)
        assert torch.equal(model.seen, eager.seen)
        assert results[1] is given
        assert results[2].data_ptr() == given[2].data_ptr()
    assert ir.compile_reports()[-1].backend == name


def test_the_module_is_pure_and_high_level_and_says_which_results_are_arguments(register):
    seen: list[str] = []

    def compile_module(module: ModuleOp) -> Callable[..., object]:
        seen.append(str(module))
        return interpreted(module)

    def program(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        y.add_(x)
        return ir.ops.rms_norm(y, None, 1e-6), z, x[0]

    backend = register(compile_module)
    inputs = [torch.randn(3, 4) for _ in range(3)]
    results = compiled(backend, program, *inputs)(*inputs)
    assert results[1] is inputs[2]
    (text,) = seen
    # z and the view of x are there already: only the norm is to be computed, and what y is to hold.
    signature = "(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %z: tensor<3x4xf32>) -> "
    assert signature + "(tensor<3x4xf32>, tensor<3x4xf32> {vllm_ir.aliases = 1 : i64})" in text
    assert "vllm_ir.rms_norm" in text
    assert "buffer" not in text


def test_results_may_be_the_arguments(register):
    def swap(x: Tensor, y: Tensor) -> Tensor:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return old

    # The function returns the old x, then the new x and y.
    backend = register(returns(lambda a: a[0], lambda a: a[1], lambda a: a[0]))
    x, y = torch.ones(3), torch.full((3,), 2.0)
    old = compiled(backend, swap, x, y)(x, y)[0]
    assert x.tolist() == [2.0] * 3
    assert y.tolist() == [1.0] * 3
    assert old.tolist() == [1.0] * 3


def test_results_may_share_memory_and_have_any_strides(register):
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + 1, x + 1, (x + 1).t()

    def compile_module(module: ModuleOp) -> Callable[..., object]:
        def run(x: Tensor) -> tuple[object, ...]:
            array = x.numpy() + 1
            return torch.from_numpy(array), torch.from_numpy(array), torch.from_numpy(array).t().contiguous()

        return run

    x = torch.arange(6.0).reshape(2, 3)
    results = compiled(register(compile_module), program, x)(x)
    assert_same(results, program(x))
    results[0].zero_()
    assert torch.equal(results[1], x + 1)


def test_a_window_of_numpy_on_an_argument_is_no_new_tensor(register):
    def program(x: Tensor) -> Tensor:
        return x[1:].clone()

    x = torch.arange(4.0)
    backend = register(returns(lambda a: torch.from_numpy(a[0].numpy()[1:])))
    (result,) = compiled(backend, program, x)(x)
    result.zero_()
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_arguments_that_overlap(register):
    def program(whole: Tensor, part: Tensor) -> Tensor:
        part.add_(1)
        whole.mul_(2)
        return part + 1

    def inputs() -> tuple[Tensor, Tensor]:
        whole = torch.arange(6.0)
        return whole, whole[2:5]

    backend = register(interpreted)
    expected_inputs, given = inputs(), inputs()
    expected = program(*expected_inputs)
    call = compiled(backend, program, *given)
    assert_same([call(*given)[0], given[0]], [expected, expected_inputs[0]])
    apart = torch.ones(6), torch.ones(3)  # compiled once more: these lie differently
    assert call(*apart)[0].tolist() == [3.0] * 3
    assert apart[0].tolist() == [2.0] * 6


def test_each_set_of_sizes_is_compiled_once(register):
    seen: list[ModuleOp] = []

    def compile_module(module: ModuleOp) -> Callable[..., object]:
        seen.append(module)
        return interpreted(module)

    def program(x: Tensor) -> Tensor:
        x.add_(x.shape[0])
        return x * 2

    call = torch.compile(program, backend=register(compile_module), dynamic=True)
    for size in (3, 5, 3, 5):
        x = torch.zeros(size)
        assert torch.equal(call(x), torch.full((size,), 2.0 * size))
        assert torch.equal(x, torch.full((size,), float(size)))
    assert len(seen) == 2


def test_gradients(register):
    def program(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sin().sum()

    leaves = [torch.linspace(0, 1, 5, requires_grad=True) for _ in range(4)]
    torch.compile(program, backend=register(interpreted))(leaves[0], leaves[1]).backward()
    program(leaves[2], leaves[3]).backward()
    assert torch.equal(leaves[0].grad, leaves[2].grad)
    assert torch.equal(leaves[1].grad, leaves[3].grad)


def test_other_devices(register):
    def program(x: Tensor) -> Tensor:
        return (x + 1).t()

    backend = register(interpreted)
    x = torch.empty(2, 3, device="meta")
    (result,) = compiled(backend, program, x)(x)
    assert result.device.type == "meta"
    assert result.stride() == (1, 3)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (lambda a: a[0].double(), ValueError, r"result 0 \(.*:\d+\) is float64\[2\] on cpu, .* float32\[2\] on cpu"),
        (
            lambda a: a[0][:1],
            ValueError,
            r"result 0 \(.*:\d+\) is float32\[1\] on cpu, it has to be",
        ),
        (lambda a: a[0].to("meta"), ValueError, r"is float32\[2\] on meta"),
        (lambda a: a[0].tolist(), TypeError, r"result 0 \(.*:\d+\) is a list, it has to be a tensor"),
        (lambda a: None, TypeError, r"is None, it has to be a tensor"),
    ],
)
def test_wrong_results_are_refused(register, given, kind: type[Exception], message: str):
    x = torch.ones(2)
    call = torch.compile(lambda x: x + 1, backend=register(returns(given)))
    with pytest.raises(kind, match=rf"backend 'tested_\d+': .*{message}"):
        call(x)


@pytest.mark.parametrize(
    ("returned", "kind", "message"),
    [((), ValueError, "returns 0 values, its function has 1 results"), (None, TypeError, "returns None, not a tuple")],
)
def test_other_than_the_results_is_refused(register, returned: object, kind: type[Exception], message: str):
    backend = register(lambda module: lambda x: returned)
    x = torch.ones(2)
    with pytest.raises(kind, match=message):
        compiled(backend, lambda x: x + 1, x)(x)


def test_what_compile_raises_reaches_the_user_with_the_backend_and_the_line(register):
    def compile_module(module: ModuleOp) -> Callable[..., object]:
        raise KeyError("no such\nthing")

    call = torch.compile(lambda x: x + 1, backend=register(compile_module))
    message = r"backend 'tested_\d+' cannot compile the graph that begins at .*test_register_backend.py:\d+: KeyError"
    with pytest.raises(BackendCompilerFailed, match=message) as caught:
        call(torch.ones(2))
    assert isinstance(caught.value.inner_exception.__cause__, KeyError)
    with pytest.raises(TypeError, match=r"compile returned None for a graph, it has to return a callable"):
        compiled(register(lambda module: None), lambda x: x + 1, torch.ones(2))


def test_options_and_passes(register):
    x = torch.ones(2)
    backend = register(interpreted, passes="alias-outputs,functionalize,cse")
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    backend(graph, [x])
    assert "cse" in ir.compile_reports()[-1].pass_seconds
    backend(graph, [x], options={"passes": "alias-outputs,functionalize"})
    assert "cse" not in ir.compile_reports()[-1].pass_seconds
    with pytest.raises(Exception, match=r"@main is not pure; run alias-outputs,functionalize first"):
        backend(graph, [x], options={"passes": "functionalize"})
    with pytest.raises(ValueError, match=r"unknown option 'nope'"):
        backend(graph, [x], options={"nope": 1})


@pytest.mark.parametrize("name", ["", "Upper", "with-dash", "1st", "two words", "é"])
def test_bad_names(name: str):
    with pytest.raises(ValueError, match=r"does not match \[a-z_\]\[a-z_0-9\]\*"):
        ir.register_backend(name, compile=interpreted)


def test_taken_names(register):
    name = register(interpreted).__name__
    for taken in (name, "eager", "inductor"):
        with pytest.raises(ValueError, match=f"backend '{taken}' is registered twice; torch.compile has one"):
            ir.register_backend(taken, compile=interpreted)
    with pytest.raises(ValueError, match=r"twice: an entry point names vllm_ir.tools.compile:vllm_ir_eager"):
        ir.register_backend("vllm_ir_eager", compile=interpreted)
    with pytest.raises(TypeError, match=r"compile is a str, it has to be callable"):
        ir.register_backend("tested", compile="text")
