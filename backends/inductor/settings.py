"""Inductor's configuration while it compiles for us."""

import os
from collections.abc import Mapping

_ROUNDING = "emulate_precision_casts"
_ROUNDING_VARIABLE = "TORCHINDUCTOR_EMULATE_PRECISION_CASTS"


def effective_patches(patches: Mapping[str, object]) -> dict[str, object]:
    """The caller's configuration patches and what else has to be set for eager's results.

    Fused kernels round to bfloat16 and float16 between two operators only under `emulate_precision_casts`. A caller who
    sets it in `patches` or by the environment variable keeps that value. False in `torch._inductor.config` cannot be
    told from the default: leaving any `config.patch` assigns the value that was there before.
    """
    chosen = _ROUNDING in patches or _ROUNDING_VARIABLE in os.environ
    return dict(patches) if chosen else {**patches, _ROUNDING: True}
