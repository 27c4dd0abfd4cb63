"""The function that makes arguments of an op, for tests and benchmarks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vllm_ir.frontends.ops.signature import RegistrationError, location_of

Generator = Callable[..., tuple[object, ...]]


class InputGenerator:
    """At most one function for each op."""

    def __init__(self, op_name: str) -> None:
        """None yet."""
        self._described = f"vllm_ir.{op_name}"
        self.fn: Generator | None = None

    def register(self, fn: Generator) -> Generator:
        """Keep a function.

        Raises:
            RegistrationError: there is one already, or a parameter has no default.
        """
        if self.fn is not None:
            raise RegistrationError(
                f"{self._described}: two input generators, at {location_of(self.fn)} and at {location_of(fn)}"
            )
        required = [p.name for p in inspect.signature(fn).parameters.values() if p.default is inspect.Parameter.empty]
        if required:
            raise RegistrationError(
                f"{self._described}: parameters {required} of the input generator ({location_of(fn)}) need defaults"
            )
        self.fn = fn
        return fn

    def generate(self, **options: Any) -> tuple[object, ...]:  # Any: the options are the function's own
        """Call the function.

        Raises:
            RuntimeError: there is none.
            TypeError: an option is not one of its parameters, or it gave no tuple.
        """
        if self.fn is None:
            raise RuntimeError(f"{self._described}: No input generator registered; use register_input_generator")
        arguments = self.fn(**options)
        if not isinstance(arguments, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]  # a function of the user
            raise TypeError(f"{self._described}: the input generator must return a tuple, got {arguments!r}")
        return arguments
