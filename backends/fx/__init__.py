"""Modules of the IR to FX graphs."""
