"""The cost of pricing loans from one task."""

from __future__ import annotations

from benchmarks.measurement import LOAN, Sandbox, interleaved, table, timed


def row_loans(options):
    import requests
    from airflow.providers.http.hooks.http import HttpHook

    from airflow_provider_loanauth.credentials import AccessToken
    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    texts = []
    for kind in ("plain", "TLS"):
        with Sandbox(*(["--tls"] if kind == "TLS" else [])) as sandbox:
            token = LoanAuthHook("loanauth_jwt").get_credential()
            header = {"Authorization": f"Bearer {token.value}"}

            def with_loan_auth(sandbox=sandbox, token=token):
                # As pulled from XCom: sealed. The first request opens it.
                pulled = AccessToken.deserialize(token.serialize(), AccessToken.__version__)
                with LoanAuthHook("loanauth_jwt").get_conn(pulled) as session:
                    for _ in range(options.loans):
                        session.post(sandbox.price, json=LOAN).json()

            def bare(sandbox=sandbox, header=header):
                with requests.Session() as session:
                    session.verify = sandbox.ca or True
                    for _ in range(options.loans):
                        session.post(sandbox.price, json=LOAN, headers=header, timeout=30).json()

            def one_http_hook(header=header):
                hook = HttpHook(http_conn_id="pricing")
                for _ in range(options.loans // 5):
                    hook.run("/sandbox/price", headers=header, json=LOAN).json()

            def http_hook_each(header=header):
                for _ in range(options.loans // 5):
                    HttpHook(http_conn_id="pricing").run("/sandbox/price", headers=header, json=LOAN).json()

            peers = {"HttpHook.run per loan, one hook": one_http_hook, "HttpHook().run per loan": http_hook_each}
            functions = {"bare keep-alive requests": bare, "hook.get_conn with LoanAuth": with_loan_auth} | peers
            medians = interleaved(options.rounds, functions)
            # These price a fifth of the loans, because each takes long and the same time.
            medians |= {name: [5 * value for value in medians[name]] for name in peers}
        head = ["what", "wall", "ratio", "CPU", "ratio"]
        texts.append(f"{kind}:\n\n" + table(head, timed(medians, "bare keep-alive requests")))
    return (
        f"{options.loans:,} priced loans from one task (HttpHook: measured with a fifth of them, times five)",
        "\n\n".join(texts),
    )
