"""Where Inductor keeps what it compiles."""

from __future__ import annotations

import os
from pathlib import Path

from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from vllm_ir.backends.writable import temporary_directory, unwritable_reason

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def use_writable_cache() -> None:
    """Point Inductor to a temporary directory, with a warning, if it cannot write into its cache."""
    directory = _directory()
    if (reason := unwritable_reason(directory)) is not None:
        os.environ[_VARIABLE] = str(temporary_directory(directory, reason))


def own_directory() -> Path | None:
    """Where what we keep beside Inductor's artifacts goes; None if its cache is switched off."""
    if config.force_disable_caches or not config.fx_graph_cache:
        return None
    return _directory() / "vllm_ir"


def _directory() -> Path:
    return Path(os.environ.get(_VARIABLE) or default_cache_dir()).absolute()
