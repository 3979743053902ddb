"""What a person does in the UI of Airflow 3.3, in a real browser, and what the pages then hold. Knows no secret."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from e2e.airflows import USER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import FloatRect, Locator, Page

    from e2e.airflows import Airflow

#: Debian's Chromium, as root in a container, with no other network than this machine.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30_000  # milliseconds for whatever a page is waited for
RUN_PATIENCE = 240_000  # the same for a DAG run
STANDARD_FIELDS = {"description", "host", "login", "password", "port"}
SIZE = {"width": 1200, "height": 720}


class Person:
    """
    One person at one Airflow.

    :param pictures: directory for screenshots
    """

    def __init__(self, page: Page, airflow: Airflow, pictures: Path) -> None:
        self.page = page
        self.airflow = airflow
        self.pictures = pictures
        #: HTML of each page that was looked at, by name.
        self.pages: dict[str, str] = {}

    def log_in(self) -> None:
        """Log in with username and password."""
        self.page.goto(f"{self.airflow.url}/connections")
        self.page.locator("input[name=username]").fill(USER)
        self.page.locator("input[name=password]").fill(self.airflow.password)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/connections*")

    def keep(self, name: str) -> str:
        """Keep the page's HTML, and what its fields hold; return its text."""
        fields = self.page.locator("input, textarea").evaluate_all("all => all.map(one => one.value).join('\\n')")
        self.pages[name] = self.page.content() + fields
        return self.page.locator("body").inner_text()

    def picture(self, name: str, *, of: Locator | None = None, height: int | None = None) -> None:
        """Take a screenshot for the docs: of all that is to be seen, of one part, or of the top of the page."""
        path = self.pictures / f"{name}.png"
        if of is not None:
            of.screenshot(path=path, animations="disabled")
        elif height is not None:
            clip: FloatRect = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
            self.page.screenshot(path=path, animations="disabled", clip=clip)
        else:
            self.page.screenshot(path=path, animations="disabled")

    def add_connection(self, conn_id: str, fields: dict[str, str], method: str) -> None:
        """
        Fill the form and save it.

        :param fields: what to type, by attribute of the Connection or name in its extra
        :param method: what to choose from the drop-down
        """
        self.page.get_by_role("button", name="Add Connection").click()
        form = self.page.get_by_role("dialog")
        form.get_by_label("Connection ID").fill(conn_id)
        kind = form.get_by_label("Connection Type")
        kind.fill("Loan Pricing")
        self.page.get_by_role("option", name="Loan Pricing Authentication").click()
        form.get_by_label("Auth URL").wait_for()
        self.page.set_viewport_size({"width": 1000, "height": 1860})
        extra = {name: value for name, value in fields.items() if name not in STANDARD_FIELDS}
        for name in STANDARD_FIELDS & fields.keys():
            form.locator(f"[name={name}]").fill(fields[name])
        self.picture("form-standard-fields", of=form)
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.get_by_label("Method").click()
        self.page.get_by_role("option", name=method).click()
        for name, value in extra.items():
            form.locator(f"[name=element_{name}]").fill(value)
        self.picture("form-extra-fields", of=form)
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")
        self.page.set_viewport_size(SIZE)
        expect(self.page.get_by_role("row").filter(has_text=conn_id)).to_be_visible()

    def change_timeout(self, conn_id: str, seconds: str) -> None:
        """Edit a connection without typing any secret again."""
        self.page.goto(f"{self.airflow.url}/connections")
        row = self.page.get_by_role("row").filter(has_text=conn_id)
        row.get_by_role("button", name="Edit Connection").click()
        form = self.page.get_by_role("dialog")
        form.get_by_role("button", name="Extra Fields", exact=True).click()
        form.locator("[name=element_timeout]").fill(seconds)
        form.locator("[name=element_timeout]").blur()
        self.keep("form, edited")
        form.get_by_role("button", name="Save").click()
        form.wait_for(state="hidden")

    def test_connection(self, conn_id: str, picture: str | None = None) -> str:
        """Press Test; return what the page answers."""
        self.page.goto(f"{self.airflow.url}/connections")
        row = self.page.get_by_role("row").filter(has_text=conn_id)
        row.get_by_role("button", name="Test Connection").click()
        answer = self.page.locator("[data-scope=toast][data-part=root]").first
        answer.wait_for()
        text = answer.inner_text()
        self.keep(f"answer of Test, {conn_id}")
        if picture:
            self.page.wait_for_timeout(600)  # the answer slides in
            self.picture(picture)
        return text

    def delete_connection(self, conn_id: str) -> None:
        """Delete a connection."""
        self.page.goto(f"{self.airflow.url}/connections")
        row = self.page.get_by_role("row").filter(has_text=conn_id)
        row.get_by_role("button", name="Delete Connection").click()
        self.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(row).to_be_hidden()

    def trigger(self, dag_id: str) -> str:
        """Trigger a DAG by its button and watch its grid until it has succeeded; return the id of the run."""
        self.page.goto(f"{self.airflow.url}/dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger Dag").first.click()
        form = self.page.get_by_role("dialog")
        form.get_by_role("button", name="Trigger").click()
        form.wait_for(state="hidden")
        self.page.wait_for_url("**/runs/**")
        run_id = self.page.url.rpartition("/runs/")[2].partition("/")[0].partition("?")[0]
        expect(self.page.get_by_text("Success", exact=True).first).to_be_visible(timeout=RUN_PATIENCE)
        return run_id

    def look(self, name: str, path: str, awaited: str) -> str:
        """
        Look at a page.

        :param path: below the address of the UI
        :param awaited: text that it shows when it is there
        :return: all of its text
        """
        self.page.goto(f"{self.airflow.url}{path}")
        self.page.get_by_text(awaited).first.wait_for()
        self.page.wait_for_load_state("networkidle")
        return self.keep(name)


@contextmanager
def person(airflow: Airflow, pictures: Path) -> Iterator[Person]:
    """Open a browser with an empty profile."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise FileNotFoundError("no Chromium is installed here (Debian and Ubuntu: the package chromium)")
    pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=ARGUMENTS)
        try:
            context = browser.new_context(viewport=SIZE, locale="en-US", timezone_id="UTC")
            context.set_default_timeout(PATIENCE)
            expect.set_options(timeout=PATIENCE)
            yield Person(context.new_page(), airflow, pictures)
        finally:
            browser.close()
