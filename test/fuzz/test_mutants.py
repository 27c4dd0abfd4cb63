"""Bugs that are planted in our own passes are found."""

import pytest

from vllm_ir.tools.fuzz.mutants.__main__ import detect
from vllm_ir.tools.fuzz.mutants.mutant import MovedError, Mutant
from vllm_ir.tools.fuzz.mutants.table import FAST, MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_the_code_that_a_mutant_changes_is_there(name: str):
    MUTANTS[name].check()


def test_a_mutant_whose_code_has_moved_says_so():
    mutant = Mutant("moved", "vllm_ir.tools.fuzz.settings", "no such text", "")
    with pytest.raises(MovedError, match=r"^mutant moved: vllm_ir.tools.fuzz.settings has 'no such text' 0 times$"):
        mutant.check()


@pytest.mark.parametrize("name", FAST)
def test_fast_mutants_are_found(name: str):
    assert detect(MUTANTS[name], limit=100) is not None
