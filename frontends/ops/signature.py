"""What a Python function has to look like to be an op, an implementation or a predicate of one; and names."""

import inspect
import os
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType

from torch import FunctionSchema

from vllm_ir.frontends.ops.torch_internals import infer_schema, parse_schema

Fn = Callable[..., object]
_NAME = re.compile(r"[a-z_][a-z_0-9]*")
_FOLDER = str(Path(__file__).parent) + os.sep
_TENSOR_TYPES = ("Tensor", "Optional[Tensor]")


class RegistrationError(ValueError, AssertionError):
    """A registration that the registry refuses.

    A ValueError; an AssertionError as well, because that is what programs written against vLLM's registry catch.
    """


def location_of(fn: Callable[..., object]) -> str:
    """The `file:line` at which a Python function was written, or its `repr` when it has no code object.

    Of a function that wraps another (`__wrapped__`), it is the other one's.
    """
    fn = inspect.unwrap(fn)
    if isinstance(fn, FunctionType):
        return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
    return repr(fn)


def registration_stack() -> traceback.StackSummary:
    """Who is registering something: the stack without the registry's own frames."""
    frames = traceback.extract_stack()
    while frames and frames[-1].filename.startswith(_FOLDER):
        frames.pop()
    return frames


def check_name(kind: str, name: str, fn: Fn) -> None:
    """Refuse names of ops and providers that are not lower-case identifiers.

    Raises:
        RegistrationError: the name does not match `[a-z_][a-z_0-9]*`.
    """
    if not _NAME.fullmatch(name):
        raise RegistrationError(f"{kind} name {name!r} ({location_of(fn)}) is invalid: it must match {_NAME.pattern}")


def schema_of(fn: Fn, described: str, written: Sequence[str] = ()) -> str:
    """Parameters and results of a Python function as text of a torch schema, with `written` marked as mutable.

    Raises:
        RegistrationError: it is not a Python function, or an annotation is missing or has no counterpart in a schema,
            or a result is not a tensor; the message begins with `described`.
    """
    if not isinstance(fn, FunctionType):
        raise RegistrationError(f"{described}: expected a Python function with annotations, got {fn!r}")
    place = f"{described} ({location_of(fn)})"
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise RegistrationError(
                f"{place}: parameter {parameter.name!r} is one of the keyword-only arguments, which an op cannot have; "
                "remove the '*' before it"
            )
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise RegistrationError(f"{place}: parameter {parameter.name!r} must be an ordinary positional one")
    try:
        text = infer_schema(fn, written)
    except ValueError as error:
        # torch lists every type it knows in one very long line.
        fact = str(error).removeprefix("infer_schema(func): ").split(" The valid types are")[0].split(" Got func")[0]
        raise RegistrationError(f"{place}: {fact}") from error
    returns = parse_schema(f"op{text}").returns
    if not returns or any(str(result.type) != "Tensor" for result in returns):
        raise RegistrationError(f"{place}: results must be a Tensor or a tuple of Tensors, got {text}")
    return text


def activations_of(schema: FunctionSchema, op_name: str, named: Sequence[str] | None) -> tuple[str, ...]:
    """The tensor parameters that are activations: those named, else those whose names start with `x`.

    Raises:
        RegistrationError: one is named that is not a tensor parameter, or a string stands for the list.
    """
    tensors = [argument.name for argument in schema.arguments if str(argument.type) in _TENSOR_TYPES]
    if named is None:
        return tuple(name for name in tensors if name.startswith("x"))
    return _some_of(tensors, named, f"vllm_ir.{op_name}: activations", "tensor parameters")


def written_by(activations: Sequence[str], inplace: bool | Sequence[str], described: str) -> tuple[str, ...]:
    """The activations that an implementation writes: all, none, or those named.

    Raises:
        RegistrationError: there is no activation to write, or one is named that is none.
    """
    if isinstance(inplace, bool):
        if inplace and not activations:
            raise RegistrationError(f"{described} cannot be in place: the op has no activations")
        return tuple(activations) if inplace else ()
    return _some_of(activations, inplace, f"{described}: inplace", "activations")


def reuses_of(
    schema: FunctionSchema, op_name: str, activations: Sequence[str], reuses: Sequence[str | None] | None
) -> tuple[str | None, ...]:
    """For each result the activation whose memory it may take; one to one, in order, where nothing is declared.

    Raises:
        RegistrationError: the list has another length than the results, or names what is no activation.
    """
    count = len(schema.returns)
    if reuses is None:
        return tuple(activations[index] if index < len(activations) else None for index in range(count))
    described = f"vllm_ir.{op_name}: reuses"
    if isinstance(reuses, str) or len(reuses) != count:
        raise RegistrationError(f"{described} must be a list with an entry for each of {count} results, got {reuses!r}")
    _some_of(activations, [name for name in reuses if name is not None], described, "activations")
    return tuple(reuses)


def _some_of(known: Sequence[str], named: Sequence[str], described: str, kind: str) -> tuple[str, ...]:
    if isinstance(named, str):
        raise RegistrationError(f"{described} must be a list of parameter names, got the string {named!r}")
    unknown = [name for name in named if name not in known]
    if unknown:
        raise RegistrationError(f"{described} {unknown} are not {kind}; those are {list(known)}")
    # In the order of the parameters, whatever order they were named in.
    return tuple(name for name in known if name in named)


def check_predicate(predicate: object, native: Fn, described: str) -> None:
    """Refuse a `supports_args` that does not take an op's arguments by position, under the same names and defaults.

    A leading underscore may mark a parameter that it does not use, and a default may be left out: the op fills it in.

    Raises:
        RegistrationError: it is not callable, or a parameter is not the native definition's.
    """
    if not callable(predicate):
        raise RegistrationError(f"{described}: supports_args must be a callable, got {predicate!r}")
    parameters = list(inspect.signature(predicate).parameters.values())
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    place = f"{described}: supports_args ({location_of(predicate)})"
    keyword_only = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if keyword_only:
        raise RegistrationError(f"{place} has keyword-only parameters {keyword_only}; arguments come by position")
    natives = list(inspect.signature(native).parameters.values())
    if len(parameters) != len(natives):
        raise RegistrationError(
            f"{place}: the number of parameters is {len(parameters)}, the native definition has {len(natives)}"
        )
    for index, (given, own) in enumerate(zip(parameters, natives, strict=True)):
        if given.name.lstrip("_") != own.name.lstrip("_"):
            raise RegistrationError(
                f"{place}: parameter {index} is {given.name!r}, which does not match native parameter {own.name!r}"
            )
        if given.default is not inspect.Parameter.empty and given.default != own.default:
            raise RegistrationError(
                f"{place}: the default of {given.name!r} is {given.default!r}, which does not match native default "
                f"{_default_text(own)}"
            )


def _default_text(parameter: inspect.Parameter) -> str:
    return "(none)" if parameter.default is inspect.Parameter.empty else repr(parameter.default)


__all__ = [
    "RegistrationError",
    "activations_of",
    "check_name",
    "check_predicate",
    "location_of",
    "registration_stack",
    "reuses_of",
    "schema_of",
    "written_by",
]
