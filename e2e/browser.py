"""Actions of a user in the UI of Airflow 3.3 and 2.11 with a real browser, and the content of the pages afterwards."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playwright.sync_api import Error, expect, sync_playwright

from e2e.airflow import USER
from scripts.programs import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from e2e.steps import Run

TIMEOUT = 120_000  # milliseconds for each action on a page


@dataclass
class BrowserUser:
    """A user of one Airflow."""

    page: Page
    #: HTML and field values of each saved page, by name.
    pages: dict[str, str]

    def log_in(self, password: str) -> None:
        """Log in with username and password."""
        self.page.goto("/")
        self.page.locator("input[name=username]").fill(USER)
        self.page.locator("input[name=password]").fill(password)
        self.page.keyboard.press("Enter")
        self.page.locator("input[name=password]").wait_for(state="detached")

    def save_page(self, name: str) -> None:
        """Save the page's HTML and the values of its fields."""
        fields = self.page.locator("input, textarea").evaluate_all("all => all.map(one => one.value).join('\\n')")
        self.pages[name] = self.page.content() + fields

    def open_page(self, path: str, expected: str) -> None:
        """Open a page, wait until it shows a text, and save it."""
        self.page.goto(path)
        expect(self.page.locator("body")).to_contain_text(expected, use_inner_text=True)
        self.page.wait_for_load_state("networkidle")
        self.save_page(path)

    def _press(self, conn_id: str, button: str) -> None:
        self.page.goto("/connections")
        self.page.get_by_role("row").filter(has_text=conn_id).get_by_role("button", name=button).click()

    def add_connection(self, conn_id: str, fields: dict[str, str], extra: dict[str, str]) -> None:
        """Fill in the form for Authen JWT and save it."""
        self.page.goto("/connections")
        self.page.get_by_role("button", name="Add Connection").click()
        form = self.page.get_by_role("dialog")
        form.get_by_label("Connection ID").fill(conn_id)
        form.get_by_label("Connection Type").fill("Loan Pricing")
        self.page.get_by_role("option", name="Loan Pricing Authentication").click()
        form.get_by_label("Auth URL").wait_for()
        for name, value in fields.items():
            form.locator(f"[name={name}]").fill(value)
        # This hides the other fields.
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.get_by_label("Method").click()
        self.page.get_by_role("option", name="Authen JWT").click()
        for name, value in extra.items():
            form.locator(f"[name=element_{name}]").fill(value)
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")

    def change_timeout(self, conn_id: str, seconds: str) -> None:
        """Edit a connection without typing its secrets again."""
        self._press(conn_id, "Edit Connection")
        form = self.page.get_by_role("dialog")
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.locator("[name=element_timeout]").fill(seconds)
        form.locator("[name=element_timeout]").blur()
        self.save_page("form, edited")
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")

    def test_connection(self, conn_id: str) -> str:
        """Press the Test button."""
        self._press(conn_id, "Test Connection")
        toast = self.page.locator("[data-scope=toast][data-part=root]").first
        message = toast.inner_text()
        self.save_page(f"result of Test, {conn_id}")
        return message

    def test_on_2_11(self, fields: dict[str, str]) -> str:
        """Fill in the form of 2.11 and press its Test button."""
        self.page.goto("/connection/add")
        # The page shows a list of its own above this one.
        self.page.locator("#conn_type").select_option("loanauth", force=True)
        for name, value in fields.items():
            self.page.locator(f"#{name}, #extra__loanauth__{name}").fill(value)
        self.page.locator("#test-connection").click()
        message = self.page.locator(".alert-success, .alert-error")
        message.wait_for()
        return message.inner_text()


@contextmanager
def browser_user(run: Run) -> Iterator[BrowserUser]:
    """Open a browser with an empty profile, and log in."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise ProgramError("Chromium is not installed (on Debian and Ubuntu: the package chromium)")
    expect.set_options(timeout=TIMEOUT)
    try:
        with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium) as browser:
            page = browser.new_page(base_url=run.airflow.url, timezone_id="UTC")
            page.set_default_timeout(TIMEOUT)
            user = BrowserUser(page, run.pages)
            user.log_in(run.airflow.password)
            yield user
    except (Error, AssertionError) as error:
        raise ProgramError(f"Airflow {run.airflow.version}, in the browser: {error}") from error
