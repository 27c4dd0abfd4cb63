"""The lint for lit tests: finds planted mistakes, accepts every directive that filecheck knows, and passes test/."""

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ir.tools.filecheck_lint import lint_text, main, run_commands

RUN = "// RUN: vllm-ir-opt %s -p functionalize | filecheck %s\n"
OK = "// CHECK: func.func\n"


def test_the_projects_own_lit_tests_are_clean(capsys: pytest.CaptureFixture[str]):
    status = main([str(Path(__file__).parent)])
    assert capsys.readouterr().out == ""
    assert status == 0


@pytest.mark.parametrize(
    "line",
    [
        "// CHECK-NXT: return",
        "// CHECK-NEXT return",
        "// CHECK_NEXT: return",
        "// CHECKNEXT: return",
        "// CHECK-COUNT: return",
        "// CHECK-COUNT-x: return",
        "// CHECK-next: return",
        "// CHECK : return",
        "// CHEK: return",
        "// Check: return",
        "// check-next: return",
        "// BUFFER: return",
        "// BUFFER-CHECK: return",
        "# CHECK-NTO: return",
        "return // CHECK-NXT: return",
        "// CHECK-DAG-NEXT: return",
        "// CHECK-NEXT{literal}: return",
    ],
)
def test_a_line_that_only_looks_like_a_directive_is_found(line: str):
    problems = lint_text(RUN + OK + line + "\n")
    assert [problem.line for problem in problems] == [3]
    assert "is not a directive" in problems[0].message


@pytest.mark.parametrize("suffix", ["", "-NEXT", "-SAME", "-NOT", "-DAG", "-LABEL", "-EMPTY", "-COUNT-12"])
@pytest.mark.parametrize("literal", ["", "{LITERAL}"])
def test_every_directive_of_filecheck_is_accepted(suffix: str, literal: str):
    assert lint_text(f"{RUN}// CHECK{suffix}{literal}: x\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "// The checks below are about order: reads come first.",
        "// NOTE: order matters",
        "// REQUIRES: nothing",
        "#map = affine_map<(d0) -> (d0)>",
        '%0 = "a.b"() {url = "HTTP://x"} : () -> i32',
        "// checks nothing",
        "// CHECKSUM of the constants",
        "// expected-error@+1: no such buffer",
    ],
)
def test_prose_and_other_keywords_are_left_alone(line: str):
    assert lint_text(RUN + OK + line + "\n") == []


def test_prefixes_come_from_the_run_lines():
    text = (
        "// RUN: vllm-ir-opt %s | filecheck %s --check-prefix=PURE\n"
        "// RUN: vllm-ir-opt %s -p lower \\\n"
        "// RUN:   | filecheck %s --check-prefixes LOWER,BOTH\n"
        "// PURE: a\n// LOWER-NEXT: b\n// BOTH-NOT: c\n"
    )
    assert lint_text(text) == []
    problems = lint_text(text + "// CHECK: d\n")
    assert [problem.line for problem in problems] == [7]


def test_a_prefix_without_a_directive_is_found_at_its_run_line():
    problems = lint_text(OK + RUN + "// RUN: vllm-ir-opt %s | filecheck %s --check-prefix=NEVER\n")
    assert [(problem.line, problem.message) for problem in problems] == [(3, "no directive has the prefix NEVER")]


def test_a_file_must_run_something_and_check_it():
    assert [problem.message for problem in lint_text(OK)] == ["no RUN line"]
    assert len(lint_text("// RUN: vllm-ir-opt %s\n")) == 1
    assert lint_text("// RUN: not vllm-ir-opt %s\n") == []
    assert lint_text("// RUN: vllm-ir-opt %s --verify-diagnostics\n") == []
    assert lint_text("// RUN: vllm-ir-opt %s > %t\n// RUN: vllm-ir-opt %t | diff %t -\n") == []


def test_continued_run_lines_are_one_command():
    assert run_commands("// RUN: a \\\n// RUN: | b\n// RUN: c\n") == [(1, "a  | b"), (3, "c")]


def test_filecheck_itself_ignores_what_the_lint_finds(tmp_path: Path):
    """The reason for the lint; once filecheck refuses such a line, the lint can go."""
    checks = tmp_path / "checks.mlir"
    checks.write_text("// CHECK: one\n// CHECK-NXT: never printed\n")
    run = subprocess.run([sys.executable, "-m", "filecheck", str(checks)], input="one\ntwo\n", text=True, check=False)
    assert run.returncode == 0


def test_the_command_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "nested" / "broken.mlir"
    broken.parent.mkdir()
    broken.write_text(RUN + OK + "// CHECK-NXT: x\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{broken}:3: `CHECK-NXT: x` is not a directive")
