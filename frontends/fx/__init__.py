"""FX graphs in and out: normalisation to ATen, schemas, types, and the import into the dialects."""
