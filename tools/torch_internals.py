"""The private or untyped parts of Dynamo and AOTAutograd, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# Private and unknown: none of this is meant as an interface, and little of it has types.

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import Tensor, fx
from torch._dynamo import config as dynamo_config
from torch._dynamo import convert_frame
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import list_backends
from torch._dynamo.backends.registry import register_backend as dynamo_register_backend
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState
from torch._dynamo.utils import counters, get_debug_dir
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._inductor import config as inductor_config
from torch._logging import trace_structured
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._sympy.symbol import SymT, symbol_is_type

Compiled = Callable[..., object]
PartCompiler = Callable[[fx.GraphModule, Sequence[object]], Compiled]


def compile_lock() -> AbstractContextManager[object]:
    """The lock that Dynamo holds while it compiles; a thread may take it again."""
    return convert_frame.compile_lock


def recompile_limit() -> int:
    """How often Dynamo compiles one function before it gives up."""
    return dynamo_config.recompile_limit


def switches_gradients_on(gm: fx.GraphModule) -> bool:
    """Whether a graph switches gradients on, as after a block without them."""
    switches = gm.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    return any(node.args[0] for node in switches)


def autocast_enabled() -> bool:
    """Whether autocast is on for any device."""
    return torch._C._is_any_autocast_enabled()


def without_autocast(call: Compiled) -> Compiled:
    """The callable, run with autocast off."""

    def run(*arguments: object) -> object:
        with torch._C._DisableAutocast():
            return call(*arguments)

    return run


def has_address(tensor: Tensor) -> bool:
    """Whether a tensor is real, so that its address means something."""
    return not isinstance(tensor, FakeTensor) and not tensor.is_meta


def inductor_patches(mode: str | None, options: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration patches that `torch.compile(backend="inductor")` makes of these; its errors, too."""
    # `dynamic` plays no part in either.
    return torch._TorchCompileInductorWrapper(mode, dict(options), dynamic=None).config


def is_inductor_option(name: str) -> bool:
    """Whether Inductor has an option of this name."""
    return name.replace("-", "_") in inductor_config.get_config_copy()


def autograd_backend(
    forward: PartCompiler, backward: PartCompiler, inference: PartCompiler
) -> Callable[[fx.GraphModule, Sequence[object]], Compiled]:
    """AOTAutograd with compilers for its graphs, whose results take their arguments one by one."""

    def boxed(compiler: PartCompiler) -> PartCompiler:
        return lambda part, inputs: cast(Compiled, make_boxed_func(compiler(part, inputs)))

    return cast(
        "Callable[[fx.GraphModule, Sequence[object]], Compiled]",
        aot_autograd(
            fw_compiler=boxed(forward),
            bw_compiler=boxed(backward),
            inference_compiler=boxed(inference),
            keep_inference_input_mutations=True,
        ),
    )


def inputs_written_under_autograd() -> frozenset[int]:
    """Positions of the inputs that, as AOTAutograd has found, the graph it just compiled writes."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return frozenset()
    return frozenset(i for i, info in enumerate(metadata.input_info) if info.mutates_data)


def backend_names() -> Sequence[str]:
    """All names that `torch.compile(backend=...)` takes."""
    return list_backends(exclude_tags=None)


def add_backend(name: str, backend: Callable[..., Compiled]) -> None:
    """Give `torch.compile` a backend."""
    dynamo_register_backend(backend, name)


def trace_artifact(name: str, encoding: str, text: Callable[[], str]) -> None:
    """Add a text to PyTorch's structured trace, if one is written; `encoding` is `string` or `json`."""
    trace_structured("artifact", lambda: {"name": name, "encoding": encoding}, payload_fn=text, expect_trace_id=False)


def debug_directory() -> str | None:
    """The folder in which PyTorch keeps what belongs to this run, if it does; by `TORCH_COMPILE_DEBUG=1`."""
    return get_debug_dir() if inductor_config.trace.enabled else None


def inductor_cache_hits() -> int:
    """How many graphs of this process have come from Inductor's cache so far."""
    return counters["inductor"]["fxgraph_cache_hit"]


def make_floats_constant() -> None:
    """Have Dynamo, if it is tracing, do so once more with floats of the program as they are now, if they are symbols.

    Dynamo makes an input of a float that has changed, or that may with `dynamic=True`, and then needs a backend that
    knows floats as values. AOTAutograd restarts it in the same way for what it cannot turn into tensors.
    """
    context = TracingContext.try_get()
    environment = None if context is None or context.fake_mode is None else context.fake_mode.shape_env
    if environment is None:
        return
    symbols = [str(symbol) for symbol in environment.backed_var_to_val if symbol_is_type(symbol, SymT.FLOAT)]
    new = [symbol for symbol in symbols if not TensorifyState.should_specialize(symbol)]
    for symbol in new:
        TensorifyState.specialize(symbol)
    if new:
        raise TensorifyScalarRestartAnalysis
