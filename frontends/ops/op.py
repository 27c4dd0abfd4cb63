"""Functional ops: one native definition each, any number of implementations, and overloads in torch.

An op has the semantics of its native definition, a plain Python function. Results are always new tensors. An op with
activations can have a second overload, `maybe_inplace`, of the same schema: a call of it promises that the caller does
not read the activations afterwards, so that an implementation may overwrite them.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any, TypeVar, cast

from torch import FunctionSchema, Tensor

from vllm_ir.frontends.ops import priority as priorities
from vllm_ir.frontends.ops.eager import run_donating, run_functional
from vllm_ir.frontends.ops.impl import NATIVE, IrOpImpl, location_of
from vllm_ir.frontends.ops.torch_internals import infer_schema, parse_schema
from vllm_ir.frontends.ops.torch_library import Definition, define, unpacked

Fn = TypeVar("Fn", bound=Callable[..., object])

_ACTIVATION_NAME = re.compile(r"x(_\w+|\d+)?")
_TENSOR_TYPES = ("Tensor", "Optional[Tensor]")


class IrOp:
    """A registered op; call it like the function it was made from.

    Attributes:
        name: the op's name in the torch namespace `vllm_ir`.
        native: the native definition.
        schema: torch's schema of both overloads.
        activations: names of the parameters that `maybe_inplace` may overwrite.
        activation_indices: their positions.
        torch_op: `torch.ops.vllm_ir.<name>.default`.
        maybe_inplace: `torch.ops.vllm_ir.<name>.maybe_inplace`, or None where the op has no such overload.
        impls: implementations by provider, `"native"` first.
    """

    def __init__(
        self,
        native: Callable[..., object],
        name: str,
        activations: Sequence[str] | None = None,
        allow_inplace: bool | None = None,
    ) -> None:
        """Define the op in torch; use `register_op`, which also makes it known by name.

        Args:
            native: an annotated Python function of tensors, numbers, bools and lists of these; it gives a tensor or a
                tuple of tensors and leaves its arguments as they are.
            name: a Python identifier.
            activations: tensor parameters that may be overwritten in `maybe_inplace`. None: those named `x`, `x_…`
                or `x1`, `x2`, ….
            allow_inplace: whether to define `maybe_inplace`. None: if there are activations.

        Raises:
            TypeError: the function's signature cannot be an op's.
            ValueError: `activations` or `allow_inplace` do not fit the signature.
        """
        text = schema_of(native, f"vllm_ir.{name}")
        self.name = name
        self.native = native
        self.schema = parse_schema(f"vllm_ir::{name}{text}")
        self.activations = _activations(self.schema, name, activations)
        parameters = [argument.name for argument in self.schema.arguments]
        self.activation_indices = tuple(parameters.index(activation) for activation in self.activations)
        self.impls = {NATIVE: IrOpImpl(name, NATIVE, native, len(self.schema.returns))}
        self._schema_text = text
        self._defaults = tuple(cast("object", argument.default_value) for argument in self.schema.arguments)
        self._default_priority: tuple[str, ...] = (NATIVE,)
        if allow_inplace and not self.activations:
            raise ValueError(f"vllm_ir.{name}: allow_inplace needs activations; name them with activations=[...]")
        donates = bool(self.activations) if allow_inplace is None else allow_inplace
        self.torch_op, self.maybe_inplace = define(
            Definition(name, text, native, self._functional, self._donating if donates else None)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: each op has its own signature, known only at run time
        """Compute the op; tracers record the call as one node. Arguments and results are the native definition's."""
        return self.torch_op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<IrOp {self.schema}>"

    # --- implementations -------------------------------------------------------------------------------------------

    def register_impl(
        self,
        provider: str,
        supported: bool = True,
        supports_args: Callable[..., object] | None = None,
        inplace: bool = False,
    ) -> Callable[[Fn], Fn]:
        """Register the decorated function as a provider's implementation of this op.

        Args:
            provider: who provides it; the name that priority lists use.
            supported: False where it cannot run in this process. It stays listed, and is never chosen.
            supports_args: takes the op's arguments by position, perhaps as fake tensors; False refuses them. It
                must refuse arguments that the native definition would refuse, so that the error comes from there.
            inplace: whether the function may overwrite the activations (and return them as results).

        Raises:
            TypeError: the function's signature, or that of `supports_args`, is not the op's.
            ValueError: the provider has an implementation already, or the op has no activation to overwrite.
        """
        if inplace and not self.activations:
            raise ValueError(
                f"vllm_ir.{self.name}: provider {provider!r} cannot be in place: the op has no activations"
            )

        def register(fn: Fn) -> Fn:
            self._add(IrOpImpl(self.name, provider, fn, len(self.schema.returns), supported, supports_args, inplace))
            return fn

        return register

    def _add(self, impl: IrOpImpl) -> None:
        described = f"vllm_ir.{self.name}: provider {impl.provider!r}"
        if impl.provider in self.impls:
            known = self.impls[impl.provider].location
            raise ValueError(f"{described} is registered twice: at {known} and at {impl.location}")
        text = schema_of(impl.fn, described)
        if text != self._schema_text:
            raise TypeError(
                f"{described} ({impl.location}) has the signature {text}, but the op has {self._schema_text}"
            )
        if impl.supports_args is not None:
            _check_callable(impl.supports_args, len(self._defaults), f"{described}: supports_args")
        self.impls[impl.provider] = impl

    def supported_providers(self) -> list[str]:
        """Providers whose implementation can run in this process, in order of registration."""
        return [provider for provider, impl in self.impls.items() if impl.supported]

    # --- priorities ------------------------------------------------------------------------------------------------

    def set_priority(self, providers: Sequence[str]) -> AbstractContextManager[None]:
        """A context manager: inside it, and only in the context that enters it, `providers` are asked in this order.

        The native definition is implied at the end. Graphs compiled before keep the providers chosen for them.

        Raises:
            ValueError: a provider has no implementation of this op, or is named twice.
        """
        return priorities.override({self.name: self.check_priority(providers)})

    def set_default(self, providers: Sequence[str]) -> None:
        """Set the order in which providers are asked in this process, outside `set_priority`; errors as there."""
        self._default_priority = self.check_priority(providers)

    def get_priority(self) -> list[str]:
        """The providers in the order in which they are asked now; `"native"` is always among them."""
        overridden = priorities.overridden(self.name)
        return priorities.with_native(self._default_priority if overridden is None else overridden)

    def check_priority(self, providers: Sequence[str]) -> tuple[str, ...]:
        """A priority list as a tuple.

        Raises:
            TypeError: it is not a list of strings.
            ValueError: a provider has no implementation of this op, or is named twice.
        """
        checked = priorities.provider_list(self.name, providers)
        priorities.check_known(self.name, checked, self.impls)
        return checked

    # --- dispatch --------------------------------------------------------------------------------------------------

    def dispatch(self, *args: object) -> IrOpImpl:
        """The implementation that a call with these arguments, real or fake, uses."""
        return self.select(args)[0]

    def select(
        self, args: Sequence[object], providers: Sequence[str] | None = None
    ) -> tuple[IrOpImpl, list[tuple[str, str]]]:
        """The implementation for these arguments, and those before it in priority with the reason of each rejection.

        Args:
            args: the op's arguments by position; defaults are filled in.
            providers: a priority list to use instead of the one in force.

        Raises:
            TypeError: the number of arguments is not the op's, or a `supports_args` does not answer with a bool.
            RuntimeError: a `supports_args` raised.
            ValueError: `providers` names one that has no implementation.
        """
        rejected: list[tuple[str, str]] = []
        for impl, reason in self.candidates(args, providers):
            if reason is None:
                return impl, rejected
            rejected.append((impl.provider, reason))
        raise AssertionError(f"vllm_ir.{self.name}: the native definition was rejected")  # it has no conditions

    def candidates(
        self, args: Sequence[object], providers: Sequence[str] | None = None
    ) -> Iterator[tuple[IrOpImpl, str | None]]:
        """The implementations in order of priority, each with the reason of its rejection; None if it may run.

        A provider is asked when its turn comes. Arguments and errors are those of `select`.
        """
        complete = self.complete(args)
        names = self.get_priority() if providers is None else priorities.with_native(self.check_priority(providers))
        for provider in names:
            impl = self.impls[provider]
            yield impl, impl.rejection(complete)

    def complete(self, args: Sequence[object]) -> list[object]:
        """The arguments with defaults filled in for those that are left out at the end.

        Raises:
            TypeError: too many arguments, or one is missing that has no default.
        """
        arguments = self.schema.arguments
        if len(args) > len(arguments):
            raise TypeError(f"vllm_ir.{self.name}: takes {len(arguments)} arguments, got {len(args)}")
        for argument in arguments[len(args) :]:
            if not argument.has_default_value():
                raise TypeError(f"vllm_ir.{self.name}: missing argument {argument.name!r}")
        return [*args, *self._defaults[len(args) :]]

    def _functional(self, *args: object) -> Tensor | tuple[Tensor, ...]:
        complete = self.complete(args)
        return unpacked(run_functional(self.select(complete)[0], complete, self.activation_indices))

    def _donating(self, *args: object) -> Tensor | tuple[Tensor, ...]:
        complete = self.complete(args)
        return unpacked(run_donating(self.select(complete)[0], complete, self.activation_indices))


def schema_of(fn: Callable[..., object], described: str) -> str:
    """Parameters and results of a Python function as text of a torch schema.

    Raises:
        TypeError: it is not a Python function, or an annotation is missing or has no counterpart in a schema, or a
            result is not a tensor; the message begins with `described`.
    """
    if not isinstance(fn, FunctionType):
        raise TypeError(f"{described}: expected a Python function with annotations, got {fn!r}")
    kinds = [parameter.kind for parameter in inspect.signature(fn).parameters.values()]
    if any(kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds):
        raise TypeError(f"{described} ({location_of(fn)}): every parameter must be an ordinary positional one")
    try:
        text = infer_schema(fn)
    except ValueError as error:
        # torch lists every type it knows in one very long line.
        fact = str(error).removeprefix("infer_schema(func): ").split(" The valid types are")[0].split(" Got func")[0]
        raise TypeError(f"{described} ({location_of(fn)}): {fact}") from error
    returns = parse_schema(f"op{text}").returns
    if not returns or any(str(result.type) != "Tensor" for result in returns):
        raise TypeError(f"{described} ({location_of(fn)}): results must be a Tensor or a tuple of Tensors, got {text}")
    return text


def _activations(schema: FunctionSchema, op_name: str, named: Sequence[str] | None) -> tuple[str, ...]:
    tensors = [argument.name for argument in schema.arguments if str(argument.type) in _TENSOR_TYPES]
    if named is None:
        return tuple(name for name in tensors if _ACTIVATION_NAME.fullmatch(name))
    if isinstance(named, str):
        raise TypeError(f"vllm_ir.{op_name}: activations must be a list of parameter names, got the string {named!r}")
    unknown = [name for name in named if name not in tensors]
    if unknown:
        raise ValueError(f"vllm_ir.{op_name}: activations {unknown} are not tensor parameters; those are {tensors}")
    # In the order of the parameters, whatever order they were named in.
    return tuple(name for name in tensors if name in named)


def _check_callable(fn: Callable[..., object], count: int, described: str) -> None:
    try:
        inspect.signature(fn).bind(*range(count))
    except TypeError as error:
        raise TypeError(f"{described} ({location_of(fn)}) must take the op's {count} arguments: {error}") from error
