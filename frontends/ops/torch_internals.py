"""The parts of torch's op registration that are private or untyped, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# Private: dispatch keys, schema parsing and storage identity have no public form. Unknown: torch.library lacks types.

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards
from torch._library import simple_registry
from torch._library.custom_ops import OPDEFS, CustomOpDef  # pyright: ignore[reportUnknownVariableType]  # untyped in torch
from torch._ops import OpOverload, resolve_key
from torch.autograd import forward_ad

Kernel = Callable[..., Tensor | tuple[Tensor, ...]]
"""Takes an op's arguments by position, possibly without trailing ones that equal their defaults."""

_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_is_active = torch._C._are_functorch_transforms_active
_jit_state = torch._C._get_tracing_state
_has_torch_function = cast("Callable[[object], bool]", torch.overrides.has_torch_function_unary)
is_grad_enabled = torch._C.is_grad_enabled
increment_versions = cast("Callable[[Sequence[Tensor]], None]", torch._C._increment_version)
"""Tell autograd that tensors were written, as `torch.autograd.graph.increment_version` does in twice the time."""

DispatchKeySet = torch._C.DispatchKeySet


def infer_schema(fn: Callable[..., object], written: Sequence[str] = ()) -> str:
    """A function's parameters and results as torch schema text; ValueError where its annotations do not allow it.

    The parameters named in `written` are marked as mutable.
    """
    return torch.library.infer_schema(fn, mutates_args=written)


def parse_schema(text: str) -> torch.FunctionSchema:
    """A schema from text with the op's name in front."""
    return torch._C.parse_schema(text)


def define_overload(
    library: torch.library.Library,
    namespace: str,
    name: str,
    schema: str,
    kernel: Kernel,
    fake: Kernel,
    *,
    tags: tuple[torch.Tag, ...] = (),
) -> None:
    """Define `name` (`op` or `op.overload`) with one kernel for all devices and one for fake and meta tensors."""
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag, *tags))
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)


def find_overload(namespace: str, name: str, overload: str) -> OpOverload[..., object] | None:
    """An overload that torch knows, whoever has defined it."""
    try:
        # `torch.ops` may crash when it is asked for an operator that was there once.
        torch._C._dispatch_find_schema_or_throw(f"{namespace}::{name}", "" if overload == "default" else overload)
    except RuntimeError:
        return None
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def take_over(library: torch.library.Library, torch_op: OpOverload[..., object], kernel: Kernel, fake: Kernel) -> None:
    """Put kernels in the place of those of an overload that another library object has defined.

    Where that one has kernels for single devices, they are replaced too. All come back when `library` is destroyed.
    """
    name = torch_op.name()
    devices = [key for key in _device_keys() if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*other operators may also be overridden")
        for key in ("CompositeExplicitAutograd", *devices):
            library.impl(torch_op, kernel, key)
        torch.library.register_fake(name, fake, lib=library)


def _device_keys() -> Iterator[str]:
    """The dispatch keys of ordinary tensors with data, by kind of device."""
    for name, key in torch._C.DispatchKey.__members__.items():
        marker = name.startswith(("StartOf", "EndOf")) or name in ("Dense", "Meta")
        if not marker and DispatchKeySet(key).has(torch._C.DispatchKey.Dense):
            yield name


def definition_place(torch_op: OpOverload[..., object]) -> str:
    """Where an overload was defined: `registered at file:line`."""
    return torch_op._handle.debug()


def overload_schema(torch_op: OpOverload[..., object]) -> torch.FunctionSchema:
    """The schema that an overload was defined with."""
    return torch_op._schema


def schema_facts(schema: torch.FunctionSchema) -> object:
    """All that a schema says about arguments and results, letters of aliases aside."""
    arguments = [
        (a.name, str(a.real_type), a.has_default_value(), repr(a.default_value), a.is_write, a.kwarg_only)
        for a in schema.arguments
    ]
    return arguments, [(str(r.real_type), r.alias_info is not None) for r in schema.returns]


def register_autograd_kernel(
    library: torch.library.Library, torch_op: OpOverload[..., object], kernel: Callable[..., object]
) -> None:
    """Run `kernel(keyset, *args)` wherever autograd sees the op, in its place."""
    library.impl(torch_op, kernel, "Autograd", with_keyset=True)


def redispatch_below_autograd(torch_op: OpOverload[..., object], keyset: DispatchKeySet, *args: object) -> object:
    """Go on, from an autograd kernel, to what lies below it: tracing modes, and in the end the op's own kernel."""
    with torch._C._AutoDispatchBelowAutograd():
        return torch_op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


def apply_function(function: type[torch.autograd.Function], *args: object) -> object:
    """Record a call of a differentiable function."""
    return cast("object", function.apply(*args))


def python_kernel(torch_op: OpOverload[..., object], device: str) -> Callable[..., object] | None:
    """The kernel that an op runs for tensors on a device, or the one for all devices, if that is a Python function.

    It is called past the modes that are active, whose turn comes with what it calls.
    """
    composite = torch._C.DispatchKey.CompositeExplicitAutograd
    for key in (_kernel_key(torch_op, device), composite):
        # `Library.impl` notes each function that it registers, and takes the note back when it is unregistered.
        if key is not None and f"{torch_op.name().replace('::', '/')}/{key.name}" in torch.library._impls:
            return partial(torch_op._op_dk, key)
    return None


def composite_kernel(torch_op: OpOverload[..., object]) -> Callable[..., object] | None:
    """The kernel of an op of PyTorch's own that calls other ops for whatever device, if it has one."""
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    return partial(torch_op._op_dk, key) if torch_op.has_kernel_for_dispatch_key(key) else None


def _kernel_key(torch_op: OpOverload[..., object], device: str) -> torch._C.DispatchKey | None:
    """The dispatch key whose kernel runs for tensors on a device; None if there is none, or PyTorch has no device."""
    try:
        backend = torch._C.DispatchKey.__members__[torch._C._dispatch_key_for_device(device)]
        return resolve_key(torch_op, backend)
    except (KeyError, NotImplementedError, RuntimeError):
        return None


def operator_defined_by(value: object) -> OpOverload[..., object] | None:
    """The operator that `torch.library.custom_op` has made into `value`; None for everything else."""
    return value._opoverload if isinstance(value, CustomOpDef) else None


def python_parts(overload: OpOverload[..., object]) -> list[object]:
    """The Python functions that an operator was made from, if it was: its definition, and what it gives when traced."""
    parts: list[object] = []
    entry = simple_registry.singleton.get(overload.name())
    if entry is not None and (fake := entry.fake_impl.kernel) is not None:
        parts.append(cast(object, fake.func))  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
    definitions = cast("Mapping[str, CustomOpDef]", OPDEFS)
    if (definition := definitions.get(f"{overload.namespace}::{overload._opname}")) is not None:
        parts += [definition._init_fn, definition._abstract_fn]
    return parts


def forget_definitions(library: torch.library.Library) -> None:
    """Take everything that a library object has defined out of torch again."""
    library._destroy()


def is_watched() -> bool:
    """Whether a mode, a tracer, a function transform or forward-mode differentiation sees operators in this thread."""
    return is_watched_beside_keys() or bool(_functorch_is_active() or _jit_state())


def is_watched_beside_keys() -> bool:
    """The part of `is_watched` that `same_kind_of_tensors` does not see: modes, and forward-mode differentiation."""
    if _has_torch_function(None) or forward_ad._current_level >= 0:
        return True
    return _dispatch_modes() > 0


def in_function_transform() -> bool:
    """Whether a `torch.func` transform (`grad`, `jvp`, …) is running; they refuse `torch.autograd.Function` here."""
    return torch._C._are_functorch_transforms_active()


def has_tangent(tensor: Tensor) -> bool:
    """Whether forward-mode differentiation follows this tensor."""
    return forward_ad.unpack_dual(tensor).tangent is not None


def same_kind_of_tensors(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """A function that tells whether tensors are like these: type, dispatch keys, dtype, device, sizes and strides.

    These are Dynamo's guards on tensors. In plain Python it would take longer than a small kernel. Keys are compared
    with those that the thread adds and leaves out, and gradients count where they are recorded, so that tensors differ
    under transforms of functions, `torch.jit.trace`, autocast and inference mode; but not under all dispatch modes.
    """
    make = cast("Callable[..., TensorGuards]", TensorGuards)  # its stub says that a list has one tensor's sizes
    sizes, strides = [list(tensor.shape) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
    return make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def storage_id(tensor: Tensor) -> int:
    """The identity of a tensor's storage, real or fake; the Python wrapper of a storage has none of its own."""
    return tensor.untyped_storage()._cdata
