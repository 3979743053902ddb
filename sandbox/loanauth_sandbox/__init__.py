"""A stand-in for the loan pricing service, which runs as a program of its own or inside a test.

It shares no code with ``airflow-provider-loanauth``, so that the two cannot be wrong in the same way. Both follow the
interface of the service, ``service-interface.md``; docstrings cite its clauses (§).

Run it with ``loanauth-sandbox``, or inside a test with :func:`loanauth_sandbox.server.running_sandbox`.
"""

__version__ = "0.1.0"
