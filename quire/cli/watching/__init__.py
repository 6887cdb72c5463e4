"""`quire top`, and `quire cluster report`.

- `top`: `quire top`: its arguments.
- `top_view`: its readings, and what it prints.
- `report`: `quire cluster report`.
"""
