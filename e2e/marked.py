"""The secrets of an end-to-end run, each with a mark: made up, issued, and those that Airflow itself gives away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loanauth_sandbox.accounts import Company, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.server import Sandbox

#: Made up, each with a mark, and with characters that are written otherwise in URLs, JSON and HTML.
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
BY_EXTRA = "E2E-secret-given-to-conn-extra-mark"
BY_JSON = "E2E-secret-given-to-conn-json-mark"
BY_URI = "E2E-secret-given-to-conn-uri-mark"

#: What Airflow gives away, by version: (secret, place, why). ``docs/security.md`` names each with the way around it.
COMMAND_LINE = [
    (f"secret given to {option}", place, "the audit log keeps the command line")
    for option in ("--conn-extra", "--conn-json", "--conn-uri")
    for place in ("database: log.", "database file: ", "REST: /eventLogs")
]
CONSOLE = ("secret given to --conn-uri", "logs: airflow-", "the command prints the URI that it has added")
PRINTED = "print_the_secret: API secret"
#: Where the scheduler's output repeats what tasks print; of JSON web tokens it shows the beginning alone.
REPEATS_PRINTS = ("3.2", "3.3")
#: That the search can find: the id of a DAG stands in every kind of place, raw.
CONTROL = "print_the_secret"
GIVEN_AWAY = {
    "2.11": [*COMMAND_LINE, CONSOLE],
    "3.1": [*COMMAND_LINE, CONSOLE],
    "3.2": [
        *COMMAND_LINE,
        CONSOLE,
        (PRINTED, "logs: airflow-3.2-standalone.log", "what tasks print reaches the scheduler's output"),
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
        # Its name hides it where fields are stored and shown, and not here.
        ("price_by_name: access", "logs: airflow-3.0-standalone.log", "the scheduler's output repeats rendered fields"),
    ],
    "3.3": [
        *COMMAND_LINE,
        (PRINTED, "logs: airflow-3.3-standalone.log", "what tasks print reaches the scheduler's output"),
    ],
}

MARKED = {
    "password": USER.password,
    "client secret": COMPANY.client_secret,
    "LOS client secret": COMPANY.los_client_secret,
    "API key": COMPANY.api_key,
    "client pair": f"{COMPANY.client_id}:{COMPANY.client_secret}",
    "wrong password": WRONG_PASSWORD,
    "secret given to --conn-extra": BY_EXTRA,
    "secret given to --conn-json": BY_JSON,
    "secret given to --conn-uri": BY_URI,
}


@dataclass
class Recorder:
    """Remembers everything that the sandbox issues, by what was going on."""

    doing: str = "start"
    issued: dict[str, str] = field(default_factory=dict)

    def listen(self, sandbox: Sandbox) -> None:
        """Stand between the sandbox and its issuer."""
        issuer: Any = sandbox.state.issuer
        issuer.token = self._remembering(issuer.token, {"access_token": "access", "refresh_token": "refresh"})
        issuer.secret = self._remembering(issuer.secret, {"secret": "API secret"})

    def _remembering(
        self, issue: Callable[..., dict[str, Any]], names: dict[str, str]
    ) -> Callable[..., dict[str, Any]]:
        def issue_and_remember(*args: Any, **kwargs: Any) -> dict[str, Any]:
            answer = issue(*args, **kwargs)
            for key, name in names.items():
                self.issued[f"{self.doing}: {name} {len(self.issued)}"] = answer[key]
            return answer

        return issue_and_remember
