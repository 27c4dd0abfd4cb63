"""What passes emit can be evaluated."""

import ast
from pathlib import Path

from xdsl.dialects import func
from xdsl.ir import Operation

import vllm_ir.dialects.stablehlo as dialect
from vllm_ir.backends.interpreter.stablehlo.evaluate import EVALUATORS, STEPPERS

ROOT = Path(__file__).parents[4]
FOLDERS = ("conversions", "backends", "tools")
TERMINATORS = {dialect.ReturnOp, func.ReturnOp}


def operations(source: str) -> set[type[Operation]]:
    """The operations of StableHLO that a file names, as `stablehlo.AddOp` or by import."""
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    found = [getattr(dialect, name, None) for name in names]
    return {entry for entry in found if isinstance(entry, type) and issubclass(entry, Operation)}


def emitted() -> set[type[Operation]]:
    """Operations of StableHLO that passes name: those that they make, and a few that they only look at."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    own = ROOT / "backends/interpreter"
    sources = [file.read_text(encoding="utf-8") for file in files if own not in file.parents]
    return {op for source in sources if "stablehlo" in source for op in operations(source)}


def test_all_that_is_emitted_is_evaluated() -> None:
    found = emitted()
    assert {dialect.AddOp, dialect.SortOp, dialect.WhileOp, dialect.DynamicUpdateSliceOp} < found
    assert found - TERMINATORS - set(EVALUATORS) - set(STEPPERS) == set()


def test_all_of_the_dialect_but_tokens_is_evaluated() -> None:
    known = {op.name for op in (*EVALUATORS, *STEPPERS)}
    assert {op.name for op in dialect.StableHlo.operations} - known == {"stablehlo.return", "stablehlo.after_all"}


def test_a_table_entry_is_not_hidden_by_another() -> None:
    assert not set(EVALUATORS) & set(STEPPERS)
    names = [op.name for op in (*EVALUATORS, *STEPPERS)]
    assert len(names) == len(set(names))
