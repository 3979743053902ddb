"""The secrets of end-to-end runs, made up or issued by the sandbox, and the known leaks of Airflow itself."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2e.audit import KnownLeak
from loanauth_sandbox.accounts import Company, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from loanauth_sandbox.server import Sandbox

#: Made-up secrets. Each one ends with a mark, and contains characters that are escaped in URLs, JSON and HTML.
USER = User(username="pat@e2e.example", password="E2E-password-ü/%2B?#&+-mark", user_id="e2e-user-1")
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
CHANGED_PASSWORD = "E2E-changed-password-å/%2B&-mark"
#: The secrets given to ``airflow connections add``, by option.
GIVEN = {option: f"E2E-secret-given-to{option}-mark" for option in ("--conn-extra", "--conn-json", "--conn-uri")}

PRINTED = "print_the_secret: API secret"
IN_CONF = "trigger_with_token: access"
#: A text that the search must find in every kind of place: the id of a DAG. It shows that the search works.
CONTROL = "print_the_secret"

MARKED_SECRETS = {
    "password": USER.password,
    "client secret": COMPANY.client_secret,
    "LOS client secret": COMPANY.los_client_secret,
    "API key": COMPANY.api_key,
    "client pair": f"{COMPANY.client_id}:{COMPANY.client_secret}",
    "wrong password": WRONG_PASSWORD,
    **{f"secret given to {option}": secret for option, secret in GIVEN.items()},
}
#: What the form requires for Authen JWT besides username and password, by field.
JWT_FIELDS = {"origin": COMPANY.origin, "client_id": COMPANY.client_id, "client_secret": COMPANY.client_secret}


def jwt_connection(url: str, *, extra: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return the Connection for Authen JWT, as the REST API expects it."""
    return {
        "connection_id": "loanauth_jwt",
        "conn_type": "loanauth",
        "host": url,
        "login": USER.username,
        "password": USER.password,
        "extra": json.dumps({"method": "jwt", **JWT_FIELDS, **extra}),
        **changed,
    }


def known_leaks(version: str) -> list[KnownLeak]:
    """Return the leaks of Airflow itself. ``docs/security.md`` lists each with a workaround."""
    stored = ("home: airflow.db", "REST: /dags/")
    output = f"logs: airflow-{version}-standalone.log"
    dags_test = f"logs: airflow-{version}-dags-test.log"
    leaks = [
        (f"secret given to {option}", place, "the audit log stores the command line")
        for option in GIVEN
        for place in ("database: log.", "home: airflow.db", "REST: /eventLogs")
    ]
    leaks.append((PRINTED, dags_test, "the command prints what tasks print"))
    leaks += [(IN_CONF, place, "conf is not masked") for place in ("database: dag_run.conf", *stored)]
    if version != "3.3":
        console = f"logs: airflow-{version}-connections-add.log"
        leaks.append(("secret given to --conn-uri", console, "the command prints the URI that it has added"))
    if version in ("3.2", "3.3"):
        # It shows only the beginning of a JSON web token.
        leaks.append((PRINTED, output, "the scheduler repeats the output of tasks"))
    if version == "3.0":
        leaks += [(secret, dags_test, "the command prints the values to mask") for secret in ("password", "API key")]
        leaks += [
            (secret, place, "rendered fields are not masked")
            for secret in ("price_by_template: access", PRINTED, IN_CONF)
            for place in ("database: rendered_task_instance_fields.", *stored, output)
        ]
        # Because of the variable's name, Airflow masks it where rendered fields are stored and shown, but not here.
        leaks.append(("price_by_name: access", output, "the scheduler repeats rendered fields"))
    return [KnownLeak(*leak) for leak in leaks]


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
