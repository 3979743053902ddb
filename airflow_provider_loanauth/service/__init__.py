"""One authentication: the wire protocol, the client, the transport, errors and retries."""
