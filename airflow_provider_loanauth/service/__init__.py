"""One authentication: the client, the protocol, the transport, errors and telemetry."""
