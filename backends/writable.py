"""Cache directories that cannot be written: what is made then goes into a temporary directory of this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

_ROOM = 1 << 16
"""Bytes that have to fit."""


def unwritable_reason(directory: Path) -> str | None:
    """Why nothing can be written into a directory, which is made if need be; None if something can."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_ROOM))
            file.flush()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


@cache
def temporary_directory(instead_of: Path, reason: str) -> Path:
    """A directory for this process in the place of a cache directory, of which a warning tells, once."""
    directory = Path(tempfile.mkdtemp(prefix="vllm_ir_"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    warnings.warn(
        f"vllm_ir: the cache directory {instead_of} cannot be written: {reason}; what is compiled goes into "
        f"{directory} and is lost when this process ends",
        RuntimeWarning,
        stacklevel=2,
    )
    return directory
