"""Who logs in, when, and for whom. The strictest requirement is that a rejected password is sent once."""
