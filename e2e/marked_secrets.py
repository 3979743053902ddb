"""The secrets of an end-to-end run, made up or issued by the sandbox, and the known leaks of Airflow itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loanauth_sandbox.accounts import Company, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.server import Sandbox

#: Made-up secrets. Each one ends with a mark, and contains characters that are escaped in URLs, JSON and HTML.
USER = User(
    username="pat@e2e.example", password="E2E-password-ü/%2B?#&+-mark", user_id="e2e-user-1", email="pat@e2e.example"
)
COMPANY = Company(
    company_id="e2e-company-1",
    origin="https://e2e.example",
    client_id="e2e-client",
    client_secret="E2E-client-secret-é/%+:?-mark",
    los_client_id="e2e-los-client",
    los_client_secret="E2E-los-secret-✓&=/-mark",
    api_key="E2E-api-key-ß/+%2F-mark",
    users=(USER,),
)
WRONG_PASSWORD = "E2E-wrong-password-ø&<>-mark"
CONN_EXTRA_SECRET = "E2E-secret-given-to-conn-extra-mark"
CONN_JSON_SECRET = "E2E-secret-given-to-conn-json-mark"
CONN_URI_SECRET = "E2E-secret-given-to-conn-uri-mark"

#: Leaks of Airflow itself: (secret, place, reason). ``docs/security.md`` lists each with a workaround.
COMMAND_LINE = [
    (f"secret given to {option}", place, "the audit log stores the command line")
    for option in ("--conn-extra", "--conn-json", "--conn-uri")
    for place in ("database: log.", "database file: ", "REST: /eventLogs")
]
CONSOLE = ("secret given to --conn-uri", "logs: airflow-", "the command prints the URI that it has added")
PRINTED = "print_the_secret: API secret"
#: Versions with a scheduler that repeats the output of tasks. It shows only the beginning of a JSON web token.
ECHOES_TASK_OUTPUT = ("3.2", "3.3")
#: A text that the search must find in every kind of place: the id of a DAG. It shows that the search works.
CONTROL = "print_the_secret"
KNOWN_LEAKS = {
    "2.11": [*COMMAND_LINE, CONSOLE],
    "3.1": [*COMMAND_LINE, CONSOLE],
    "3.2": [
        *COMMAND_LINE,
        CONSOLE,
        (PRINTED, "logs: airflow-3.2-standalone.log", "the scheduler repeats the output of tasks"),
    ],
    "3.0": [
        *COMMAND_LINE,
        CONSOLE,
        *(
            (secret, place, "rendered fields are not masked")
            for secret, dag_id in (("price_by_template: access", "price_by_template"), (PRINTED, "print_the_secret"))
            for place in (
                "database: rendered_task_instance_fields.",
                "database file: ",
                f"REST: /dags/{dag_id}/",
                "logs: airflow-3.0-standalone.log",
            )
        ),
        # Because of the variable's name, Airflow masks it where rendered fields are stored and shown, but not here.
        ("price_by_name: access", "logs: airflow-3.0-standalone.log", "the scheduler repeats rendered fields"),
    ],
    "3.3": [
        *COMMAND_LINE,
        (PRINTED, "logs: airflow-3.3-standalone.log", "the scheduler repeats the output of tasks"),
    ],
}

MARKED_SECRETS = {
    "password": USER.password,
    "client secret": COMPANY.client_secret,
    "LOS client secret": COMPANY.los_client_secret,
    "API key": COMPANY.api_key,
    "client pair": f"{COMPANY.client_id}:{COMPANY.client_secret}",
    "wrong password": WRONG_PASSWORD,
    "secret given to --conn-extra": CONN_EXTRA_SECRET,
    "secret given to --conn-json": CONN_JSON_SECRET,
    "secret given to --conn-uri": CONN_URI_SECRET,
}


@dataclass
class Recorder:
    """Records every secret that the sandbox issues."""

    step: str = "start"
    issued: dict[str, str] = field(default_factory=dict)
    #: When each token or API secret was issued, in seconds since the epoch.
    issued_at: list[float] = field(default_factory=list)

    def attach(self, sandbox: Sandbox) -> None:
        """Wrap the methods of the sandbox that issue secrets."""
        issuer: Any = sandbox.state.issuer
        issuer.token = self._recording(issuer.token, {"access_token": "access", "refresh_token": "refresh"})
        issuer.secret = self._recording(issuer.secret, {"secret": "API secret"})

    def _recording(self, issue: Callable[..., dict[str, Any]], names: dict[str, str]) -> Callable[..., dict[str, Any]]:
        def issue_and_record(*args: Any, **kwargs: Any) -> dict[str, Any]:
            response = issue(*args, **kwargs)
            self.issued_at.append(time.time())
            for key, name in names.items():
                self.issued[f"{self.step}: {name} {len(self.issued)}"] = response[key]
            return response

        return issue_and_record
