"""Fresh fakes have the metadata at entry, the symbols of the compilation, and the inputs' shared storages."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from hypothesis import given
from hypothesis import strategies as st
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.fakes import InputSource, fresh_fakes, same_metadata, select_fake_mode


def sources_of(*examples: object) -> list[InputSource]:
    return [InputSource(f"x{i}", example, True, None) for i, example in enumerate(examples)]


def fakes_of(*examples: object) -> list[Any]:
    sources = sources_of(*examples)
    return fresh_fakes(select_fake_mode(sources), sources)


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def facts(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes())


def printed(value: object) -> str:
    return str(tuple(value.size())) if isinstance(value, torch.Tensor) else str(value)


def dynamic_backend(check: Callable[[fx.GraphModule, list[object]], None]) -> Callable[..., Any]:
    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        check(gm, example_inputs)
        return gm.forward

    return backend


def graph_sources(gm: fx.GraphModule, example_inputs: list[object]) -> list[InputSource]:
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [
        InputSource(node.name, example, True, node.meta["example_value"], True)
        for node, example in zip(placeholders, example_inputs, strict=True)
    ]


def test_inputs_on_one_storage_share_a_fake_storage_of_its_size():
    base = torch.zeros(24)
    examples = [
        base,
        base.view(torch.int32)[4:8],
        base.as_strided((2, 3), (1, 4), 2),
        base[20:],
        base[:3],
        torch.ones(2),
    ]
    fakes = fakes_of(*examples)
    assert [facts(fake) for fake in fakes] == [facts(example) for example in examples]
    assert len({storage(fake) for fake in fakes[:5]}) == 1
    assert storage(fakes[5]) != storage(fakes[0])


@given(
    dtype=st.sampled_from(
        [torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.float8_e4m3fn, torch.bool]
    ),
    size=st.lists(st.integers(0, 3), max_size=3),
    stride=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    offset=st.integers(0, 5),
)
def test_any_window_is_kept(dtype, size, stride, offset):
    base = torch.zeros(64, dtype=torch.uint8).repeat(8).view(dtype)
    window = base.as_strided(size, stride[: len(size)], offset)
    fake_base, fake = fakes_of(base, window)
    assert facts(fake) == facts(window)
    assert storage(fake) == storage(fake_base)


def test_one_tensor_given_twice_gives_two_fakes_on_one_storage():
    x = torch.zeros(3)
    first, second = fakes_of(x, x)
    assert first is not second
    assert storage(first) == storage(second)


def test_gradients_and_parameter_classes_are_dropped():
    (fake,) = fakes_of(torch.nn.Parameter(torch.zeros(3)))
    assert type(fake) is FakeTensor
    assert not fake.requires_grad


def test_numbers_and_constants_pass_through():
    assert fakes_of(3, 2.5, True, None, "s") == [3, 2.5, True, None, "s"]


def test_given_fakes_are_not_touched_by_mutations_of_the_fresh_ones():
    with FakeTensorMode() as mode:
        given_fake = torch.empty(4, 6)[1:]
    (fake,) = fakes_of(given_fake)
    assert fake.fake_mode is mode
    with mode:
        fake.t_()
    assert given_fake.size() == (3, 6)
    assert fake.size() == (6, 3)


def test_symbolic_fakes_keep_symbols_and_sharing_without_guards():
    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env)
    x = mode.from_tensor(torch.zeros(8, 6))
    with mode:
        row = x[1]
    first, second = fakes_of(x, row)
    assert same_metadata(first, x)
    assert same_metadata(second, row)
    assert storage(first) == storage(second)
    assert not shape_env.guards
    assert not shape_env.replacements


def test_symbolic_metas_take_sharing_from_real_examples():
    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env)
    base = torch.zeros(40)
    reals = [base[:8], base[4:20]]
    metas = [mode.from_tensor(torch.zeros(8)), mode.from_tensor(torch.zeros(16))]
    offset = metas[1].size(0) // 4
    with mode:
        metas[1] = metas[1].as_strided((metas[1].size(0),), (1,), offset)
    sources = [InputSource("x", reals[0], True, metas[0]), InputSource("y", reals[1], True, metas[1])]
    before = len(shape_env.guards)
    x, y = fresh_fakes(select_fake_mode(sources), sources)
    assert same_metadata(x, metas[0])
    assert same_metadata(y, metas[1])
    assert storage(x) == storage(y)
    assert x.untyped_storage().nbytes() == base.untyped_storage().nbytes()
    assert len(shape_env.guards) == before


def test_symbolic_meta_that_contradicts_the_example_is_refused():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    meta = mode.from_tensor(torch.zeros(8, 6))
    with pytest.raises(FxImportError, match=r"input `x` has the meta .* but the example \(6, 8\)"):
        fresh_fakes(mode, [InputSource("x", torch.zeros(6, 8), True, meta)])


@pytest.mark.parametrize("shared", [False, True])
def test_dynamo_symbols_are_reproduced_after_metas_were_mutated(shared):
    torch._dynamo.reset()
    checked: list[bool] = []

    def check(gm: fx.GraphModule, example_inputs: list[object]) -> None:
        sources = graph_sources(gm, example_inputs)
        mode = select_fake_mode(sources)
        shape_env = mode.shape_env
        assert mode is TracingContext.get().fake_mode
        expected = [printed(source.meta) for source in sources]
        for source in sources:  # as Dynamo's own tracing leaves them after `t_`
            if isinstance(source.meta, torch.Tensor):
                with source.meta.fake_mode:
                    source.meta.unsqueeze_(0)
        before = len(shape_env.guards)
        for _ in range(2):
            fakes = fresh_fakes(mode, sources)
            got = [printed(fake) for fake in fakes]
            assert got == expected
            tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
            assert (storage(tensors[0]) == storage(tensors[1])) == shared
            assert any("s" in size for size in got)
            with mode:
                for tensor in tensors:
                    tensor.unsqueeze_(0)
        assert len(shape_env.guards) == before
        for source in sources:  # Dynamo makes guards from them
            if isinstance(source.meta, torch.Tensor):
                with source.meta.fake_mode:
                    source.meta.squeeze_(0)
        checked.append(True)

    def program(x, y):
        return x.sum() + y.sum()

    buffer = torch.arange(40.0)
    x = buffer[:8]
    y = buffer[4:20] if shared else torch.arange(16.0)
    torch.compile(program, backend=dynamic_backend(check), dynamic=True)(x, y)
    assert checked


def test_static_inputs_under_dynamo_keep_the_size_of_their_storage():
    torch._dynamo.reset()
    sizes: list[int] = []

    def check(gm: fx.GraphModule, example_inputs: list[object]) -> None:
        sources = graph_sources(gm, example_inputs)
        sizes.extend(fake.untyped_storage().nbytes() for fake in fresh_fakes(select_fake_mode(sources), sources))

    torch.compile(lambda x: x + 1, backend=dynamic_backend(check), dynamic=False)(torch.zeros(40).detach()[:8])
    assert sizes == [160]


def test_mode_is_that_of_the_compilation_or_of_the_fakes():
    shape_env = ShapeEnv()
    mine, other = FakeTensorMode(shape_env=shape_env), FakeTensorMode(shape_env=ShapeEnv())
    successor = FakeTensorMode(shape_env=shape_env)  # as Dynamo makes for its backend
    x = mine.from_tensor(torch.zeros(3))
    assert select_fake_mode(sources_of(x)) is mine
    with tracing(TracingContext(other)):
        assert select_fake_mode(sources_of(x)) is mine
        assert select_fake_mode(sources_of(torch.zeros(3))) is other
    with tracing(TracingContext(successor)):
        assert select_fake_mode(sources_of(x)) is successor
        assert fakes_of(x)[0].fake_mode is successor
    with other:
        assert select_fake_mode(sources_of(torch.zeros(3))) is other
    assert select_fake_mode(sources_of(torch.zeros(3))) not in (mine, other, successor)


def test_symbols_of_another_shape_env_are_refused():
    shape_env = ShapeEnv()
    symbol = FakeTensorMode(shape_env=shape_env).from_tensor(torch.zeros(8)).size(0)
    with pytest.raises(FxImportError, match=r"input `x1` is s.*of another ShapeEnv"):
        fakes_of(torch.zeros(3), symbol)


def test_no_example_and_no_meta_is_refused():
    with pytest.raises(FxImportError, match="input `x` has neither an example nor a `val`"):
        fresh_fakes(FakeTensorMode(), [InputSource("x", None, False, None)])
