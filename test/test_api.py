"""The public names: lazy, complete, and visible to tools."""

import subprocess
import sys

import pytest

import vllm_ir


def test_importing_the_package_loads_nothing():
    code = "import vllm_ir, sys; assert not {'torch', 'xdsl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_text_loads_no_torch():
    code = "import vllm_ir, sys; vllm_ir.parse('\"test.op\"() : () -> ()'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_listed_before_they_are_used():
    assert set(vllm_ir.__all__) <= set(dir(vllm_ir))
    assert list(vllm_ir.__all__) == sorted(vllm_ir.__all__)


@pytest.mark.parametrize("name", vllm_ir.__all__)
def test_every_name_is_there(name: str):
    assert getattr(vllm_ir, name) is getattr(vllm_ir, name)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'vllm_ir' has no attribute 'nope'"):
        _ = vllm_ir.nope
