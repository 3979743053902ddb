"""Actions of a user in the UI of Airflow 3.3 and 2.11 with a real browser, and the content of the pages afterwards."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import Error, expect, sync_playwright

from e2e.airflow import USER
from e2e.steps import EndToEndError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import FloatRect, Locator, Page

    from e2e.airflow import Airflow

#: Arguments for Debian's Chromium, run as root in a container that has only the loopback network.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT = 120_000  # milliseconds for each action on a page
RUN_TIMEOUT = 240_000  # milliseconds for a DAG run
NO_ERROR_TIMEOUT = 20_000  # milliseconds until a script whose error is expected counts as working
STANDARD_FIELDS = {"description", "host", "login", "password", "port"}
SIZE = {"width": 1200, "height": 720}


class BrowserUser:
    """One user of one Airflow."""

    def __init__(self, page: Page, airflow: Airflow, screenshots: Path) -> None:
        self.page = page
        self.airflow = airflow
        self.screenshots = screenshots
        #: HTML and field values of each saved page, by name.
        self.pages: dict[str, str] = {}

    def log_in(self) -> None:
        """Log in with username and password."""
        url = f"{self.airflow.url}/{'connection/list/' if self.airflow.is_airflow_2 else 'connections'}"
        self.page.goto(url)
        self.page.locator("input[name=username]").fill(USER)
        self.page.locator("input[name=password]").fill(self.airflow.password)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{url}*")

    def save_page(self, name: str) -> str:
        """Save the page's HTML and the values of its fields; return its text."""
        fields = self.page.locator("input, textarea").evaluate_all("all => all.map(one => one.value).join('\\n')")
        self.pages[name] = self.page.content() + fields
        return self.page.locator("body").inner_text()

    def screenshot(self, name: str, *, of: Locator | None = None, height: int | None = None) -> None:
        """Take a screenshot for the documentation."""
        path = self.screenshots / f"{name}.png"
        if of is not None:
            of.screenshot(path=path, animations="disabled")
        elif height is not None:
            clip: FloatRect = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
            self.page.screenshot(path=path, animations="disabled", clip=clip)
        else:
            self.page.screenshot(path=path, animations="disabled")

    def add_connection(self, conn_id: str, fields: dict[str, str], method: str) -> None:
        """Fill in the form and save it."""
        self.page.get_by_role("button", name="Add Connection").click()
        form = self.page.get_by_role("dialog")
        form.get_by_label("Connection ID").fill(conn_id)
        connection_type = form.get_by_label("Connection Type")
        connection_type.fill("Loan Pricing")
        self.page.get_by_role("option", name="Loan Pricing Authentication").click()
        form.get_by_label("Auth URL").wait_for()
        self.page.set_viewport_size({"width": 1000, "height": 2100})
        extra = {name: value for name, value in fields.items() if name not in STANDARD_FIELDS}
        for name in STANDARD_FIELDS & fields.keys():
            form.locator(f"[name={name}]").fill(fields[name])
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.get_by_label("Method").click()
        self.page.get_by_role("option", name=method).click()
        for name, value in extra.items():
            form.locator(f"[name=element_{name}]").fill(value)
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")
        self.page.set_viewport_size(SIZE)
        expect(self.page.get_by_role("row").filter(has_text=conn_id)).to_be_visible()

    def change_timeout(self, conn_id: str, seconds: str) -> None:
        """Edit a connection without typing its secrets again."""
        self.page.goto(f"{self.airflow.url}/connections")
        row = self.page.get_by_role("row").filter(has_text=conn_id)
        row.get_by_role("button", name="Edit Connection").click()
        form = self.page.get_by_role("dialog")
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.locator("[name=element_timeout]").fill(seconds)
        form.locator("[name=element_timeout]").blur()
        self.save_page("form, edited")
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")

    def test_connection(self, conn_id: str) -> str:
        """Press the Test button."""
        self.page.goto(f"{self.airflow.url}/connections")
        row = self.page.get_by_role("row").filter(has_text=conn_id)
        row.get_by_role("button", name="Test Connection").click()
        toast = self.page.locator("[data-scope=toast][data-part=root]").first
        toast.wait_for()
        message = toast.inner_text()
        self.save_page(f"result of Test, {conn_id}")
        return message

    def test_new_connection_on_2_11(self, fields: dict[str, str]) -> str:
        """Fill in the form of 2.11 and press its Test button."""
        self.page.goto(f"{self.airflow.url}/connection/add")
        # The page shows a list of its own above this one.
        self.page.locator("#conn_type").select_option("loanauth", force=True)
        for name, value in fields.items():
            self.page.locator(f"#{name if name in {'conn_id', *STANDARD_FIELDS} else f'extra__loanauth__{name}'}").fill(
                value
            )
        with self.page.expect_response("**/api/v1/connections/test"):
            self.page.locator("#test-connection").click()
        message = self.page.locator(".alert-success, .alert-error")
        message.wait_for()
        return message.inner_text()

    def test_stored_connection_on_2_11(self, conn_id: str) -> str:
        """Press the Test button of a stored Connection; return the error that the script of the page must raise."""
        self.page.goto(f"{self.airflow.url}/connection/list/?_flt_3_conn_id={conn_id}")
        self.page.locator("a[href*='/connection/edit/']").first.click()
        button = self.page.locator("#test-connection")
        button.wait_for()
        self.save_page("form of 2.11, stored")
        with self.page.expect_event("pageerror", timeout=NO_ERROR_TIMEOUT) as raised:
            button.click()
        return str(raised.value)

    def trigger(self, dag_id: str) -> str:
        """Trigger a DAG with its button, and wait until the page shows its success; return the id of the run."""
        self.page.goto(f"{self.airflow.url}/dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger Dag").first.click()
        form = self.page.get_by_role("dialog")
        form.get_by_role("button", name="Trigger").click()
        form.wait_for(state="hidden")
        self.page.wait_for_url("**/runs/**")
        run_id = self.page.url.rpartition("/runs/")[2].partition("/")[0].partition("?")[0]
        expect(self.page.get_by_text("Success", exact=True).first).to_be_visible(timeout=RUN_TIMEOUT)
        return run_id

    def open_page(self, name: str, path: str, expected: str) -> str:
        """Open a page and save it."""
        self.page.goto(f"{self.airflow.url}{path}")
        self.page.get_by_text(expected).first.wait_for()
        self.page.wait_for_load_state("networkidle")
        return self.save_page(name)


@contextmanager
def browser_user(airflow: Airflow, screenshots: Path) -> Iterator[BrowserUser]:
    """Open a browser with an empty profile."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise EndToEndError("Chromium is not installed (on Debian and Ubuntu: the package chromium)")
    screenshots.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=ARGUMENTS)
            try:
                context = browser.new_context(viewport=SIZE, locale="en-US", timezone_id="UTC")
                context.set_default_timeout(TIMEOUT)
                expect.set_options(timeout=TIMEOUT)
                yield BrowserUser(context.new_page(), airflow, screenshots)
            finally:
                browser.close()
    except (Error, AssertionError) as error:
        raise EndToEndError(f"Airflow {airflow.version}, in the browser: {error}") from error
