"""Where in the user's program an FX node comes from."""

import functools
import os
import re
import sysconfig
import traceback

import torch
from torch import fx

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_SITE_PACKAGES = sysconfig.get_path("purelib") + os.sep
_THIS_PACKAGE = os.path.dirname(__file__) + os.sep
# A call of a registered op goes through the registry's own frames.
_REGISTRY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "ops") + os.sep


def user_location(node: fx.Node) -> tuple[str, int] | None:
    """The file and line of the innermost user frame that `node` was traced from; `None` if it was not recorded.

    Frames inside torch (`torch/nn/modules/linear.py`) and the standard library are skipped if there are others.
    """
    trace = node.meta.get("stack_trace")
    return parse_location(trace) if isinstance(trace, str) else None


@functools.lru_cache(maxsize=16384)
def parse_location(stack_trace: str) -> tuple[str, int] | None:
    """The last frame in a user's file of a formatted Python traceback; the last of all if there is none."""
    frames: list[tuple[str, str]] = _FRAME.findall(stack_trace)
    for file, line in reversed(frames):
        if is_user_file(file):
            return file, int(line)
    return (frames[-1][0], int(frames[-1][1])) if frames else None


def running_line(ignored: str = "") -> tuple[str, int] | None:
    """File and line of the innermost frame that is in a user's file now; the file `ignored` is none."""
    for frame, line in traceback.walk_stack(None):
        file = frame.f_code.co_filename
        if file != ignored and is_user_file(file):
            return file, line
    return None


@functools.lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """Whether a source file is part of the program being traced, rather than of what traces it."""
    if file.startswith((_TORCH, _THIS_PACKAGE, _REGISTRY, "<")):
        return False
    return file.startswith(_SITE_PACKAGES) or not file.startswith(_STANDARD_LIBRARY)
