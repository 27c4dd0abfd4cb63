"""`vllm-ir-opt` as a process: what it loads, its inputs and targets, and that an error leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from vllm_ir.tools.inputs import load_module
from vllm_ir.tools.vllm_ir_opt import main

TOOL = Path(sys.executable).parent / "vllm-ir-opt"
NORM = """\
vllm_ir.func @main(%x: tensor<4x8xbf16>) -> (tensor<4x8xbf16>) {
  %r = vllm_ir.rms_norm %x : tensor<4x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>
  vllm_ir.return %r : tensor<4x8xbf16>
}
"""
PROGRAM = """\
import torch

SCALE = 2


def step(x, y):
    x.add_(y)
    return x[0] * SCALE


def resizes(x, y):
    return x.resize_(9)


def fails(x, y):
    raise RuntimeError("not\\ntoday")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, y):
        return x * self.weight + y


model = Model().requires_grad_(False)


def example_inputs():
    return torch.zeros(2, 4), torch.ones(2, 4)
"""


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, output and errors of the tool; in this process, which has PyTorch loaded already."""
    written, errors = StringIO(), StringIO()
    with redirect_stdout(written), redirect_stderr(errors):
        status = main([str(argument) for argument in arguments])
    return status, written.getvalue(), errors.getvalue()


def run_process(*arguments: object, **environment: str) -> tuple[int, str, str]:
    """The same of a process of its own, as a user starts it."""
    command = [TOOL, *map(str, arguments)]
    result = subprocess.run(
        command, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout, result.stderr


def output(*arguments: object) -> str:
    status, written, errors = run(*arguments)
    assert (status, errors) == (0, "")
    return written


def error(*arguments: object, of=run) -> str:
    """The error line of a run that must fail: one line, exit status 1, no output."""
    status, written, errors = of(*arguments)
    assert (status, written) == (1, "")
    assert errors.count("\n") == 1, errors
    return errors.removesuffix("\n")


@pytest.fixture(name="program")
def program_file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


# What is loaded


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["norm.mlir"], ["norm.mlir", "-p", "cse,canonicalize"], ["-p", "nope"]]
)
def test_torch_stays_out_where_nothing_needs_it(arguments: list[str], tmp_path: Path):
    (tmp_path / "norm.mlir").write_text(NORM)
    code = (
        "import sys; sys.modules['torch'] = None\n"  # importing it is an error now
        "from vllm_ir.tools.vllm_ir_opt import main\n"
        f"sys.exit(main({arguments!r}))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "import of torch" not in result.stderr
    assert result.returncode == (1 if "nope" in arguments else 0), result.stderr


def test_only_the_passes_that_are_asked_for_are_loaded():
    code = (
        "import sys; from vllm_ir.tools.vllm_ir_opt import main\n"
        "loaded = [name for name in sys.modules if name.startswith(('xdsl.transforms.', 'vllm_ir.conversions'))]\n"
        "assert loaded == [], loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_names_passes_pipelines_and_options():
    status, text, errors = run_process("--help")
    assert (status, errors) == (0, "")
    for word in ("functionalize", "vllm-ir-functional", "mlir, fx", "--ir-op-priority.OP", "file.py:callable"):
        assert word in re.sub(r"-\n +", "-", text)  # lines are broken at hyphens


# Inputs


def test_function_of_a_python_file(program: Path):
    text = output(f"{program}:step")
    assert "torch.call @aten.add_.Tensor(%x, %y, alpha = 1) reads(%x) writes(%x)" in text
    assert output(write(program.parent / "step.mlir", text)) == text


def test_module_of_a_python_file(program: Path):
    assert 'vllm_ir.resource = "weight"' in output(f"{program}:model")


def test_a_python_file_may_import_its_neighbours(program: Path, tmp_path: Path):
    program.rename(tmp_path / "neighbour.py")
    path = write(tmp_path / "importer.py", "from neighbour import example_inputs, step as other")
    assert "@aten.add_.Tensor" in output(f"{path}:other")


def test_exported_program(program: Path, tmp_path: Path):
    source = load_module(str(program))
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(source.model, source.example_inputs()), path)
    assert 'vllm_ir.resource = "weight"' in output(path)


def test_the_fx_target_is_python_code(program: Path):
    code = output(f"{program}:step", "-t", "fx")
    assert "torch.ops.aten.add_.Tensor(x, y" in code
    compile(code, "graph", "exec")


def test_named_pipelines_mix_with_passes(program: Path):
    text = output(f"{program}:step", "-p", "vllm-ir-functional,dce")
    assert "vllm_ir.func functional @main" in text
    assert output(f"{program}:step", "-p", "functionalize,dce") == text


# Errors


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04"], ids=["empty", "text", "truncated"])
def test_a_file_that_is_no_exported_program(content: bytes, tmp_path: Path):
    path = write(tmp_path / "model.pt2", content)
    assert error(path, of=run_process if content else run).startswith(
        f"{path}: error: not a program saved by torch.export.save: "
    )


def test_a_missing_exported_program(tmp_path: Path):
    assert error(tmp_path / "model.pt2") == f"{tmp_path}/model.pt2: error: no such file or directory"


def test_errors_of_imports_name_the_line(program: Path):
    line = PROGRAM.splitlines().index("    return x.resize_(9)") + 1
    message = error(f"{program}:resizes")
    assert message.startswith(f"{program}:{line}: error: cannot import node `resize_`: ")


def test_errors_of_the_program_name_the_line(program: Path):
    line = PROGRAM.splitlines().index('    raise RuntimeError("not\\ntoday")') + 1
    assert error(f"{program}:fails").startswith(f"{program}:{line}: error: ")


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ("def example_inputs(): return ()", "f", "{}: error: f is not defined"),
        ("f = 3", "f", "{}: error: f is a int, not a function or module"),
        ("def f(): pass", "f", "{}: error: example_inputs is not defined"),
        ("def f(): pass\ndef example_inputs(): return 3", "f", "{}: error: example_inputs() returns a int, a tuple is"),
        ("def f(): pass\ndef example_inputs(): return 1 / 0", "f", "{}:2: error: example_inputs() raises ZeroDivision"),
        ("x = 1\nraise ValueError('why')", "f", "{}:2: error: ValueError: why"),
        ("import nowhere", "f", "{}:1: error: ModuleNotFoundError: No module named 'nowhere'"),
        ("open('nowhere')", "f", "{}:1: error: FileNotFoundError: "),
        ("x = (", "f", "{}:1:5: error: '(' was never closed"),
    ],
)
def test_python_files_without_what_is_needed(source: str, name: str, expected: str, tmp_path: Path):
    path = write(tmp_path / "program.py", source)
    assert error(f"{path}:{name}").startswith(expected.format(path))


def test_binary_input_is_no_text(tmp_path: Path):
    path = write(tmp_path / "a.mlir", b"\xff\xfe")
    assert error(path) == f"{path}: error: not a text file: byte 0 is not UTF-8"


def test_a_string_that_is_not_closed(tmp_path: Path):
    path = write(tmp_path / "a.mlir", 'torch.call @ns.op("' + "a" * 5000)
    assert error(path).startswith(f"{path}:1:19: error: ")


def test_text_may_not_claim_other_effects_than_the_operator_has(tmp_path: Path):
    path = write(
        tmp_path / "a.mlir",
        "vllm_ir.func @main(%x: tensor<4xf32>) {\n"
        "  torch.call @aten.zero_.default(%x) : (tensor<4xf32>) -> ()\n"
        "  vllm_ir.return none\n}",
    )
    assert "zero_" in output(path)
    for options in (["-p", "functionalize"], ["-t", "fx"]):
        message = error(path, *options)
        assert message.startswith(str(path))
        assert "@aten.zero_.default writes" in message


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--ir-op-priority.nope=native", "--ir-op-priority.nope: there is no op 'nope'; known are "),
        ("--ir-op-priority.rms_norm=nope", "vllm_ir.rms_norm: no implementation by 'nope'; known providers: "),
        ("--ir-op-priority.rms_norm=native,native", "vllm_ir.rms_norm: priority names 'native' more than once"),
    ],
)
def test_unknown_priorities(option: str, expected: str, tmp_path: Path):
    path = write(tmp_path / "a.mlir", NORM)
    assert error(path, option).startswith(f"vllm-ir-opt: error: {expected}")


def test_an_error_leaves_the_output_file_as_it_was(tmp_path: Path):
    path = write(tmp_path / "a.mlir", NORM + "// -----\nbroken")
    kept = write(tmp_path / "out.mlir", "before")
    error(path, "--split-input-file", "-o", kept)
    assert kept.read_text() == "before"
    error(path, "--split-input-file", "-o", tmp_path / "new.mlir")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.mlir", "out.mlir"}


def test_the_output_file_is_written_whole(tmp_path: Path):
    path = write(tmp_path / "a.mlir", NORM)
    kept = write(tmp_path / "out.mlir", "before")
    kept.chmod(0o640)
    assert output(path, "-o", kept) == ""
    assert kept.read_text() == output(path)
    assert kept.stat().st_mode & 0o777 == 0o640
    assert error(path, "-o", tmp_path / "no" / "out.mlir").endswith("/no/out.mlir: error: no such file or directory")


def test_the_input_may_be_the_output(tmp_path: Path):
    path = write(tmp_path / "a.mlir", NORM)
    expected = output(path)
    assert output(path, "-o", path) == ""
    assert path.read_text() == expected


@pytest.mark.parametrize("by", ["option", "environment"])
def test_tracebacks_on_request(by: str, tmp_path: Path):
    path = write(tmp_path / "a.mlir", "broken")
    status, _, errors = run(path, "--debug") if by == "option" else run_process(path, VLLM_IR_DEBUG="1")
    assert status == 1
    assert errors.startswith("Traceback")
    assert errors.splitlines()[-1].startswith(f"{path}:1:7: error: Operation broken is not registered")


def test_operators_of_a_loaded_file_are_known(tmp_path: Path):
    write(
        tmp_path / "mine.py",
        "import vllm_ir as ir\nfrom torch import Tensor\n\n"
        "@ir.register_op\ndef twice(x: Tensor) -> Tensor:\n    return x * 2\n",
    )
    path = write(
        tmp_path / "a.mlir",
        "vllm_ir.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>) {\n"
        '  %y = "vllm_ir.twice"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "  vllm_ir.return %y : tensor<4xf32>\n}",
    )
    assert error(path).endswith(":2:23: error: Operation vllm_ir.twice is not registered")
    assert '"vllm_ir.twice"(%x)' in output(path, "--load", tmp_path / "mine.py")
