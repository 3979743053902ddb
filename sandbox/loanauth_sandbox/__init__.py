"""A local stand-in for the loan pricing service, which runs as a separate program or inside a test.

It shares no code with ``airflow-provider-loanauth``, so that a mistake in one cannot be hidden by the same mistake in
the other. Both follow the interface of the service, ``service-interface.md``; docstrings cite its clauses (§).

Run it with ``loanauth-sandbox``, or inside a test with :func:`loanauth_sandbox.server.running_sandbox`.
"""

__version__ = "0.1.0.dev0"
