"""Ways to fork a session, behind the port `ForkBackend`, and the choice among them."""
