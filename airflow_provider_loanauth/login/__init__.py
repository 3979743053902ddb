"""Who logs in, when, and for whom. First of all, a rejected password is sent once; the rest would do with less.

Nothing in this package knows of pricing requests (``auth/``) or of the wire (``service/``).
"""
