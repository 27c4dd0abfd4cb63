"""What these tests share, as a fixture: folders of tests are not packages, so that files cannot import each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_NAME = "vllm_ir_kernels_agreement"


@pytest.fixture(scope="session")
def agreement() -> ModuleType:
    """`agreement.py`: comparing implementations with native definitions."""
    spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("agreement.py"))
    assert spec is not None
    assert spec.loader is not None
    # Dataclasses look their module up by name.
    sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[_NAME])
    return sys.modules[_NAME]
