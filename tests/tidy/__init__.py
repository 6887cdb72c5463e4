"""What the linters cannot say about this repository, said as tests."""
