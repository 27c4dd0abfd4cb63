"""Collectives: which ranks take part, as the whole program sees it."""
