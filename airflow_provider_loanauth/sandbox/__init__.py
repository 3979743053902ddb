"""The sandbox: a stand-in of the loan pricing service, run as a program of its own.

What may live in this package: everything that the stand-in needs. What may not: an import of the client. The
two share no parser and no table, so that they cannot be wrong together; both are held to the interface,
``service-interface.md``, whose clauses (§) the docstrings name.

Run it with ``python -m airflow_provider_loanauth.sandbox``, or inside a test with
:func:`airflow_provider_loanauth.sandbox.server.running_sandbox`.
"""
