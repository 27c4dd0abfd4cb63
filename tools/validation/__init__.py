"""Translation validation: what a module does before and behind each pass, on generated inputs, compared."""
