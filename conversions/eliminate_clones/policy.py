"""What a backend allows: which updates may take an in-place form, and which final writes belong to the graph."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from vllm_ir.conversions.analysis.aliases import Storage
from vllm_ir.conversions.eliminate_clones.updates import Update
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.frontends.fx.torch_objects import Overload


class Policy:
    """Everything that is proven right is allowed: for graphs that run operator by operator."""

    def allows(self, update: Update, storage: Storage, views: Sequence[Overload]) -> bool:
        """Whether an update may write in place, to a window that `views` make of the root of `storage`."""
        return True

    def hoists(self, update: Update) -> bool:
        """Whether other operations may be moved in front of an update, to have read what it overwrites."""
        return True

    def drops(self, write: WriteOp) -> bool:
        """Whether a final write may be left out because its value is in its place already."""
        return True

    def leaves(self, op: Operation) -> bool:
        """Whether an operation stays as it is, whatever it updates."""
        return False
