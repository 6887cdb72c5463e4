"""Identity of a bookie: its cookie, its position node, and the refusal of copies."""
