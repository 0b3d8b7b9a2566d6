"""What each message does: one file for a kind of them."""
