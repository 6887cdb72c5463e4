"""One real cluster on which every capability is used once."""
