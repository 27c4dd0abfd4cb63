"""Functional ops: one native definition each, any number of implementations, and overloads in torch.

An op has the semantics of its native definition, a plain Python function. Results are always new tensors. An op with
activations can have a second overload, `maybe_inplace`, of the same signature: a call of it promises that the caller
does not read the activations afterwards, so that an implementation may overwrite them.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from vllm_ir.frontends.ops import priority as priorities
from vllm_ir.frontends.ops import signature
from vllm_ir.frontends.ops.arguments import Arguments
from vllm_ir.frontends.ops.direct import Routes
from vllm_ir.frontends.ops.eager import run_donating, run_functional, run_traced
from vllm_ir.frontends.ops.foreign import find_foreign
from vllm_ir.frontends.ops.impl import NATIVE, RESERVED_PROVIDERS, IrOpImpl
from vllm_ir.frontends.ops.inputs import InputGenerator
from vllm_ir.frontends.ops.overload import IrOpInplaceOverload
from vllm_ir.frontends.ops.signature import RegistrationError
from vllm_ir.frontends.ops.size_ranges import Priority, SizeRanges
from vllm_ir.frontends.ops.tolerances import tolerance
from vllm_ir.frontends.ops.torch_internals import parse_schema
from vllm_ir.frontends.ops.torch_library import Definition, TorchOp, define, unpacked
from vllm_ir.frontends.ops.torch_wrap import torch_wrap_enabled

Fn = Callable[..., object]
GivenPriority = Sequence[str] | SizeRanges


class IrOp:
    """A registered op; call it like the function it was made from.

    Attributes:
        registry: all ops that `register_op` has made, by name.
        name: the op's name in the torch namespace `vllm_ir`.
        native: the native definition.
        schema: torch's schema of `default`.
        parameters: names of the parameters.
        bound: the arguments of a call, `bound(args, kwargs)`, by position with defaults filled in; TypeError if they
            do not fit.
        complete: the same for arguments by position alone, `complete(args)`.
        activations: names of the parameters that `maybe_inplace` may overwrite.
        activation_indices: their positions.
        reuses: for each result the activation whose memory it may take, or None.
        torch_op: `torch.ops.vllm_ir.<name>.default`.
        maybe_inplace: the overload that may overwrite activations, or None where the op has no such overload.
        foreign: the op of another registry that shares the torch operator, if there is one.
        row_wise: whether rows of the activations can be computed apart from one another.
    """

    registry: ClassVar[dict[str, "IrOp"]] = {}

    def __init__(
        self,
        name: str,
        native: Fn,
        tags: tuple[torch.Tag, ...] = (),
        activations: Sequence[str] | None = None,
        allow_inplace: bool = False,
        reuses: Sequence[str | None] | None = None,
        batch_invariant: bool = False,
        row_wise: bool = False,
    ) -> None:
        """Define the op in torch; use `register_op`, which also makes it known by name.

        Args:
            name: matches `[a-z_][a-z_0-9]*`.
            native: an annotated Python function of tensors, numbers, bools and lists of these; it gives a tensor or a
                tuple of tensors and leaves its arguments as they are.
            tags: torch's tags of the operator, beside the one that says that it can be compiled.
            activations: tensor parameters that may be overwritten in `maybe_inplace`. None: those whose names start
                with `x`.
            allow_inplace: whether to define `maybe_inplace`.
            reuses: for each result the activation whose memory it may take, or None. None: one to one, in order.
            batch_invariant: whether each row's bits of the native definition depend neither on the other rows nor on
                their number.
            row_wise: whether each row, along the last dimension, of each result is computed from that row of the
                activations, and from what the other arguments have for all rows.

        Raises:
            RegistrationError: the function's signature cannot be an op's, or an option does not fit it.
        """
        signature.check_name("op", name, native)
        text = signature.schema_of(native, f"vllm_ir.{name}")
        self.name = name
        self.native = native
        self.schema = parse_schema(f"vllm_ir::{name}{text}")
        self.schema_text = text
        self.result_count = len(self.schema.returns)
        arguments = Arguments(name, self.schema)
        self.parameters = arguments.names
        self.bound = arguments.bound
        self.complete = arguments.complete
        self.activations = signature.activations_of(self.schema, name, activations)
        self.activation_indices = tuple(self.parameters.index(activation) for activation in self.activations)
        self.reuses = signature.reuses_of(self.schema, name, self.activations, reuses)
        self.allow_inplace = allow_inplace
        self.row_wise = row_wise
        for option, given in ("allow_inplace", allow_inplace), ("row_wise", row_wise):
            if given and not self.activations:
                raise RegistrationError(f"vllm_ir.{name}: {option} needs activations; name them with activations=[...]")
        self.routes = Routes(self)
        self.inputs = InputGenerator(name)
        self._default_priority: Priority | None = None
        self._fake = native
        self._tolerances: dict[torch.dtype, dict[str, float]] = {}
        self.registration_stack = signature.registration_stack()
        stack = self.registration_stack
        impl = IrOpImpl(self, NATIVE, native, batch_invariant=batch_invariant, registration_stack=stack)
        self._impls = {NATIVE: impl}
        donating = signature.schema_of(native, f"vllm_ir.{name}", self.activations) if allow_inplace else None
        self._overloads = define(
            Definition(
                name, text, donating, self.result_count, native, self._fake_call, self._functional, self._donating, tags
            )
        )
        self.torch_op: TorchOp = self._overloads.default
        self.foreign = find_foreign(name, self.torch_op) if self._overloads.adopted else None
        inplace = self._overloads.maybe_inplace
        self.maybe_inplace = None if inplace is None else IrOpInplaceOverload(self, inplace)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: each op has its own signature, known only at run time
        """Compute the op; tracers record the call as one node. Arguments and results are the native definition's."""
        if not is_dynamo_compiling():
            given = tuple(self.bound(args, kwargs)) if kwargs else args
            route = self.routes.of(given)
            if route is not None:
                return route.call(given)
        if torch_wrap_enabled():
            return self.torch_op(*args, **kwargs)
        return unpacked(run_traced(self.choose(*args, **kwargs), self.bound(args, kwargs)))

    def __repr__(self) -> str:
        return f"IrOp({self.name!r})"

    def __deepcopy__(self, memo: object) -> "IrOp":
        return self  # copies of models call the same op

    def __reduce__(self) -> tuple[Callable[[str], "IrOp"], tuple[str]]:
        return _registered, (self.name,)

    def __str__(self) -> str:
        text = (inspect.getdoc(self.native) or "").partition("\n")[0]
        return f"{self!r}: {text}" if text else repr(self)

    # --- implementations -------------------------------------------------------------------------------------------

    def sources_in_use(self, names: Iterable[str]) -> Iterable[object]:
        """What code depends on that calls the op: its schema and its meaning. See `sources.py`."""
        return (self.schema_text, self.native)

    @property
    def impls(self) -> dict[str, IrOpImpl]:
        """Implementations by provider, `"native"` first."""
        if self.foreign is not None and self.foreign.refresh(self, self._impls):
            self.routes.clear()
        return self._impls

    def register_fake(self, fn: Fn) -> Fn:
        """Register the decorated function as what tracers run on tensors without data, instead of the native one."""
        self._fake = fn
        return fn

    def register_impl(
        self,
        provider: str,
        *,
        supported: bool = True,
        supports_args: Fn | None = None,
        inplace: bool | Sequence[str] = False,
        batch_invariant: bool = False,
        sources: Sequence[Path] = (),
    ) -> Callable[[Fn], IrOpImpl]:
        """Register the decorated function as a provider's implementation of this op.

        Args:
            provider: who provides it; the name that priority lists use.
            supported: False where it cannot run in this process. It stays listed, and is never chosen.
            supports_args: takes the op's arguments by position, perhaps as fake tensors; False refuses them. It
                must refuse arguments that the native definition would refuse, so that the error comes from there. It
                must not look at contents of tensors, nor make a traced graph depend on sizes.
            inplace: whether the function may overwrite the activations (and return them as results), or which ones.
            batch_invariant: whether each row's bits depend neither on the other rows nor on their number.
            sources: files that belong to the function beside its Python code; a change of one changes `uuid`.

        Raises:
            RegistrationError: the function's signature, or that of `supports_args`, is not the op's; the provider has
                an implementation already, or its name is reserved; the op has no such activation to overwrite.
        """
        described = f"vllm_ir.{self.name}: provider {provider!r}"
        written = signature.written_by(self.activations, inplace, described)
        if written and not self.allow_inplace:
            raise RegistrationError(f"{described} cannot be in place: the op was registered without allow_inplace=True")

        def register(fn: Fn) -> IrOpImpl:
            stack = signature.registration_stack()
            impl = IrOpImpl(
                self, provider, fn, supported, supports_args, written, batch_invariant, tuple(sources), stack
            )
            self._add(impl, described)
            return impl

        return register

    def _add(self, impl: IrOpImpl, described: str) -> None:
        signature.check_name("provider", impl.provider, impl.impl_fn)
        if impl.provider in RESERVED_PROVIDERS:
            raise RegistrationError(f"{described} ({impl.location}) is reserved; use another name")
        known = self.impls.get(impl.provider)
        if known is not None and not known.adopted:
            raise RegistrationError(f"{described} is registered twice: at {known.location} and at {impl.location}")
        text = signature.schema_of(impl.impl_fn, described)
        if text != self.schema_text:
            raise RegistrationError(
                f"{described} ({impl.location}) has the schema {text}, which does not match native schema "
                f"{self.schema_text}"
            )
        if impl.predicate is not None:
            signature.check_predicate(impl.predicate, self.native, described)
        self.impls[impl.provider] = impl
        self.routes.clear()

    def remove_impl(self, provider: str) -> None:
        """Forget a provider's implementation; KeyError if there is none."""
        del self.impls[provider]
        self.routes.clear()

    def supported_providers(self) -> list[str]:
        """Providers whose implementation can run in this process, in order of registration."""
        return [provider for provider, impl in self.impls.items() if impl.supported]

    # --- priorities ------------------------------------------------------------------------------------------------

    def set_priority(self, providers: GivenPriority) -> AbstractContextManager[None]:
        """A context manager: inside it, and only in the context that enters it, `providers` are asked in this order.

        They are a list, or `SizeRanges` of lists. The native definition is implied at the end. Graphs compiled before
        keep the providers chosen for them.

        Raises:
            ValueError: a provider has no implementation of this op, or is named twice; or the op has no tensor of the
                name whose size is to count.
        """
        checked = self.check_priority(providers)
        self._warn_of_fallback(checked)
        return priorities.override({self.name: checked})

    def set_default(self, providers: GivenPriority) -> None:
        """Set the order in which providers are asked in this process, outside `set_priority`; errors as there."""
        checked = self.check_priority(providers)
        self._warn_of_fallback(checked)
        self._default_priority = checked
        self.routes.clear()

    def clear_default(self) -> None:
        """Undo `set_default`."""
        self._default_priority = None
        self.routes.clear()

    def named_priority(self) -> Priority:
        """The priority list in force as it was given, with what is not supported; empty where none was given."""
        for given in (priorities.overridden(self.name), self._default_priority):
            if given is not None:
                return given
        given = priorities.of_environment(self.name) or (self.foreign and self.foreign.priority())
        return priorities.of_platform(self.name, self.impls) if given is None else self.before_platform(given)

    def before_platform(self, providers: GivenPriority) -> Priority:
        """A priority list with the platform's own providers behind it, each provider once; errors as `set_priority`."""
        checked = self.check_priority(providers)
        behind = priorities.of_platform(self.name, self.impls) or (NATIVE,)

        def extended(listed: tuple[str, ...]) -> tuple[str, ...]:
            return (*listed, *(provider for provider in behind if provider not in listed))

        return checked.mapped(extended) if isinstance(checked, SizeRanges) else extended(checked)

    def get_priority(self) -> list[str]:
        """The providers that may be asked now, in order; empty where no priority was given, and native runs.

        Left out are those that are not supported here, and those behind one that takes all arguments. Where sizes
        decide, these are the providers of all ranges, and the platform's for other sizes.
        """
        named = self.named_priority()
        if not isinstance(named, SizeRanges):
            return priorities.effective(named, self.impls) if named else []
        lists = [*(entry.providers for entry in named.ranges), priorities.of_platform(self.name, self.impls)]
        asked = (provider for listed in lists for provider in priorities.effective(listed, self.impls))
        return list(dict.fromkeys(asked))

    def check_priority(self, providers: GivenPriority) -> Priority:
        """A priority list as a tuple, or size ranges.

        Raises:
            TypeError: it is not a list of strings.
            ValueError: as for `set_priority`.
        """
        checked = priorities.priority(self.name, providers)
        if isinstance(checked, SizeRanges):
            checked.check(self)
        priorities.check_known(self.name, priorities.named_in(checked), self.impls)
        return checked

    def _warn_of_fallback(self, priority: Priority) -> None:
        for providers in (
            [entry.providers for entry in priority.ranges] if isinstance(priority, SizeRanges) else [priority]
        ):
            impls = [self.impls[provider] for provider in providers]
            if providers and not any(impl.supported and impl.supports_all_args for impl in impls):
                priorities.warn_of_fallback(self.name, providers)

    # --- dispatch --------------------------------------------------------------------------------------------------

    def dispatch(self, *args: object, **kwargs: object) -> IrOpImpl:
        """The implementation that a call with these arguments, real or fake, uses."""
        return self.select(self.bound(args, kwargs))[0]

    def choose(self, *args: object, **kwargs: object) -> IrOpImpl:
        """`dispatch` in a form that Dynamo can trace."""
        bound: list[Any] = self.bound(args, kwargs)  # Any: what tracers put in tensors' places
        where, lists = _constant_lists(self.name)
        for first, last, providers in lists:
            size = 0 if where is None else bound[where[0]].shape[where[1]]
            if first <= size and (last is None or size <= last):
                for provider in providers:
                    impl = self._impls[provider]
                    if impl.predicate is None or impl.predicate(*bound):
                        return impl
                break
        return self._impls[NATIVE]

    def select(
        self, args: Sequence[object], providers: GivenPriority | None = None
    ) -> tuple[IrOpImpl, list[tuple[str, str]]]:
        """The implementation for these arguments, and those before it in priority with the reason of each rejection.

        Args:
            args: the op's arguments by position; defaults are filled in.
            providers: a priority list to use instead of the one in force.

        Raises:
            TypeError: the number of arguments is not the op's, or a `supports_args` does not answer with a bool.
            RuntimeError: a `supports_args` raised, or depends on what it must not; or only batch-invariant
                implementations may run, and none takes the arguments.
            ValueError: `providers` names one that has no implementation.
        """
        rejected: list[tuple[str, str]] = []
        for impl, reason in self.candidates(args, providers):
            if reason is None:
                return impl, rejected
            rejected.append((impl.provider, reason))
        listed = "; ".join(f"{provider!r}: {reason}" for provider, reason in rejected)
        raise RuntimeError(f"vllm_ir.{self.name}: no implementation may run: {listed}")

    def candidates(
        self, args: Sequence[object], providers: GivenPriority | None = None
    ) -> Iterator[tuple[IrOpImpl, str | None]]:
        """The implementations in order of priority, each with the reason of its rejection; None if it may run.

        A provider is asked when its turn comes. Arguments and errors are those of `select`.
        """
        complete = self.complete(args)
        named = self._listed(self.named_priority() if providers is None else self.check_priority(providers), complete)
        if not named and len(self.supported_providers()) > 1:
            priorities.warn_of_missing_priority(self.name)
        invariant = priorities.wants_batch_invariance()
        for provider in priorities.with_native(self._with_all_invariant(named) if invariant else named):
            impl = self.impls[provider]
            reason = impl.rejection(complete)
            if reason is None and invariant and not impl.batch_invariant:
                reason = "it is not declared batch-invariant"
            yield impl, reason

    def _listed(self, priority: Priority, complete: Sequence[object]) -> tuple[str, ...]:
        """The providers to ask for a call."""
        if not isinstance(priority, SizeRanges):
            return priority
        listed = priority.for_call(self, complete)
        return priorities.of_platform(self.name, self.impls) if listed is None else listed

    def constant_lists(self) -> tuple[tuple[int, int] | None, tuple[tuple[int, int | None, tuple[str, ...]], ...]]:
        """The position and dimension of the size that counts, if one does, and `(first, last, providers)` lists.

        Left out is what may not run: what is not supported, or not batch-invariant where only that is to be chosen.
        """
        named = self.named_priority()
        if not isinstance(named, SizeRanges):
            return None, ((0, None, self._allowed(named)),)
        lists = [(entry.first, entry.last, self._allowed(entry.providers)) for entry in named.ranges]
        others = self._allowed(priorities.of_platform(self.name, self.impls))
        return named.place(self), (*lists, (0, None, others))

    def _allowed(self, named: Sequence[str]) -> tuple[str, ...]:
        invariant = priorities.wants_batch_invariance()
        listed = self._with_all_invariant(named) if invariant else tuple(named)
        kept = [p for p in listed if not invariant or self.impls[p].batch_invariant]
        return tuple(priorities.effective(kept, self.impls))

    def _with_all_invariant(self, named: Sequence[str]) -> tuple[str, ...]:
        """A priority list, with all implementations behind it that are declared batch-invariant."""
        first = [provider for provider in named if provider != NATIVE]
        others = [p for p, impl in self.impls.items() if impl.batch_invariant and p not in (*first, NATIVE)]
        return (*first, *others)

    def apply_arg_defaults(self, *args: object, **kwargs: object) -> tuple[tuple[object, ...], dict[str, object]]:
        """`(args, kwargs)` of a call with all arguments by position, defaults filled in; errors as for `bound`."""
        return tuple(self.bound(args, kwargs)), {}

    def _functional(self, *args: object) -> Tensor | tuple[Tensor, ...]:
        complete = self.complete(args)
        return unpacked(run_functional(self.select(complete)[0], complete))

    def _donating(self, *args: object) -> Tensor | tuple[Tensor, ...]:
        complete = self.complete(args)
        return unpacked(run_donating(self.select(complete)[0], complete))

    def _fake_call(self, *args: object) -> object:
        return self._fake(*args)

    # --- what implementations are tested with ------------------------------------------------------------------------

    def register_input_generator(self, fn: Callable[..., tuple[object, ...]]) -> Callable[..., tuple[object, ...]]:
        """Register the decorated function as the one that makes arguments; all its parameters have defaults."""
        return self.inputs.register(fn)

    @property
    def has_input_generator(self) -> bool:
        """Whether `generate_inputs` has a function to call."""
        return self.inputs.fn is not None

    def generate_inputs(self, **options: Any) -> tuple[object, ...]:  # Any: the options are the generator's own
        """Arguments of the op by position; RuntimeError if no generator is registered."""
        return self.inputs.generate(**options)

    def override_tolerance(self, dtype: torch.dtype, *, atol: float, rtol: float) -> None:
        """Set how far implementations' results of a dtype may be from the native definition's."""
        self._tolerances[dtype] = {"atol": atol, "rtol": rtol}

    def get_tolerance(self, dtype: torch.dtype, reduction_length: int = 0) -> dict[str, float]:
        """`{"atol": ..., "rtol": ...}` for results of a dtype that each sum `reduction_length` products.

        Raises:
            ValueError: there is no tolerance for the dtype.
        """
        own = self._tolerances.get(dtype)
        return tolerance(dtype, reduction_length) if own is None else dict(own)

    def undefine(self) -> None:
        """Take the op's overloads out of torch; for tests, through `unregister`."""
        self._overloads.undefine()


def _registered(name: str) -> IrOp:
    """The op of a name; what pickled ops become."""
    return IrOp.registry[name]


@torch.compiler.assume_constant_result  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]  # untyped in torch
def _constant_lists(op_name: str) -> tuple[tuple[int, int] | None, tuple[tuple[int, int | None, tuple[str, ...]], ...]]:
    """What decides which providers are asked, as constants in what Dynamo traces.

    That is the position and dimension of the size that counts, and `(first size, last size, providers)`, which may run
    in this process, are batch-invariant where that is asked for, and end at one that takes all arguments.
    """
    op = IrOp.registry[op_name]
    return op.constant_lists()
