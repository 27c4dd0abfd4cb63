"""`in-place-to-out-of-place`: the graph without writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import fx
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.fx.export import export_fx
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.importer import MAIN, import_fx
from vllm_ir.tools.neuron.graphs import Result
from vllm_ir.tools.pipelines import run_passes


def make_functional(gm: fx.GraphModule, example_inputs: Sequence[object] | None = None) -> Result:
    """The graph on values: nothing in it writes, and what `gm` writes to its inputs are outputs.

    Outputs are a flat list: those of `gm`, then the inputs that it mutates and that no output is, in their order.
    Copied onto their inputs, by `io_map`, they leave the memory that `gm` leaves.

    Metadata: `io_map` and `original_output_count`, as for `ir.alias_outputs`; `inplace`: how many calls wrote memory,
    by operator; `views`: how many views became values.

    Raises:
        FxImportError: the graph cannot be imported.
        PassFailedException: a write has no form on values.
    """
    module = import_fx(gm, example_inputs)
    writes: Counter[str] = Counter()
    views = 0
    for op in module.walk():
        if isinstance(op, CallOp) and op.writes is not None:
            writes[op.target] += 1
        views += op.name == "vllm_ir.view"
    run_passes(module, "alias-outputs,functionalize", check=False)
    main = _main(module)
    functional = export_fx(module, like=gm)
    functional.meta.update(gm.meta)
    return functional, {
        "io_map": main.io_map,
        "original_output_count": main.original_output_count,
        "inplace": dict(writes),
        "views": views,
    }


def _main(module: ModuleOp) -> FuncOp:
    return next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == MAIN)
