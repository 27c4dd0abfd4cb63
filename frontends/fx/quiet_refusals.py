"""Tracing where it is an answer that an operator does not take its operands."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident

_logger = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def quiet_refusals() -> Generator[None]:
    """Inside the `with` block, operators of this thread that refuse tensors without data are not logged as errors."""
    thread = get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    _logger.addFilter(is_of_others)
    try:
        yield
    finally:
        _logger.removeFilter(is_of_others)
