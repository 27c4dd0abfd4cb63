"""Reference evaluation of StableHLO with numpy: what the specification says, one operation at a time."""
