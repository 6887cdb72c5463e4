"""Protocol decisions: synchronous, pure, driven by events. The shells above perform them."""
