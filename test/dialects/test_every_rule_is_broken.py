"""Every rule of the dialects' verifiers has a test that breaks it and gets its message.

Rules are the places that raise `VerifyException` or `OperationVerifyError`; those of the parser are the calls of
`raise_error`. The texts that break them are in the lit tests called `*_invalid.mlir`; each chunk of these has to be
refused, with the message that is written above it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

from vllm_ir import dialects
from vllm_ir.tools.pipelines import check_effects
from vllm_ir.tools.text import TextParser, text_context

TEST_ROOT = Path(__file__).parent
SOURCE = Path(dialects.__path__[0])
FRONTEND = SOURCE.parent / "frontends" / "fx"
FRONTEND_TESTS = TEST_ROOT.parent / "frontends"
FILES = [*sorted(SOURCE.rglob("*.py")), FRONTEND / "result_types.py", FRONTEND / "checks.py"]
RAISED = {"VerifyException", "OperationVerifyError"}
CHECK = re.compile(r"^// (?:CHECK|PARSE)(?:-NEXT)?: (.*)$", re.MULTILINE)

UNREACHABLE = {
    (
        "order.py",
        "_message(op, index)",
    ): "the parser turns it into an error at the operation, see function_invalid.mlir",
    ("checks.py", "not a tensor"): "operands are tensors by their definitions",
    ("outputs.py", "outputs are not a flat tuple"): "the count of the outputs is verified first",
    ("outputs.py", "takes the buffer"): "what gives the buffer stands in front",
    ("types.py", "is neither a tensor nor a buffer"): "operands are one of them by their definitions",
    ("types.py", "element type {dtype} is not a dtype"): "the types of a function are verified first",
    ("types.py", "size of dimension"): "the syntax has no negative sizes",
    ("expressions.py", "nests more than"): "see test_sizes_that_are_no_expressions",
    ("expressions.py", "has {len(text)} characters"): "see test_sizes_that_are_no_expressions",
    ("syntax.py", "not valid UTF-8"): "our parser reads strings itself; this is for xdsl-opt",
}
"""Rules that no short text breaks, and why. They are for modules that Python code builds, if nothing else is said."""


def _rules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each rule in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        call = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in RAISED or (name == "raise_error" and isinstance(node, ast.Expr)):
            yield node.lineno, " ".join(ast.unparse(call).split())


def _chunks() -> Iterator[tuple[Path, str]]:
    for path in sorted([*TEST_ROOT.rglob("*invalid.mlir"), *FRONTEND_TESTS.rglob("*invalid.mlir")]):
        for chunk in path.read_text(encoding="utf-8").split("// -----\n"):
            yield path, chunk


def _refusal(text: str) -> str:
    """The message with which a text is refused; empty if it is not."""
    try:
        module = TextParser(text_context(), text, "input.mlir").parse_text()
        module.verify()
        check_effects(module)
    except (ParseError, VerifyException) as error:
        return f"{error}"
    return ""


@pytest.fixture(name="raised", scope="module")
def raised_lines() -> set[tuple[str, int]]:
    """File and line of everything that was raised in the sources while the invalid texts were read."""
    files = {str(path): str(path) for path in FILES}
    found: set[tuple[str, int]] = set()

    def in_call(frame: FrameType, event: str, _: object):
        return in_line if _file(frame.f_code) in files else None

    def in_line(frame: FrameType, event: str, _: object):
        if event == "exception":
            found.add((_file(frame.f_code), frame.f_lineno))
        return in_line

    before = sys.gettrace()
    sys.settrace(in_call)
    try:
        for _, chunk in _chunks():
            _refusal(chunk)
    finally:
        sys.settrace(before)
    return found


def _file(code: CodeType) -> str:
    return code.co_filename


@pytest.mark.parametrize("path", [path for path in FILES if list(_rules(path))], ids=lambda path: str(path.name))
def test_every_rule_has_a_text_that_breaks_it(raised: set[tuple[str, int]], path: Path):
    lines = {line for file, line in raised if file == str(path)}
    missing = []
    for line, text in _rules(path):
        spared = any(name == path.name and part in text for name, part in UNREACHABLE)
        if line not in lines and not spared:
            missing.append(f"{path.name}:{line}: {text}")
    assert missing == [], "\n".join(missing)


@pytest.mark.parametrize("path", sorted({path for path, _ in _chunks()}), ids=lambda path: path.stem)
def test_every_invalid_text_is_refused(path: Path):
    for other, chunk in _chunks():
        messages = CHECK.findall(chunk)
        # Where the printed function is expected, the chunk shows what a rule does not refuse.
        if other == path and messages and "vllm_ir.func" not in messages[0]:
            assert _refusal(chunk), chunk
