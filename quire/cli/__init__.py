"""The `quire` command: one module per noun, each imported only when its noun is given."""
