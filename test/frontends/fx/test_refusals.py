"""Calls that eager refuses for their element types are refused; eager's layout is that of the graph."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.normalize import normalize

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
