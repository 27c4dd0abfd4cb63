"""The private or untyped parts of Inductor and of what it expects around it, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false
# Private and unknown: none of this is meant as an interface, and little of it has types. Arguments: Inductor declares
# narrower types for examples and compilers than it takes.

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import torch
from torch import fx
from torch._dynamo import compiled_autograd
from torch._functorch import config as functorch_config
from torch._guards import TracingContext, tracing
from torch._higher_order_ops.auto_functionalize import can_auto_functionalize
from torch._inductor import config, lowering
from torch._inductor.compile_fx import (
    compile_fx,
    compile_fx_forward,
    compile_fx_inner,
    create_compiler_config_extra,
    get_num_model_outputs,
)
from torch._inductor.custom_graph_pass import CustomGraphPass, get_custom_graph_passes
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import _should_save_eager_input_vals

from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, schema_of

Compiled = Callable[..., object]
BoxedCallable = Callable[[list[object]], Sequence[object]]
"""Takes the arguments as a list, which it may empty, and returns the results."""
InnerCompile = Callable[..., Compiled]
"""Like `compile_graph`: takes a graph, its inputs, and keywords that are Inductor's own business."""


# Configuration.


def patched(patches: Mapping[str, object]) -> AbstractContextManager[None]:
    """A context manager that puts configuration patches in force, in this thread."""
    return cast("AbstractContextManager[None]", config.patch(dict(patches)))


def with_last_passes(last: Sequence[CustomGraphPass]) -> AbstractContextManager[None]:
    """A context manager that runs `last` behind the custom passes after gradients that are configured already."""
    return patched({"post_grad_custom_post_pass": [*get_custom_graph_passes(config.post_grad_custom_post_pass), *last]})


def rounds_between_operators() -> bool:
    """Whether fused kernels are to round low precision between operators."""
    return config.emulate_precision_casts


def decompositions() -> Mapping[Overload, Callable[..., object]]:
    """The pure operators that Inductor wants decomposed under the configuration in force.

    Its table has operators that write as well, which are for functionalization, here ours, to replace; some of those
    decompositions do not even take the `out` argument of the overload that they are registered for.
    """
    table = cast("Mapping[Overload, Callable[..., object]]", select_decomp_table())
    return {op: function for op, function in table.items() if not (is_overload(op) and schema_of(op).is_mutable)}


# Compilation.


def compile_graph(gm: fx.GraphModule, inputs: Sequence[object], **options: object) -> Compiled:
    """Inductor's compiler of one graph, from the passes after gradients on."""
    return compile_fx_inner(gm, inputs, **cast("dict[str, bool]", options))


def compile_inference(gm: fx.GraphModule, inputs: Sequence[object], static_inputs: Sequence[int]) -> BoxedCallable:
    """Inductor's compiler of an inference graph, from the passes on the joint graph on. Results keep their strides."""

    def inner(graph: fx.GraphModule, examples: Sequence[object], **options: object) -> Compiled:
        options.update(
            static_input_idxs=list(static_inputs), cpp_wrapper=config.cpp_wrapper, fx_wrapper=config.fx_wrapper
        )
        return compile_graph(graph, examples, **options)

    compiled = compile_fx_forward(
        gm,
        inputs,
        num_orig_model_outputs=get_num_model_outputs(gm),
        num_example_inputs=len(inputs),
        compiler_config_extra=create_compiler_config_extra(gm),
        inner_compile=inner,
        is_inference=True,
    )
    return cast(BoxedCallable, compiled)


def compile_with_autograd(
    gm: fx.GraphModule, inputs: Sequence[object], inner: InnerCompile, patches: Mapping[str, object]
) -> Compiled:
    """All of Inductor around AOTAutograd, with `inner` instead of `compile_graph`."""
    # AOTAutograd's cache does not know of the inner compiler: it would hand out what Inductor alone has compiled.
    with functorch_config.patch(enable_autograd_cache=False):
        return cast(Compiled, compile_fx(gm, inputs, inner_compile=inner, config_patches=dict(patches)))


@contextmanager
def inference_state(fake_mode: FakeTensorMode) -> Generator[None]:
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


# Graphs.


def current_fake_mode() -> FakeTensorMode:
    """The mode of the graph that Inductor is working on."""
    return V.fake_mode


def storage_of(node: fx.Node) -> object:
    """The identity of the storage of a node's fake value; None if it has none."""
    return get_node_storage(node)


def depends_on_strides(node: fx.Node) -> bool:
    """Whether Inductor looks up the strides that the operands of a call had when it was traced."""
    return _should_save_eager_input_vals(node.target, (node.args, node.kwargs))


def falls_back(overload: Overload) -> bool:
    """Whether Inductor has no kernel for an operator and calls PyTorch's."""
    return overload in lowering.fallbacks


def needs_operands_in_memory(overload: Overload) -> bool:
    """Whether an operator is a kernel that is not fused with what computes its operands."""
    return overload in lowering.needs_realized_inputs


def has_own_code(overload: Overload) -> bool:
    """Whether Inductor generates code for an operator, or a user has told it how, and it does not call the operator."""
    generated = overload in lowering.lowerings and overload not in lowering.fallbacks
    return generated or overload in lowering.user_lowerings


def can_call_writing(overload: Overload) -> bool:
    """Whether Inductor accepts an operator that writes its operands as a call in its graph."""
    return can_auto_functionalize(overload)
