"""A format of lit that runs `vllm-ir-opt` in lit's worker, which loads PyTorch once and not for every command."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from lit.formats import ShTest
from lit.LitConfig import LitConfig
from lit.Test import FAIL, PASS, Result, Test
from lit.TestRunner import parseIntegratedTestScript

from vllm_ir.tools.filecheck_lint import run_commands

_SIMPLE = re.compile(
    r"(?P<fails>not )?vllm-ir-opt (?P<arguments>(?!.*--load)[^|<>%]*%s[^|<>%]*?)(?P<both> 2>&1)?"
    r" *\| *(?P<check>filecheck %s[^|<>]*)"
)
"""`[not] vllm-ir-opt ... [2>&1] | filecheck ...` on the test's own file. What a file with `--load` does would stay."""


class InProcess(ShTest):
    """Runs tests that consist of simple commands; others go the usual way."""

    def execute(self, test: Test, lit_config: LitConfig) -> Result:
        script = parseIntegratedTestScript(test)  # keeps what the test says it requires, and whether it is to fail
        path = test.getSourcePath()
        lines = [line for _, line in run_commands(Path(path).read_text())]
        commands = [match for line in lines if (match := _SIMPLE.fullmatch(line))]
        if isinstance(script, Result) or len(commands) < len(lines):
            return super().execute(test, lit_config)
        for command in commands:
            if problem := _run(command, path):
                return Result(FAIL, f"{command[0]}\n{problem}")
        return Result(PASS, "")


def _run(command: re.Match[str], path: str) -> str:
    """What is wrong with a command; nothing if its status and its output are as they should be."""
    from vllm_ir.tools.vllm_ir_opt import main

    arguments, check = (shlex.split(command[part].replace("%s", shlex.quote(path))) for part in ("arguments", "check"))
    output, errors = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(output if command["both"] else errors):
        status = main(arguments)
    if (status != 0) != bool(command["fails"]):
        return f"exit status {status}\n{output.getvalue()}{errors.getvalue()}"
    program = Path(sys.executable).with_name(check[0])
    found = subprocess.run([program, *check[1:]], input=output.getvalue(), capture_output=True, text=True)
    return "" if found.returncode == 0 else found.stdout + found.stderr
