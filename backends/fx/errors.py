"""Errors of the export: each names the operation that it is about."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import OperationVerifyError, operation_text
from vllm_ir.frontends.fx.errors import FxImportError


class OperatorError(VerifyException):
    """An operator does not take the arguments that a call gives it."""


@contextmanager
def located(op: Operation) -> Generator[None]:
    """Errors inside are about `op`."""
    try:
        yield
    except OperationVerifyError:
        raise
    except VerifyException as error:
        raise OperationVerifyError(op, f"{operation_text(op)}: {error}") from error
    except FxImportError as error:
        raise OperationVerifyError(op, f"{operation_text(op)}: {error.reason}") from error
