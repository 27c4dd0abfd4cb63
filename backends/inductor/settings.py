"""Inductor's configuration while it compiles for us."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager

from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_custom_graph_passes

_ROUNDING = "emulate_precision_casts"
_ROUNDING_VARIABLE = "TORCHINDUCTOR_EMULATE_PRECISION_CASTS"
_LAST_HOOK = "post_grad_custom_post_pass"


def effective_patches(patches: Mapping[str, object]) -> dict[str, object]:
    """The caller's configuration patches and what else has to be set for eager's results.

    Fused kernels round to bfloat16 and float16 between two operators only under `emulate_precision_casts`. A caller who
    sets it in `patches` or by the environment variable keeps that value. False in `torch._inductor.config` cannot be
    told from the default: leaving any `config.patch` assigns the value that was there before.
    """
    chosen = _ROUNDING in patches or _ROUNDING_VARIABLE in os.environ
    return dict(patches) if chosen else {**patches, _ROUNDING: True}


def patched(patches: Mapping[str, object]) -> AbstractContextManager[None]:
    """A context manager that puts configuration patches in force, in this thread."""
    return config.patch(dict(patches))


def with_last_passes(*passes: CustomGraphPass) -> AbstractContextManager[None]:
    """A context manager that runs `passes` behind the custom passes after gradients that are configured already."""
    return config.patch({_LAST_HOOK: [*get_custom_graph_passes(getattr(config, _LAST_HOOK)), *passes]})
