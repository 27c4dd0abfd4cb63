"""What Inductor's cache of compiled graphs has to know beside the graph."""

from __future__ import annotations

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass


class CacheKey(CustomGraphPass):
    """A pass that does nothing; artifacts that are compiled with it are found again only under the same key.

    Inductor's own key has the graph, its configuration and PyTorch's version, and the `uuid` of each custom pass.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, graph: fx.Graph) -> None:
        """Leave the graph alone."""

    def uuid(self) -> object:
        """The key."""
        return "vllm_ir", self.key


__all__ = ["CacheKey"]
