"""Shells of recovery: fence, read the end, write back, close."""
