"""memoryctl: the person's way to the daemon. It imports none of the daemon's libraries."""
