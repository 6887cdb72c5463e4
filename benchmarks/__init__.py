"""One script per question about speed and memory; each prints JSON lines (see README.md here)."""
