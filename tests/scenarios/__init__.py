"""Transcripts of the pure protocols, one per rule, and what plays them."""
