"""The vendor's passes. What is imported here is imported whenever somebody looks for a pass: no PyTorch, no pass."""

from xdsl.passes import ModulePass
from xdsl.universe import Universe


def _fuse_add_norm() -> type[ModulePass]:
    from example_vendor.fuse_add_norm import FuseAddNormPass

    return FuseAddNormPass


EXAMPLE_UNIVERSE = Universe(all_passes={"example-fuse-add-norm": _fuse_add_norm})
