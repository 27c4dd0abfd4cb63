"""`--ir-op-priority.<op>=a,b` for any command line that argparse reads.

It loads neither PyTorch nor the ops, so that a tool can print its help at once.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

PREFIX = "--ir-op-priority."
"""What options that choose providers begin with; the name of the op follows."""


class PriorityArgumentParser(argparse.ArgumentParser):
    """An ArgumentParser that understands `--ir-op-priority.<op>=a,b` and `--ir-op-priority.<op> a,b`.

    What was given is in the namespace as `ir_op_priority`, `{op: (provider, ...)}`; the last option for an op counts.
    `IrOpPriorityConfig(**namespace.ir_op_priority)` makes a configuration of it, and
    `torch.compile(options={"ir_op_priority": ...})` takes it as it is.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: argparse's own parameters
        """Like argparse's."""
        super().__init__(*args, **kwargs)
        self.add_argument(
            f"{PREFIX}OP",
            metavar="PROVIDER,...",
            help="providers of the operation vllm_ir.OP, first choice first; once for each operation",
        )

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # argparse's overloads cannot be restated
        """Like argparse's, for options that choose providers as well."""
        rest, priorities = self._take_priorities(sys.argv[1:] if args is None else args)
        namespace, unknown = super().parse_known_args(rest, namespace)
        namespace.ir_op_priority = priorities
        return namespace, unknown

    def _take_priorities(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
        rest: list[str] = []
        priorities: dict[str, tuple[str, ...]] = {}
        remaining = iter(arguments)
        for argument in remaining:
            if not argument.startswith(PREFIX):
                rest.append(argument)
                continue
            option, separator, value = argument.partition("=")
            if not separator:
                value = next(remaining, "")
            op, providers = option.removeprefix(PREFIX), tuple(value.split(","))
            if not op or not all(providers):
                self.error(f"{option} {value!r}: write {PREFIX}OP=PROVIDER,PROVIDER")
            priorities[op] = providers
        return rest, priorities


__all__ = ["PREFIX", "PriorityArgumentParser"]
