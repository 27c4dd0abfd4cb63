"""From PyTorch programs to IR: capture, import, op registry and tracing."""
