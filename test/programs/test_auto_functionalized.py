"""Graphs that PyTorch has functionalized already, with both versions of `auto_functionalized`."""

from collections.abc import Callable, Sequence

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd

Program = Callable[..., object]


@torch.library.custom_op("auto_functionalized_programs::bump", mutates_args=("x",))
def bump(x: Tensor, by: Tensor) -> None:
    x.add_(by)


@torch.library.custom_op("auto_functionalized_programs::bump_both", mutates_args=("x", "z"))
def bump_both(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
    x.add_(y)
    if z is not None:
        z.mul_(2)
    return x.sum()


@bump_both.register_fake
def _(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
    return x.new_empty(())


@torch.library.custom_op("auto_functionalized_programs::bump_all", mutates_args=("xs",))
def bump_all(xs: Sequence[Tensor], by: Tensor) -> None:
    for x in xs:
        x.add_(by)


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)


def ops() -> object:
    return torch.ops.auto_functionalized_programs


PROGRAMS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "argument": lambda x, y: (ops().bump(x, y), x * 2),
    "row": lambda x, y: (ops().bump(x[1], y[1]), x * 2),
    "slice": lambda x, y: (ops().bump(x[1:3], y[1:3]), x * 2),
    "slice with a step": lambda x, y: (ops().bump(x[:, ::2], y[:, ::2]), x * 2),
    "transposed": lambda x, y: (ops().bump(x.t(), y), x * 2),
    "the same slice twice": lambda x, y: (ops().bump(x[1:3], y[:2]), ops().bump(x[1:3], y[:2]), x * 2),
    "intermediate": lambda x, y: (lambda z: (ops().bump(z, y), z[0].clone(), z))(x + y),
    "two arguments": lambda x, y: (ops().bump_both(x, y * 1, y), x * 2, y * 2),
    "two slices": lambda x, y: (ops().bump_both(x[:2], y[:2], x[2:]), x * 2),
    "optional, left out": lambda x, y: (ops().bump_both(x, y), x * 2),
    "list": lambda x, y: (ops().bump_all([x, y], y[0].clone()), x * 2, y * 2),
    "list of slices": lambda x, y: (ops().bump_all([x[0], x[2], y[1]], y[0].clone()), x * 2, y * 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("version", [1, 2])
def test_program(name: str, version: int, harness: object) -> None:
    seen: list[str] = []

    def compiler(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Program:
        seen.extend(
            node.target.name() for node in gm.graph.nodes if isinstance(node.target, torch._ops.HigherOrderOperator)
        )
        module = harness.functionalized(harness.import_fx(gm, example_inputs))  # type: ignore[attr-defined]
        return make_boxed_func(harness.export_fx(module, like=gm))  # type: ignore[attr-defined]

    program = PROGRAMS[name]
    backend = aot_autograd(fw_compiler=compiler)
    make = lambda: (numbers(4, 4), numbers(4, 4) * 10)  # noqa: E731
    with torch._inductor.config.patch(enable_auto_functionalized_v2=version == 2):
        actual = harness.observe(torch.compile(program, backend=backend, fullgraph=True), make())  # type: ignore[attr-defined]
    expected = harness.observe(program, make())  # type: ignore[attr-defined]
    assert set(seen) == {"auto_functionalized" if version == 1 else "auto_functionalized_v2"}
    expected.compare(actual, name)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("version", [1, 2])
def test_text(name: str, version: int, harness: object) -> None:
    """The functional graph survives being printed and parsed."""
    graphs: list[tuple[fx.GraphModule, Sequence[object]]] = []

    def compiler(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Program:
        module = harness.import_fx(gm, example_inputs)  # type: ignore[attr-defined]
        assert str(harness.parse(str(module))) == str(module)  # type: ignore[attr-defined]
        harness.functionalized(module)  # type: ignore[attr-defined]
        again = harness.parse(str(module))  # type: ignore[attr-defined]
        assert str(again) == str(module)
        graphs.append((gm, example_inputs))
        return make_boxed_func(gm)

    with torch._inductor.config.patch(enable_auto_functionalized_v2=version == 2):
        torch.compile(PROGRAMS[name], backend=aot_autograd(fw_compiler=compiler))(numbers(4, 4), numbers(4, 4))
    assert graphs
