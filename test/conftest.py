"""Settings that every test shares. Imports no torch, so that tests of the dialects alone stay quick."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Where this is set, Inductor takes it for PyTorch's own CI and refuses operators that it otherwise compiles.
os.environ.pop("CI", None)

# The first example of a property pays for tracing or compiling, so that a deadline per example would be a timing
# assertion. The same examples each run: a failure in one run is a failure in the next.
settings.register_profile("vllm_ir", deadline=None, derandomize=True)
settings.load_profile("vllm_ir")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Drop what torch.compile has cached, so that no test runs code that another one compiled."""
    yield
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
