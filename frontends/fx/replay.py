"""Running an FX graph node by node while it is being traced, keeping names, locations and errors apart."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.fx.experimental.proxy_tensor import PythonKeyTracer
from torch.fx.node import Argument, Target
from torch.fx.traceback import preserve_node_meta, set_current_meta

from vllm_ir.frontends.fx.attributes import ModuleTensors
from vllm_ir.frontends.fx.eager_strides import restride
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.refusals import EagerCalls
from vllm_ir.frontends.fx.torch_internals import (
    SYMBOLIC_TYPES,
    SymbolicNumber,
    current_tracer,
    enter_autocast,
    exit_autocast,
    is_leaf,
    last_node,
    node_of_symbol,
    node_of_tensor,
    nodes_since,
    rebind_symbols,
    structured_outputs,
)

_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "custom")


class OriginalNames:
    """Which node of the graph being traced computes the value of which original node."""

    def __init__(self) -> None:
        self._nodes: dict[fx.Node, str] = {}
        self._symbols: list[tuple[str, SymbolicNumber, PythonKeyTracer]] = []

    def record(self, name: str, value: object, tracer: PythonKeyTracer, newest: fx.Node | None) -> None:
        """Notes that the original node called `name` has just computed `value`; `newest` is the last node it made."""
        if isinstance(value, SYMBOLIC_TYPES):
            # Its node may be made later, when it is first used, or never.
            self._symbols.append((name, value, tracer))
        elif value is None and newest is not None:  # `operator.setitem`, operators without results
            self._nodes.setdefault(newest, name)
        elif (node := _node_of(value, tracer)) is not None:
            self._nodes.setdefault(node, name)

    def wanted(self) -> Mapping[fx.Node, str]:
        """The first name for every node that computes an original node's value."""
        for name, value, tracer in self._symbols:
            if (node := node_of_symbol(tracer, value)) is not None:
                self._nodes.setdefault(node, name)
        return self._nodes


class Replay(fx.Interpreter):
    """Runs a graph under `make_fx`, with fakes in place of the tensors that it holds as attributes."""

    def __init__(
        self,
        gm: fx.GraphModule,
        tensors: ModuleTensors,
        fakes: Sequence[torch.Tensor],
        names: OriginalNames,
        calls: EagerCalls,
    ) -> None:
        """Run `gm` on `fakes`, with the strides that `calls` finds in eager."""
        super().__init__(gm)
        self.extra_traceback = False  # errors carry their own location
        self._source = gm.graph
        self._tracer = current_tracer()
        self._tensors = tensors
        self._fakes = fakes
        self._names = names
        self._calls = calls
        self._last = last_node(self._tracer)
        self._autocast: list[object] = []

    def replay(self, arguments: Sequence[object]) -> object:
        """Runs the graph on fakes and returns its outputs, in the structure that the graph has."""
        try:
            with self._tensors.replaced(self._fakes):
                outputs: object = super().run(*arguments, enable_io_processing=False)
        finally:
            for entered in reversed(self._autocast):  # regions that an error left open
                exit_autocast(entered)
        nested = structured_outputs(self._source, outputs)
        return nested if _has_plain_containers(nested) else outputs

    def run_node(self, n: fx.Node) -> object:
        """Runs one node; the nodes that this makes in the traced graph get its metas."""
        try:
            result = self._run(n)
            rebind_symbols(n, result)
        except FxImportError:
            raise
        except Exception as error:
            raise FxImportError(error_summary(error), node=n.name, location=user_location(n)) from error
        if n.op in ("call_function", "call_method", "call_module"):
            self._names.record(n.name, result, self._tracer, self._annotate(n))
        return result

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> object:
        """The fake that stands for a tensor attribute; sub-graphs as they are."""
        value: object = super().get_attr(target, args, kwargs)
        if isinstance(value, torch.Tensor) and (position := self._tensors.position(value)) is not None:
            return self._fakes[position]
        return value

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> object:
        """Calls a function, keeping track of autocast regions."""
        result: object = super().call_function(target, args, kwargs)
        if target is enter_autocast:
            self._autocast.append(result)
        elif target is exit_autocast:
            self._autocast.remove(args[0])
        return result

    def _run(self, n: fx.Node) -> object:
        run = cast(Callable[..., object], getattr(self, n.op))
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if not isinstance(n.target, HigherOrderOperator):
            key = None if self._autocast else self._calls.key(n, args, kwargs)
            result: object = run(n.target, args, kwargs)
            if key is not None and (strides := self._calls.strides(n, key, (args, kwargs), result)) is not None:
                restride(self._tracer, result, strides)
            return result
        # Higher-order operators trace their sub-graphs themselves, and carry metas over when told so.
        with preserve_node_meta(), set_current_meta(n):
            return run(n.target, args, kwargs)

    def _annotate(self, n: fx.Node) -> fx.Node | None:
        """Copies metas to the nodes made since the last call, and returns the newest of them."""
        kept = {key: n.meta[key] for key in _KEPT_META if key in n.meta}
        newest = last_node(self._tracer)
        made = newest if newest is not self._last else None
        for node in nodes_since(self._tracer, self._last):
            for key, value in kept.items():
                node.meta.setdefault(key, value)
        self._last = newest
        return made


def _node_of(value: object, tracer: PythonKeyTracer) -> fx.Node | None:
    """The node that makes `value`, a tensor or the list of tensors that an operator returned."""
    if isinstance(value, torch.Tensor):
        return node_of_tensor(tracer, value)
    items = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else ()
    first = _node_of(items[0], tracer) if items else None
    if first is None or getattr(first.target, "__name__", "") != "getitem":
        return None
    return first.all_input_nodes[0]


def _has_plain_containers(value: object) -> bool:
    """Whether `value` nests in containers that an FX output node can hold, and no others."""
    if isinstance(value, dict):
        return all(map(_has_plain_containers, cast("dict[object, object]", value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_has_plain_containers, cast("list[object]", value)))
    return is_leaf(value)
