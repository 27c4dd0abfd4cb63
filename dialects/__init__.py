"""xDSL dialects: types, memory, views and operations."""
