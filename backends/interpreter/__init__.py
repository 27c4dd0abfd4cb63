"""Reference execution of modules of any level: small, slow, and meant to be obviously right."""
