"""Shells of recovery: fence, find the end, write back, close."""
