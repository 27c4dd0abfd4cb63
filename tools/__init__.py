"""Command-line tool, torch.compile entry points, pipelines and reports."""
