"""The protocol's decisions: synchronous, pure, driven by events, performed by the shells above."""
