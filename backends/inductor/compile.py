"""Functional graphs compiled by Inductor, as it would compile an inference graph of its own front end."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch._dynamo import compiled_autograd
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_forward, compile_fx_inner, create_compiler_config_extra
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.backends.inductor.aliases import output_nodes
from vllm_ir.backends.inductor.fresh_outputs import KeepOutputsFresh
from vllm_ir.backends.inductor.prepare import prepare_for_inductor
from vllm_ir.backends.inductor.settings import with_last_passes
from vllm_ir.backends.inductor.written_views import CopyWrittenViews

BoxedCallable = Callable[[list[object]], Sequence[object]]
"""Takes the arguments as a list, which it may empty, and returns the results."""

InnerCompile = Callable[..., Callable[..., object]]


def decompositions() -> Mapping[OpOverload, Callable[..., object]]:
    """The pure operators that Inductor wants decomposed under the configuration in force.

    Its table has operators that write as well, which are for functionalization, here ours, to replace; some of those
    decompositions do not even take the `out` argument of the overload that they are registered for.
    """
    table = cast("Mapping[OpOverload, Callable[..., object]]", select_decomp_table())
    return {
        op: function for op, function in table.items() if not (isinstance(op, OpOverload) and op._schema.is_mutable)
    }


def compile_functional(
    core: fx.GraphModule,
    inputs: Sequence[object],
    fake_mode: FakeTensorMode,
    static_inputs: Sequence[int] = (),
) -> BoxedCallable:
    """Compile a graph that neither writes its arguments nor returns memory of theirs.

    Args:
        core: ATen operators with `meta["val"]` on every node, and a flat output. It is taken over and changed.
        inputs: the fake tensors and symbolic or plain numbers of its placeholders, in `fake_mode`.
        fake_mode: the mode of all fake values.
        static_inputs: positions of inputs whose address stays the same from call to call (parameters).

    Results have the strides of the output nodes' values. Two results share memory, or memory of an argument, only where
    they did so in `core`.

    Raises:
        InductorError: Inductor failed; the cause is its own.
    """
    prepare_for_inductor(core, decompositions(), fake_mode)
    keeper = KeepOutputsFresh.mark(core.graph)

    def inner(gm: fx.GraphModule, example_inputs: Sequence[object], **options: object) -> Callable[..., object]:
        options.update(static_input_idxs=list(static_inputs), **wrapper_options())
        return compile_fx_inner(gm, example_inputs, **options)

    with _inference_state(fake_mode), with_last_passes(CopyWrittenViews(), keeper):
        compiled = compile_fx_forward(
            core,
            inputs,
            num_orig_model_outputs=len(output_nodes(core.graph)),
            num_example_inputs=len(inputs),
            compiler_config_extra=create_compiler_config_extra(core),
            inner_compile=inner,
            is_inference=True,
        )
    return cast(BoxedCallable, compiled)


def wrapper_options() -> dict[str, object]:
    """The kind of wrapper code that the configuration asks for, as arguments of `compile_fx_inner`."""
    return {"cpp_wrapper": config.cpp_wrapper, "fx_wrapper": config.fx_wrapper}


@contextlib.contextmanager
def _inference_state(fake_mode: FakeTensorMode) -> Iterator[None]:
    """What AOTAutograd sets up around the compilation of an inference graph."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is not fake_mode:
        context = TracingContext(fake_mode)
    with (
        V.set_fake_mode(fake_mode),
        tracing(context),
        compiled_autograd._disable(),
        torch._C._DisableAutocast(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield
