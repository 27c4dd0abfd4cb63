"""Calls that eager refuses for their element types are refused; eager's layout is that of the graph."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from vllm_ir.frontends.fx import normalize as normalization
from vllm_ir.frontends.fx import refusals
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.normalize import Normalized, normalize

INTEGERS = torch.arange(6).reshape(2, 3)
FLOATS = torch.arange(6.0).reshape(2, 3)
BOOLS = FLOATS > 2

REFUSED: dict[str, tuple[Callable[..., object], tuple[Tensor, ...]]] = {
    "softmax of integers": (lambda i: i.softmax(-1), (INTEGERS,)),
    "softmax by its function": (lambda i: F.softmax(i, dim=-1), (INTEGERS,)),
    "rounding of bools": (lambda b: torch.round(b), (BOOLS,)),
    "difference of bools": (lambda b: b - b, (BOOLS,)),
    "difference of bools, in place": (lambda b: b.sub_(b), (BOOLS,)),
    "indexed write of another type": (lambda i, f: i.index_put_((i[0] * 0,), f[:1]), (INTEGERS, FLOATS)),
    "negative power of integers": (lambda i: i**-1, (INTEGERS,)),
    "sum of float8": (lambda f: f + f, (FLOATS.to(torch.float8_e4m3fn),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    program, arguments = REFUSED[name]
    with pytest.raises((RuntimeError, NotImplementedError)):
        program(*(argument.clone() for argument in arguments))
    graph = fx.symbolic_trace(program)
    with pytest.raises(FxImportError, match=r"^cannot import node `\w+`.*: .") as caught:
        normalize(graph, arguments)
    assert "\n" not in str(caught.value)


ACCEPTED: dict[str, tuple[Callable[..., object], tuple[Tensor, ...]]] = {
    "what depends on values: division": (lambda i: i // (i + 1), (INTEGERS,)),
    "what depends on values: factorisation": (
        lambda f: torch.linalg.cholesky(f @ f.mT + torch.eye(2)),
        (FLOATS,),
    ),
    "what depends on values: repetition": (
        lambda i: torch.repeat_interleave(i, torch.tensor([1, 2]), 0, output_size=3),
        (INTEGERS,),
    ),
    "what depends on values: an index": (lambda f: f[torch.tensor([1])], (FLOATS,)),
    "an expanded operand": (lambda f: f.expand(4, 2, 3) + 1, (FLOATS,)),
    "slices": (lambda f: f.__setitem__((slice(None), slice(0, 2)), 1.0), (FLOATS,)),
    "empty tensors": (lambda f: f[:0].softmax(-1).sum(), (FLOATS,)),
    "float8 that is only stored": (lambda f: f.to(torch.float8_e4m3fn).view(torch.uint8), (FLOATS,)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str):
    program, arguments = ACCEPTED[name]
    program(*(argument.clone() for argument in arguments))
    normalize(fx.symbolic_trace(program), arguments)


def test_autocast_decides_the_types_of_what_it_covers():
    def program(f: Tensor, h: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return f.mT @ h

    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append(normalize(gm, inputs).graph_module)
        return gm.forward

    with torch.no_grad():
        torch.compile(program, backend=backend, fullgraph=True)(FLOATS, FLOATS.to(torch.float16))
    assert len(graphs) == 1


def test_random_numbers_come_as_before():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    normalize(fx.symbolic_trace(lambda f: f.uniform_() + F.dropout(f, 0.5, True)), (FLOATS.clone(),))
    assert torch.equal(torch.rand(3), expected)


LAYOUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copysign": lambda x, y: torch.copysign(x, y),
    "floor division": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "reflection padding": lambda x, y: F.pad(x[None], (1, 1), mode="reflect"),
    "what fakes lay out as eager does": lambda x, y: x * y,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_results_is_that_of_eager(name: str):
    program = LAYOUTS[name]
    x, y = torch.rand(5, 4).t(), torch.rand(4, 5) + 1
    normalized = normalize(fx.symbolic_trace(program), (x, y))
    (result,) = normalized.graph_module.graph.output_node().args
    assert isinstance(result, fx.Node)
    assert result.meta["val"].stride() == program(x, y).stride()


def test_fakes_do_have_other_strides():
    x, y = torch.rand(5, 4).t(), torch.rand(4, 5)
    with FakeTensorMode() as mode:
        fake = torch.copysign(mode.from_tensor(x), mode.from_tensor(y))
    assert fake.stride() != torch.copysign(x, y).stride()


def strides_of(gm: fx.GraphModule, *inputs: Tensor) -> dict[str, tuple[int, ...]]:
    """The strides of each result when a graph runs."""
    found: dict[str, tuple[int, ...]] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor) and n.op != "output":
                found[n.name] = result.stride()
            return result

    Recorder(gm).run(*inputs)
    return found


def test_what_follows_sees_the_strides_of_eager():
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = torch.copysign(x, y)
        return torch.stack([torch.copysign(-z, y), z]).sum(0)

    x, y = torch.rand(5, 4).t(), torch.rand(4, 5)
    gm = normalize(fx.symbolic_trace(program), (x, y)).graph_module
    traced = {
        node.name: node.meta["val"].stride() for node in gm.graph.nodes if isinstance(node.meta.get("val"), Tensor)
    }
    assert traced == strides_of(gm, x, y)


def test_results_in_a_list_and_the_call_that_gives_them_have_the_strides_of_eager():
    def program(x: Tensor, values: Tensor, indices: Tensor) -> object:
        return torch.sort(x, out=(values, indices))

    inputs = (torch.rand(5, 4), torch.ones(5, 8)[:, ::2], torch.ones(5, 8, dtype=torch.int64)[:, ::2])
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in inputs]
        program(*fakes)
    assert fakes[1].stride() != (8, 2), "fakes are written as eager writes"
    gm = normalize(fx.symbolic_trace(program), inputs).graph_module
    (call,) = (node for node in gm.graph.nodes if node.target == torch.ops.aten.sort.values)
    assert [value.stride() for value in call.meta["val"]] == [(8, 2), (8, 2)]
    items = [node for node in gm.graph.nodes if node.target is operator.getitem]
    assert [item.meta["val"].stride() for item in items] == [(8, 2), (8, 2)]


def test_a_graph_is_traced_once(monkeypatch: pytest.MonkeyPatch):
    traces: list[object] = []
    original = normalization.trace_normalized

    def counted(*args: Any, **kwargs: Any) -> Normalized:
        traces.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(normalization, "trace_normalized", counted)
    normalize(fx.symbolic_trace(LAYOUTS["copysign"]), (torch.rand(5, 4).t(), torch.rand(4, 5)))
    assert len(traces) == 1


def tried_out(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What eager is asked from now on."""
    calls: list[object] = []
    original = refusals._run
    monkeypatch.setattr(refusals, "_run", lambda key, fill: calls.append(key.target) or original(key, fill))
    return calls


def test_eager_is_asked_once_about_equal_calls(monkeypatch: pytest.MonkeyPatch):
    calls = tried_out(monkeypatch)

    def program(x: Tensor) -> Tensor:
        for _ in range(8):
            x = torch.mul(x, 1.0625)  # no other test has this factor
        return x

    for _ in range(2):
        normalize(fx.symbolic_trace(program), (FLOATS,))
    assert calls == [torch.mul]
    normalize(fx.symbolic_trace(program), (FLOATS[:1],))
    assert len(calls) == 2


def test_what_a_mode_does_is_asked_each_time(monkeypatch: pytest.MonkeyPatch):
    calls = tried_out(monkeypatch)
    gm = fx.symbolic_trace(lambda x: torch.mul(x, 1.1875) * 1.1875)
    for count in (2, 4):
        with torch.device("cpu"):
            normalize(gm, (FLOATS,))
        assert len(calls) == count


def test_large_operands_are_not_tried_out(monkeypatch: pytest.MonkeyPatch):
    calls = tried_out(monkeypatch)
    normalize(fx.symbolic_trace(lambda x, y: (x + 1.3125, y + 1.3125)), (torch.zeros(1 << 16), torch.zeros(1 << 17)))
    assert len(calls) == 1


@pytest.mark.parametrize("exponents", [(-1.0, -1), (-1, -1.0)])
def test_equal_numbers_of_other_types_are_other_calls(exponents: tuple[float, float]):
    first, second = exponents
    integer = "pow_1" if first == -1 and isinstance(first, int) else "pow_2"
    with pytest.raises(FxImportError, match=f"`{integer}`: eager refuses it: Integers to negative"):
        normalize(fx.symbolic_trace(lambda i: (i**first, i**second)), (INTEGERS,))


def test_lists_and_tuples_are_other_calls():
    gm = fx.symbolic_trace(lambda f: (f[(0, 1)], f[[0, 1]]))
    element, rows = normalize(gm, (FLOATS,)).graph_module.graph.output_node().args[0]
    assert (element.meta["val"].stride(), rows.meta["val"].stride()) == ((), (3, 1))


def test_default_dtype_is_part_of_the_question():
    gm = fx.symbolic_trace(lambda i: torch.fft.fft(i))
    normalize(gm, (INTEGERS,))
    torch.set_default_dtype(torch.float16)
    try:
        with pytest.raises(RuntimeError, match="Unsupported dtype Half"):
            torch.fft.fft(INTEGERS)
        with pytest.raises(FxImportError, match="Unsupported dtype Half"):
            normalize(gm, (INTEGERS,))
    finally:
        torch.set_default_dtype(torch.float32)
    normalize(gm, (INTEGERS,))


def test_kernel_switches_are_part_of_the_question():
    q = torch.rand(1, 3, 2, 4).transpose(1, 2)
    gm = fx.symbolic_trace(lambda q: F.scaled_dot_product_attention(q, q, q))
    strides: set[tuple[int, ...]] = set()
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            (result,) = normalize(gm, (q,)).graph_module.graph.output_node().args
            assert isinstance(result, fx.Node)
            assert result.meta["val"].stride() == F.scaled_dot_product_attention(q, q, q).stride()
        strides.add(result.meta["val"].stride())
    assert len(strides) == 2


def test_inside_transforms():
    plain = torch.arange(3)

    def accepted(row: Tensor) -> Tensor:
        return row.softmax(-1) + plain.copysign(plain).sort().values

    def refused(row: Tensor) -> Tensor:
        return row + plain.softmax(0)

    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append(normalize(gm, inputs).graph_module)
        return gm.forward

    with torch.no_grad():
        torch.compile(lambda f: torch.vmap(accepted)(f), backend=backend, fullgraph=True)(FLOATS)
        assert len(graphs) == 1
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"softmax.*\"softmax.*Long"):
            torch.compile(lambda f: torch.vmap(refused)(f), backend=backend, fullgraph=True)(FLOATS)


def test_windows_that_reach_beyond_their_memory_are_refused():
    base = torch.arange(12.0)
    inside = fx.symbolic_trace(lambda x: x.as_strided((3, 2), (4, 1), 2).clone())
    beyond = fx.symbolic_trace(lambda x: x.as_strided((3, 3), (3, 1), 2).clone())
    normalize(inside, (base[:4],))
    normalize(beyond, (base,))
    for argument in (torch.arange(10.0), base[:10].clone()):
        with pytest.raises(RuntimeError):
            beyond(argument)
        with pytest.raises(
            FxImportError, match=r"aten\.as_strided\.default reaches element 10 of memory that holds 10$"
        ):
            normalize(beyond, (argument,))
