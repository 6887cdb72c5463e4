"""One storage node: stores and returns entries, keeps fences, and never answers more than it is
sure of.
"""
