"""Options of the conformance tests, for `pytest -p vllm_ir.tools.testing.plugin`.

It is no `pytest11` entry point: pytest would load it in every run of the environment, and would compile all modules of
the distribution with rewritten assertions, which changes the hashes of kernels that are written in Python.
"""

import pytest

OP = "--ir-op"
PROVIDER = "--ir-provider"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ir-op` and `--ir-provider`, both of which may be repeated."""
    group = parser.getgroup("vllm_ir", "conformance of implementations of ops")
    group.addoption(OP, action="append", default=[], metavar="NAME", help="check this op only (repeatable)")
    group.addoption(PROVIDER, action="append", default=[], metavar="NAME", help="check this provider only (repeatable)")
