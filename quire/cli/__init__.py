"""The `quire` command: one module per noun, each read only when its noun is given."""
