"""From layers with one method per platform to ops of the registry.

Such a layer is a module whose `forward` calls `forward_native`, `forward_cuda`, `forward_hip`, `forward_cpu`,
`forward_xpu`, …, whichever fits the process. vLLM's `CustomOp` (`vllm/model_executor/custom_op.py`) is what is
described here: which method a platform calls, which ones stand in for others, and the switches of `custom_ops`. The
methods read tensors and numbers from the layer; an op has them as arguments.
"""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from vllm_ir.frontends.ops.config import IrOpPriorityConfig
from vllm_ir.frontends.ops.impl import NATIVE
from vllm_ir.frontends.ops.op import IrOp
from vllm_ir.frontends.ops.registry import ops, register_op, unregister
from vllm_ir.frontends.ops.signature import RegistrationError, location_of
from vllm_ir.frontends.platforms import Platform, detect

Fn = Callable[..., object]
_PREFIX = "forward_"


@dataclass(frozen=True)
class LayerMethod:
    """A layer's method for one platform, as an adapter gets it: `method(weight=weight, eps=eps)(x)` calls it."""

    owner: type[object]
    """The class of the layer."""
    function: Any  # a function, staticmethod or classmethod: whatever binds to a layer
    """The method, as its class has it."""

    def __call__(self, **attributes: object) -> Callable[..., Any]:  # Any: each method has results of its own
        """The method of a layer that has these attributes, and no others but those of its class."""
        layer = object.__new__(self.owner)
        vars(layer).update(attributes)
        return self.function.__get__(layer, self.owner)


class _AnyLayer:
    """A layer of no class, for functions."""


def register_layer_op(
    layer: type | Mapping[str, Fn],
    *,
    name: str | None = None,
    activations: Sequence[str] | None = None,
    allow_inplace: bool = False,
    reuses: Sequence[str | None] | None = None,
    inplace: Mapping[str, bool | Sequence[str]] | None = None,
    supports_args: Mapping[str, Fn] | None = None,
) -> Callable[[Fn], IrOp]:
    """Make an op of a layer, with its methods as implementations; the decorated adapter becomes the `IrOp`.

    The adapter's parameters behind the first one, its result and its docstring are the op's. It says how a method is
    called with them::

        @register_layer_op(RMSNorm)
        def scaled_norm(method: LayerMethod, x: Tensor, weight: Tensor, eps: float) -> Tensor:
            return method(weight=weight, variance_epsilon=eps)(x)

    Methods run on a layer without `__init__`, which has the attributes that the adapter names. `forward_native` is the
    native definition, each other `forward_<provider>` an implementation; those that a base class with a
    `dispatch_forward` has for all layers do not count. The implementation of the method that the layer would call in
    this process is the only one that is supported (`forward_cuda` on ROCm too, if there is no `forward_hip`).

    Args:
        layer: the class of the layer; or functions by provider, `"native"` among them, which take a layer as first
            argument and are all supported.
        name: the op's name; the adapter's own by default.
        activations: see `register_op`.
        allow_inplace: see `register_op`.
        reuses: see `register_op`.
        inplace: by provider, whether the method overwrites the activations, or which ones.
        supports_args: by provider, a predicate of the op's arguments; see `IrOp.register_impl`.

    Raises:
        RegistrationError: there is no native method, `inplace` or `supports_args` names a provider that there is not,
            or the adapter's signature cannot be an op's.
    """
    owner, methods = (layer, _methods_of(layer)) if isinstance(layer, type) else (_AnyLayer, dict(layer))
    here = _method_here(detect(), methods) if isinstance(layer, type) else None
    written, predicates = dict(inplace or {}), dict(supports_args or {})

    def register(adapter: Fn) -> IrOp:
        op_name = getattr(adapter, "__name__", "") if name is None else name
        described = f"vllm_ir.{op_name} ({location_of(adapter)})"
        if NATIVE not in methods:
            raise RegistrationError(
                f"{described}: {layer!r} has no method for {NATIVE!r} of its own, only for {sorted(methods)}; the "
                "native definition says what the op means"
            )
        for option, given in (("inplace", written), ("supports_args", predicates)):
            if unknown := sorted(given.keys() - methods.keys() | given.keys() & {NATIVE}):
                raise RegistrationError(f"{described}: {option} names {unknown}, which are not among {sorted(methods)}")
        functions = {provider: _op_function(adapter, owner, method) for provider, method in methods.items()}
        native = functions.pop(NATIVE)
        vars(native)["__wrapped__"] = adapter
        op = register_op(name=op_name, activations=activations, allow_inplace=allow_inplace, reuses=reuses)(native)
        try:
            for provider, function in functions.items():
                op.register_impl(
                    provider,
                    supported=here in (None, provider),
                    supports_args=predicates.get(provider),
                    inplace=written.get(provider, False),
                )(function)
        except RegistrationError:
            unregister(op)
            raise
        return op

    return register


def priorities_of_custom_ops(
    custom_ops: Sequence[str],
    *,
    layers: Mapping[str, Sequence[str]] | None = None,
    using_inductor: bool = False,
    platform: Platform | None = None,
) -> IrOpPriorityConfig:
    """The priorities that do what a `custom_ops` list does: `["none", "+rms_norm"]`, `["all", "-silu_and_mul"]`.

    Ops that are switched on ask the platform's kernel providers and the method that a layer would call there, then
    native; those that are switched off run native. All registered ops are named.

    Args:
        custom_ops: `all`, `none`, and `+layer` or `-layer` for exceptions.
        layers: ops by name of the layer, where a layer became ops of other names, or none so far (`[]`). Ops that are
            not mentioned have layers of their own name.
        using_inductor: without `all` and `none`, Inductor means `none`, as in vLLM, and anything else `all`.
        platform: that of this process by default.

    Raises:
        TypeError: `custom_ops` is a string.
        ValueError: an entry is no switch, names something unknown, or contradicts another one.
    """
    if isinstance(custom_ops, str):
        raise TypeError(f"custom_ops must be a list of switches, got the string {custom_ops!r}")
    switches = set(custom_ops)
    renamed = dict(layers or {})
    taken = {op for names in renamed.values() for op in names}
    known = {**{op: (op,) for op in ops if op not in taken}, **renamed}
    _check_switches(switches, known)
    on = "all" in switches or ("none" not in switches and not using_inductor)
    platform = detect() if platform is None else platform
    order = list(dict.fromkeys((*platform.kernel_providers(), *_methods_for(platform))))
    priorities: dict[str, list[str]] = {}
    for layer, names in known.items():
        enabled = (on or f"+{layer}" in switches) and f"-{layer}" not in switches
        for name in names:
            _check_known(name, set(ops), f"custom_ops: layer {layer!r} became the op")
            providers = [provider for provider in order if enabled and provider in ops[name].impls]
            if priorities.setdefault(name, [*providers, NATIVE]) != [*providers, NATIVE]:
                raise ValueError(f"custom_ops: vllm_ir.{name} belongs to layers that are switched on and off")
    return IrOpPriorityConfig(**priorities)


def _methods_of(layer: type) -> dict[str, object]:
    """The layer's own methods `forward_<provider>`, by provider, as its classes have them."""
    found: dict[str, object] = {}
    for kind in reversed(layer.__mro__):
        if kind is not layer and "dispatch_forward" in vars(kind):
            continue
        for name, value in vars(kind).items():
            if name.startswith(_PREFIX) and name != _PREFIX:
                found[name.removeprefix(_PREFIX)] = value
    return found


def _methods_for(platform: Platform) -> Iterator[str]:
    """The methods that a layer may have for a platform, the closest one first."""
    yield platform.name
    if platform.is_rocm():
        yield "hip"
    if platform.is_cuda_alike():
        yield "cuda"
    if platform.is_out_of_tree():
        yield "oot"


def _method_here(platform: Platform, methods: Collection[str]) -> str:
    """The method that a layer calls on a platform."""
    return next((name for name in _methods_for(platform) if name in methods), NATIVE)


def _op_function(adapter: Fn, owner: type, function: object) -> FunctionType:
    """A function with the op's signature, which calls a method as the adapter says, and is said to be where that is.

    What it depends on is in its closure, where `uuid` finds it.
    """

    def run(*args: object, **kwargs: object) -> object:
        return adapter(LayerMethod(owner, function), *args, **kwargs)

    signature = inspect.signature(adapter, eval_str=True)
    parameters = list(signature.parameters.values())[1:]
    run.__name__, run.__qualname__ = getattr(adapter, "__name__", "run"), getattr(adapter, "__qualname__", "run")
    run.__module__, run.__doc__ = adapter.__module__, adapter.__doc__
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    vars(run)["__wrapped__"] = getattr(function, "__func__", function)
    return run


def _check_switches(switches: Collection[str], known: Collection[str]) -> None:
    if {"all", "none"} <= set(switches):
        raise ValueError("custom_ops has both 'all' and 'none'; leave one out")
    for switch in sorted(switches):
        if switch in ("all", "none"):
            continue
        if switch[:1] not in ("+", "-"):
            raise ValueError(f"custom_ops: {switch!r} is no switch; write 'all', 'none', '+layer' or '-layer'")
        layer = switch[1:]
        _check_known(layer, known, f"custom_ops: {switch!r} names the layer")
        if {f"+{layer}", f"-{layer}"} <= set(switches):
            raise ValueError(f"custom_ops switches {layer!r} both on and off; leave one out")


def _check_known(name: str, known: Collection[str], described: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, list(known))
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; there are {', '.join(sorted(known))}"
        raise ValueError(f"{described} {name!r}, which is unknown{meant}")


__all__ = ["LayerMethod", "priorities_of_custom_ops", "register_layer_op"]
