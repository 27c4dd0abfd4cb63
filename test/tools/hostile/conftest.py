"""`vllm-ir-opt` on what should not be given to it."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from vllm_ir.tools.vllm_ir_opt import main

CANARY = "vllm_ir_test_canary"
Refused = Callable[..., str]


@pytest.fixture(name="refused")
def refused_input(tmp_path: Path) -> Refused:
    """Runs the tool on a text or on arguments, which it must refuse: one line with a place, status 1, no output."""

    def refused(text: str | None, *arguments: object, place: bool = True) -> str:
        paths = []
        if text is not None:
            paths = [tmp_path / "input.mlir"]
            paths[0].write_text(text, encoding="utf-8", errors="surrogatepass")
        written, errors = StringIO(), StringIO()
        with redirect_stdout(written), redirect_stderr(errors):
            status = main([str(argument) for argument in (*paths, *arguments)])
        line = errors.getvalue()
        assert (status, written.getvalue()) == (1, ""), line
        assert line.count("\n") == 1, line
        assert len(line) < 10_000
        assert "internal error" not in line, line
        if place:
            assert re.match(r"\S+:\d+:\d+: error: \S", line), line
        return line.replace(f"{tmp_path}/", "").removesuffix("\n")

    return refused


@pytest.fixture(name="accepted")
def accepted_input(tmp_path: Path) -> Refused:
    """Runs the tool on a text or on arguments that it must take; returns its output."""

    def accepted(text: str | None, *arguments: object) -> str:
        paths = []
        if text is not None:
            paths = [tmp_path / "input.mlir"]
            paths[0].write_text(text, encoding="utf-8")
        written, errors = StringIO(), StringIO()
        with redirect_stdout(written), redirect_stderr(errors):
            status = main([str(argument) for argument in (*paths, *arguments)])
        assert (status, errors.getvalue()) == (0, "")
        return written.getvalue()

    return accepted


@pytest.fixture(name="canary")
def executed_text() -> Iterator[list[object]]:
    """What has called the function `vllm_ir_test_canary`, which every Python code can name; it has to stay empty."""
    calls: list[object] = []
    setattr(builtins, CANARY, lambda *arguments: calls.append(arguments))
    yield calls
    delattr(builtins, CANARY)
    assert calls == []
