"""What these tests share, as a fixture: folders of tests are not packages, so that files cannot import each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_NAME = "vllm_ir_inductor_hook_harness"


@pytest.fixture(scope="session")
def hook() -> ModuleType:
    """`hook_harness.py`: graphs that write, put in place of functional ones at Inductor's last custom pass."""
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("hook_harness.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_NAME])
    return sys.modules[_NAME]
