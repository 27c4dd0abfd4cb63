"""Passes from IR to IR and the analyses they rest on."""
