"""Makes a credential with other metadata. It is sealed: with an attribute set, the value would count as altered."""


def resealed(credential, **changes):
    """Return the same secret, sealed with other metadata. It is not masked in logs, as opening it would."""
    names = ("method", "conn_id", "issued_at", "expires_at", "task")
    metadata = {name: getattr(credential, name) for name in names} | changes
    return type(credential).seal(credential._open(), **metadata)
