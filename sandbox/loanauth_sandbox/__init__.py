"""The sandbox: a stand-in of the loan pricing service, run as a program of its own.

What may live in this package: everything that the stand-in needs. What may not: an import of the client. The
two share no parser and no table, so that they cannot be wrong together; both are held to the interface,
``service-interface.md``, whose clauses (§) the docstrings name.

Run it with ``python -m loanauth_sandbox``, or inside a test with
:func:`loanauth_sandbox.server.running_sandbox`.
"""

__version__ = "0.1.0"
