"""The cost of sealing and opening a credential."""

from __future__ import annotations

import os
import time

from benchmarks.measurement import interleaved, table, timed


def row_seal(options):
    import secrets

    import pendulum
    from cryptography.fernet import Fernet

    from airflow_provider_loanauth.credentials import AccessToken

    token = ".".join(secrets.token_urlsafe(size) for size in (60, 580, 256))
    now = pendulum.now("UTC")
    common = {"method": "jwt", "conn_id": "made-up", "issued_at": now, "expires_at": now}
    fernet = Fernet(os.environ["AIRFLOW__CORE__FERNET_KEY"])

    def bare():
        for _ in range(200):
            fernet.decrypt(fernet.encrypt(token.encode())).decode()

    def sealed():
        for _ in range(200):
            AccessToken.seal(token, **common)._open()

    def through_xcom():
        for _ in range(200):
            AccessToken.deserialize(AccessToken.seal(token, **common).serialize(), 1)._open()

    medians = interleaved(
        options.rounds * 5, {"bare Fernet": bare, "seal and open": sealed, "seal, store in XCom and open": through_xcom}
    )
    per_one = {name: [value / 200 * 1e3 for value in pair] for name, pair in medians.items()}
    opening = []
    for _ in range(5):
        credential = AccessToken.seal(secrets.token_urlsafe(900), **common)
        wall = time.perf_counter()
        assert credential.value
        opening.append((time.perf_counter() - wall) * 1e3)
    note = (
        f"`.value` also makes Airflow mask the token in this task's logs, once per credential: "
        f"{opening[0]:.1f} ms for the first, {opening[-1]:.1f} ms for the fifth of a process, nearly all of it in "
        "Airflow's masker, which compiles a new pattern of all known secrets."
    )
    head = ["what", "wall", "ratio", "CPU", "ratio"]
    return "Seal and open a 1.2 KB token", table(head, timed(per_one, "bare Fernet", "µs")) + "\n\n" + note
