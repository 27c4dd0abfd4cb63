"""Public interface of vllm_ir.

Everything is imported when it is first used, so that `import vllm_ir` is quick and loads neither PyTorch nor xDSL.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_ir import op
    from vllm_ir.backends.fx.export import export_fx
    from vllm_ir.backends.interpreter.interpret import interpret, interpret_ranks
    from vllm_ir.conversions.fusion import AnyString, Fusion, Numerics, using_fusions
    from vllm_ir.frontends.fx.importer import import_callable, import_exported, import_fx
    from vllm_ir.frontends.ops.device_kernels.kernel import device_kernel
    from vllm_ir.frontends.platforms import Platform, current_platform
    from vllm_ir.tools import neuron, testing
    from vllm_ir.tools.alias_outputs import alias_outputs
    from vllm_ir.tools.consistency import consistency_report
    from vllm_ir.tools.fusion_checks import check_fusions
    from vllm_ir.tools.fusion_explanation import explain_fusions
    from vllm_ir.tools.pipelines import run_passes
    from vllm_ir.tools.post_grad.post_grad_pass import PostGradPass
    from vllm_ir.tools.priority_arguments import PriorityArgumentParser
    from vllm_ir.tools.providers import (
        IrOp,
        IrOpImpl,
        IrOpPriorityConfig,
        KernelConfig,
        RegistrationError,
        SizeRanges,
        adopt,
        enable_torch_wrap,
        migration,
        ops,
        register_op,
        set_default_torch_wrap,
        statically_known,
        unregister,
    )
    from vllm_ir.tools.register_backend import register_backend
    from vllm_ir.tools.reports import clear_compile_reports, compile_reports
    from vllm_ir.tools.stablehlo import export_stablehlo
    from vllm_ir.tools.stand_in import stand_in_for
    from vllm_ir.tools.text import parse
    from vllm_ir.tools.validation.find_fault import bisect

__all__ = [
    "AnyString",
    "Fusion",
    "IrOp",
    "IrOpImpl",
    "IrOpPriorityConfig",
    "KernelConfig",
    "Numerics",
    "Platform",
    "PostGradPass",
    "PriorityArgumentParser",
    "RegistrationError",
    "SizeRanges",
    "adopt",
    "alias_outputs",
    "bisect",
    "check_fusions",
    "clear_compile_reports",
    "compile_reports",
    "consistency_report",
    "current_platform",
    "device_kernel",
    "enable_torch_wrap",
    "explain_fusions",
    "export_fx",
    "export_stablehlo",
    "import_callable",
    "import_exported",
    "import_fx",
    "interpret",
    "interpret_ranks",
    "migration",
    "neuron",
    "op",
    "ops",
    "parse",
    "register_backend",
    "register_op",
    "run_passes",
    "set_default_torch_wrap",
    "stand_in_for",
    "statically_known",
    "testing",
    "unregister",
    "using_fusions",
]

_HOMES: Mapping[str, str] = MappingProxyType(
    {
        "AnyString": "vllm_ir.conversions.fusion",
        "Fusion": "vllm_ir.conversions.fusion",
        "IrOp": "vllm_ir.tools.providers",
        "IrOpImpl": "vllm_ir.tools.providers",
        "IrOpPriorityConfig": "vllm_ir.tools.providers",
        "KernelConfig": "vllm_ir.tools.providers",
        "Numerics": "vllm_ir.conversions.fusion",
        "Platform": "vllm_ir.frontends.platforms",
        "PostGradPass": "vllm_ir.tools.post_grad.post_grad_pass",
        "PriorityArgumentParser": "vllm_ir.tools.priority_arguments",
        "RegistrationError": "vllm_ir.tools.providers",
        "SizeRanges": "vllm_ir.tools.providers",
        "adopt": "vllm_ir.tools.providers",
        "alias_outputs": "vllm_ir.tools.alias_outputs",
        "bisect": "vllm_ir.tools.validation.find_fault",
        "check_fusions": "vllm_ir.tools.fusion_checks",
        "clear_compile_reports": "vllm_ir.tools.reports",
        "compile_reports": "vllm_ir.tools.reports",
        "consistency_report": "vllm_ir.tools.consistency",
        "current_platform": "vllm_ir.frontends.platforms",
        "device_kernel": "vllm_ir.frontends.ops.device_kernels.kernel",
        "enable_torch_wrap": "vllm_ir.tools.providers",
        "explain_fusions": "vllm_ir.tools.fusion_explanation",
        "export_fx": "vllm_ir.backends.fx.export",
        "export_stablehlo": "vllm_ir.tools.stablehlo",
        "import_callable": "vllm_ir.frontends.fx.importer",
        "import_exported": "vllm_ir.frontends.fx.importer",
        "import_fx": "vllm_ir.frontends.fx.importer",
        "interpret": "vllm_ir.backends.interpreter.interpret",
        "interpret_ranks": "vllm_ir.backends.interpreter.interpret",
        "migration": "vllm_ir.tools.providers",
        "neuron": "vllm_ir.tools.neuron",
        "op": "vllm_ir.op",
        "ops": "vllm_ir.tools.providers",
        "parse": "vllm_ir.tools.text",
        "register_backend": "vllm_ir.tools.register_backend",
        "register_op": "vllm_ir.tools.providers",
        "run_passes": "vllm_ir.tools.pipelines",
        "set_default_torch_wrap": "vllm_ir.tools.providers",
        "stand_in_for": "vllm_ir.tools.stand_in",
        "statically_known": "vllm_ir.tools.providers",
        "testing": "vllm_ir.tools.testing",
        "unregister": "vllm_ir.tools.providers",
        "using_fusions": "vllm_ir.conversions.fusion",
    }
)

_MODULES = ("neuron", "op", "testing")
"""Names of modules; they are what is at home there themselves."""


if not TYPE_CHECKING:  # a type checker would let it stand for every misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = importlib.import_module(_HOMES[name])
        value = home if name in _MODULES else getattr(home, name)
        globals()[name] = value  # found there from now on, without coming here
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
