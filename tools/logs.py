"""The logger `vllm_ir`: its level, and where its messages go where the program has set up no logging."""

import logging
import os

VARIABLE = "VLLM_LOGGING_LEVEL"
"""The environment variable with the level, as for vLLM: a name of `logging`, such as DEBUG."""


def set_up_logging() -> None:
    """Give the logger the level that the environment asks for; a level that the program has set stays.

    Raises:
        ValueError: the environment names no level.
    """
    wanted = os.environ.get(VARIABLE, "").strip().upper()
    logger = logging.getLogger("vllm_ir")
    if not wanted or logger.level != logging.NOTSET:
        return
    levels = logging.getLevelNamesMapping()
    if wanted not in levels:
        raise ValueError(f"{VARIABLE}: expected one of {', '.join(sorted(levels))}, got {os.environ[VARIABLE]!r}")
    logger.setLevel(levels[wanted])
    _print_messages(logger)


def show_progress() -> None:
    """Let messages of level INFO out, to stderr unless the program has set up logging."""
    logger = logging.getLogger("vllm_ir")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    _print_messages(logger)


def _print_messages(logger: logging.Logger) -> None:
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
