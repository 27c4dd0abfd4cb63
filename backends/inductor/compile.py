"""Functional graphs compiled by Inductor, as it would compile an inference graph of its own front end."""

from collections.abc import Sequence

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.backends.inductor.fresh_outputs import KeepOutputsFresh
from vllm_ir.backends.inductor.prepare import prepare_for_inductor
from vllm_ir.backends.inductor.result_strides import stated_strides, with_strides
from vllm_ir.backends.inductor.rewordings import loses_bits_of_constants
from vllm_ir.backends.inductor.torch_internals import (
    BoxedCallable,
    compile_inference,
    decompositions,
    inference_state,
    patched,
    with_last_passes,
)
from vllm_ir.frontends.fx.torch_objects import rename_node


def compile_functional(
    core: fx.GraphModule,
    inputs: Sequence[object],
    fake_mode: FakeTensorMode,
    static_inputs: Sequence[int] = (),
    hook: CustomGraphPass | None = None,
    donated: Sequence[int] = (),
) -> BoxedCallable:
    """Compile a graph that neither writes its arguments nor returns memory of theirs.

    Args:
        core: ATen operators with `meta["val"]` on every node, and a flat output. It is taken over and changed.
        inputs: the fake tensors and symbolic or plain numbers of its placeholders, in `fake_mode`.
        fake_mode: the mode of all fake values.
        static_inputs: positions of inputs whose address stays the same from call to call (parameters).
        hook: a pass to run behind Inductor's own and the user's.
        donated: positions of inputs whose memory the results may be in.

    Results have the strides of the output nodes' values. Two results share memory, or memory of an argument, only where
    they did so in `core`.

    Raises:
        InductorError: Inductor failed; the cause is its own.
    """
    placeholders = core.graph.find_nodes(op="placeholder")
    for position, node in enumerate(placeholders):
        # Inductor tells by the name what is an argument, whose memory it cannot free (`is_nonfreeable_buffers`).
        rename_node(node, f"arg{position}_1")
        node.target = node.name
    _name_by_position(core.graph)
    core.graph.eliminate_dead_code()  # as AOTAutograd does; a pass of Inductor's would drop arguments with unused views
    prepare_for_inductor(core, decompositions(), fake_mode)
    patches = {"joint_graph_constant_folding": False} if loses_bits_of_constants(core.graph) else {}
    keeper = KeepOutputsFresh.mark(core.graph, [placeholders[position].name for position in donated])
    last = [keeper] if hook is None else [hook, keeper]
    stated = stated_strides(core.graph)
    with inference_state(fake_mode), with_last_passes(last), patched(patches):
        return with_strides(compile_inference(core, inputs, static_inputs), stated)


def _name_by_position(graph: fx.Graph) -> None:
    """Name operations by what they are and where: Inductor's cache has the names in its key, the program's own too."""
    for position, node in enumerate(graph.nodes):
        if node.op == "call_function":
            name = getattr(node.target, "__name__", "call").partition(".")[0]
            rename_node(node, f"op{position}_{name}")
