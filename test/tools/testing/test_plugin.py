"""The conformance tests as kernel authors run them: pytest in a process of its own, with a `conftest.py` of theirs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ir.tools.testing.conformance import _selected
from vllm_ir.tools.testing.plugin import OP, PROVIDER

REGISTRATIONS = """
import torch
from torch import Tensor

import vllm_ir as ir


@ir.register_op
def plugin_halve(x: Tensor) -> Tensor:
    return x / 2


@plugin_halve.register_input_generator
def inputs(num_tokens: int = 4, hidden_size: int = 8, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    return (torch.randn(num_tokens, hidden_size).to(dtype),)


@plugin_halve.register_impl("right")
def right(x: Tensor) -> Tensor:
    return x * 0.5


@plugin_halve.register_impl("wrong")
def wrong(x: Tensor) -> Tensor:
    return x * 0.25


@plugin_halve.register_impl("elsewhere", supported=False)
def elsewhere(x: Tensor) -> Tensor:
    raise AssertionError("must not run")


@plugin_halve.register_impl("not_asked_for")
def not_asked_for(x: Tensor) -> Tensor:
    raise AssertionError("must not run")


@ir.register_op
def plugin_without_inputs(x: Tensor) -> Tensor:
    return x + 1


@ir.register_op
def plugin_refuses(x: Tensor) -> Tensor:
    raise ValueError("x is never right")


plugin_refuses.register_input_generator(lambda: (torch.ones(2),))
"""
PLUGIN = ("-p", "vllm_ir.tools.testing.plugin")
CONFORMANCE = "vllm_ir.tools.testing.conformance"


def test_wrong_implementations_fail_and_what_cannot_be_checked_is_skipped(tmp_path: Path) -> None:
    ops = ("plugin_halve", "plugin_without_inputs", "plugin_refuses")
    selected = [part for op in ops for part in ("--ir-op", op)]
    for provider in ("native", "right", "wrong", "elsewhere"):
        selected += ["--ir-provider", provider]
    (tmp_path / "conftest.py").write_text(REGISTRATIONS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *PLUGIN, "--pyargs", CONFORMANCE]
    done = subprocess.run([*command, *selected], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    outcomes = re.findall(r"^(PASSED|FAILED) .*test_implementation\[(.+?)\]", done.stdout, re.MULTILINE)
    assert sorted(outcomes) == [
        ("FAILED", "plugin_halve-wrong"),
        ("PASSED", "plugin_halve-native"),
        ("PASSED", "plugin_halve-right"),
    ]
    assert re.search(r"vllm_ir\.plugin_halve: provider 'wrong' \(.*conftest\.py:\d+\) is wrong:", done.stdout)
    assert "the result differs in" in done.stdout
    skipped = [line.split("vllm_ir.", 1)[1] for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert sorted(skipped) == [
        "plugin_halve: provider 'elsewhere' is not supported in this process",
        "plugin_refuses: the native definition refuses all generated arguments: ValueError: x is never right",
        "plugin_without_inputs: No input generator registered; use register_input_generator",
    ]


def test_names_that_are_not_registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = pytest.Config.fromdictargs({}, [*PLUGIN, "--ir-op", "rms_nrom", "--ir-provider", "zzz"])
    with pytest.raises(pytest.UsageError, match=r"--ir-op rms_nrom: not registered .*; did you mean 'rms_norm'"):
        _selected(config, OP, ["gelu", "rms_norm"])
    with pytest.raises(pytest.UsageError, match=r"--ir-provider zzz: not registered .*; there are native, cpu"):
        _selected(config, PROVIDER, ["native", "cpu"])


def test_everything_is_selected_without_the_plugin(request: pytest.FixtureRequest) -> None:
    assert _selected(request.config, OP, ["gelu", "rms_norm"]) == ["gelu", "rms_norm"]
