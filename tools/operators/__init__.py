"""Sweeps over PyTorch's own database of operators, and the pages that they write."""
