"""One ledger in the console: what its page shows.

Leaves requests to `quire.console.pages`, and SVG to `quire.console.drawings`.

- `held_entries`: entries that each bookie lists.
- `parts`: consecutive entries with the same copies.
- `zones`: how safe the entries are, in ranges and in a sentence. Pure.
- `fragment_cells`: each bookie in each fragment. Pure.
- `safety_view`: drawings and tables about the copies. Pure.
- `timeline`: what happened to a ledger. Pure.
- `entry_reading`: reads of entries, without a fence.
- `payloads`: payloads as text. Pure.
"""
