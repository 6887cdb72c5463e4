"""One storage node. It stores and returns entries and keeps fences, and answers UNKNOWN where it
cannot be certain.
"""
