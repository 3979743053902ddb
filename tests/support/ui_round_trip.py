"""Add, view and edit a Connection as the web page of this Airflow does: ``python -m tests.support.ui_round_trip FILE``.

The file has the ``fields`` of a Connection and the ``changes``. Prints forms, responses and what is stored, as JSON.
"""

import html
import json
import os
import re
import sys
from pathlib import Path

STANDARD = ("description", "host", "login", "password", "schema", "port")
CONN_ID = "from_the_page"


def connection():
    from airflow.models import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.query(Connection).filter_by(conn_id=CONN_ID).one()


def stored():
    conn = connection()
    return {"extra": json.loads(conn.extra)} | {name: getattr(conn, name) for name in STANDARD}


def read_by_hook():
    """Return what the hook reads, if the Connection is passed on as by the Test button."""
    os.environ[f"AIRFLOW_CONN_{CONN_ID.upper()}"] = connection().get_uri()

    from airflow_provider_loanauth.hooks.loanauth import LoanAuthHook

    settings = LoanAuthHook(CONN_ID).read_settings()
    credentials = {name: str(getattr(settings.grant, name)) for name in vars(settings.grant)}
    return credentials | {"method": settings.method, "auth_url": settings.auth_url, "timeout": settings.timeout}


class WebServer:
    """The web server of Airflow 2.11; every visitor is an administrator."""

    def __init__(self):
        Path(os.environ["AIRFLOW_HOME"], "webserver_config.py").write_text(
            "AUTH_ROLE_PUBLIC = 'Admin'\nWTF_CSRF_ENABLED = False\n"
        )
        from airflow.www.app import create_app

        self.client = create_app().test_client()

    def form(self):
        return self.client.get("/connection/add").text

    def add(self, fields, path="/connection/add", extra=""):
        form = {"conn_id": CONN_ID, "conn_type": "loanauth", "extra": extra}
        form |= {name if name in STANDARD else f"extra__loanauth__{name}": value for name, value in fields.items()}
        response = self.client.post(path, data=form, follow_redirects=True)
        assert response.status_code == 200, response.text
        return response.text

    def shown(self):
        return self.client.get(f"/connection/edit/{connection().id}").text

    def edit(self, page, fields, changes):
        """Submit the values that the page shows, without secrets, and the changes."""
        secrets = ("password", "client_secret", "los_client_secret", "api_key", "proxy")
        again = {name: "" if name in secrets else value for name, value in fields.items()}
        raw = re.search(r'<textarea[^>]*id="extra"[^>]*>(.*?)</textarea>', page, re.DOTALL)[1].strip()
        self.add(again | changes, f"/connection/edit/{connection().id}", html.unescape(raw))


class ApiServer:
    """The API server of Airflow 3; it gets the same requests as from its page."""

    def __init__(self):
        os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] = "True"
        from airflow.api_fastapi.app import create_app
        from starlette.testclient import TestClient

        self.client = TestClient(create_app(apps="core"), base_url="http://127.0.0.1")
        response = self.client.get("/auth/token")
        self.client.headers["Authorization"] = f"Bearer {response.json()['access_token']}"

    def form(self):
        forms = self.client.get("/ui/connections/hook_meta").json()
        (form,) = [form for form in forms if form["connection_type"] == "loanauth"]
        return form

    def add(self, fields):
        extra = {name: value for name, value in fields.items() if name not in STANDARD}
        # The page sends null for fields that were not filled in.
        extra = dict.fromkeys(self.form()["extra_fields"]) | extra
        standard = {name: value for name, value in fields.items() if name in STANDARD}
        standard["port"] = int(standard["port"])
        body = {"connection_id": CONN_ID, "conn_type": "loanauth", "extra": json.dumps(extra), **standard}
        response = self.client.post("/api/v2/connections", json=body)
        assert response.status_code == 201, response.text
        return response.text

    def shown(self):
        return self.client.get(f"/api/v2/connections/{CONN_ID}").text

    def edit(self, page, fields, changes):
        shown = json.loads(page)
        extra = json.loads(shown["extra"]) | changes
        body = {key: shown[key] for key in ("connection_id", "conn_type", *STANDARD)} | {"extra": json.dumps(extra)}
        response = self.client.patch(f"/api/v2/connections/{CONN_ID}", params={"update_mask": "extra"}, json=body)
        assert response.status_code == 200, response.text


def main(path):
    given = json.loads(Path(path).read_text())
    try:
        web = ApiServer()
    except ImportError:  # Airflow 2.11
        web = WebServer()
    results = {"form": web.form(), "add_response": web.add(given["fields"])}
    results |= {"added": stored(), "added_read": read_by_hook(), "shown": web.shown()}
    web.edit(results["shown"], given["fields"], given["changes"])
    results |= {"edited": stored(), "edited_read": read_by_hook()}
    sys.stdout.write("\n" + json.dumps(results) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
