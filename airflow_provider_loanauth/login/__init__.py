"""Who logs in, when, and for whom: one login for all, and no rejected password again."""
