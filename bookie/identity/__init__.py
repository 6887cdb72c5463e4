"""Who a bookie is: its cookie, its position at the metadata service, and the refusal of copies."""
