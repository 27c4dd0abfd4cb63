"""Compilation of exported graphs by TorchInductor."""
