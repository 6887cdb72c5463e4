"""Transcripts of the pure protocols, one or more for each rule, and their players."""
