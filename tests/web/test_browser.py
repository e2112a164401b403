"""The whole way in a real browser: log in, make a key, see it once, call with it, read the page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from billing.messages import ESTIMATED
from tests.programs import BROWSER
from tests.stack import Stack, until

MODEL = "farthing-echo-no-usage"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ACT_MS = 10_000
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 1000}

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


@dataclass
class Visit:
    """A page, and everything that went wrong on it."""

    page: Page
    base_url: str
    wrongs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        self.page.on("requestfailed", self._miss)
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy: ' + event.violatedDirective))"
        )

    def go(self, address: str) -> None:
        self.page.goto(self.base_url + address)

    def log_in(self, email: str, password: str) -> None:
        self.go("/accounts/login/")
        self.page.get_by_label("E-mail").fill(email)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def fits(self) -> bool:
        """True if the page does not scroll sideways."""
        width = self.page.evaluate("document.documentElement.scrollWidth")
        return width <= self.page.viewport_size["width"]

    def _miss(self, request: Request) -> None:
        """What a page has asked for and left behind by going to the next one is no fault."""
        if request.failure != "net::ERR_ABORTED":
            self.wrongs.append(f"failed: {request.url} ({request.failure})")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.wrongs.append(f"{message.type}: {message.text}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER.find()[0], args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Owner:
    email: str
    password: str
    tenant: Any


@pytest.fixture(autouse=True)
def _orm_beside_a_loop(monkeypatch) -> None:
    """Playwright keeps an event loop in this thread; the ORM is called between its turns."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.fixture
def owner(stack: Stack, committed, world) -> Owner:
    tenant = world.tenant("Acme Robotics")
    user = world.person("alice", tenant)
    return Owner(user.email, "alice-password", tenant)


def visit(chromium: Browser, stack: Stack, **more: Any) -> Visit:
    context = chromium.new_context(**{"viewport": DESK, "reduced_motion": "reduce", **more})
    context.set_default_timeout(ACT_MS)
    return Visit(context.new_page(), stack.base_url)


def make_key(seen: Visit, password: str, name: str) -> str:
    """Make it through the pages; answers the secret as the panel shows it."""
    page = seen.page
    seen.go("/keys")
    page.get_by_role("link", name="Create key").first.click()
    if "reauthenticate" in page.url:
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create key").click()
    return page.locator("#secret").inner_text()


def call(stack: Stack, secret: str, model: str = MODEL) -> str:
    """One streamed completion; answers the id of the request."""
    answer = requests.post(
        f"{stack.base_url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {secret}"},
        json={
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": "Fix the rounding, not the tolerance."}],
        },
        timeout=20,
    )
    assert answer.status_code == 200
    return answer.headers["x-request-id"]


def settled(public_id: str) -> Any:
    from billing.ids import exchange_id_of
    from billing.models import Charge
    from gateway.models import Transcript

    exchange_id = exchange_id_of(public_id)
    until(Transcript.objects.filter(exchange_id=exchange_id).exists)
    return until(Charge.objects.filter(exchange_id=exchange_id).first)


def test_from_the_log_in_to_the_explained_charge(stack, chromium, owner):
    seen = visit(chromium, stack)
    page = seen.page
    seen.log_in(owner.email, owner.password)
    expect(page.get_by_role("heading", name="No key yet")).to_be_visible()

    secret = make_key(seen, owner.password, "warehouse-eu")
    assert re.fullmatch(r"sk_live_[0-9A-Za-z]{10}_[0-9A-Za-z]{33}", secret)
    done = page.get_by_role("button", name="Done, hide the secret")
    expect(done).to_be_disabled()
    page.get_by_label("I have stored it").check()
    done.click()
    expect(page.get_by_role("link", name="warehouse-eu", exact=True)).to_be_visible()

    seen.go("/requests")
    expect(page.get_by_role("heading", name="No requests yet")).to_be_visible()
    public_id = call(stack, secret)
    charge = settled(public_id)

    seen.go(f"/requests?id={public_id}")
    expect(page).to_have_url(f"{stack.base_url}/requests/{public_id}")
    expect(page.locator(".note .cause")).to_have_text(ESTIMATED)
    amount = page.locator(".table.blocks tfoot data").get_attribute("value")
    assert amount == f"{charge.charge_nanos / 10**9:.9f}"
    page.get_by_role("link", name="Farthing → vendor").click()
    expect(page.get_by_text("the vendor's own name for the model")).to_be_visible()
    page.get_by_role("link", name="Farthing → client").click()
    expect(page.locator(".transcript")).to_contain_text("farthing-benchecho-fixed-response")
    page.get_by_role("link", name="Raw").click()
    expect(page.locator("#leg-body")).to_contain_text("data: [DONE]")

    page.get_by_role("link", name="Messages").click()
    expect(page.get_by_role("link", name="1 request billed at estimate")).to_be_visible()
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_role("heading", name="No messages")).to_be_visible()
    assert seen.wrongs == []


def test_a_revoked_key_is_refused_and_the_refusal_is_listed(stack, chromium, owner):
    seen = visit(chromium, stack)
    page = seen.page
    seen.log_in(owner.email, owner.password)
    secret = make_key(seen, owner.password, "notebooks")
    call(stack, secret, "farthing-echo")
    seen.go("/keys")
    page.get_by_role("link", name="Revoke notebooks").click()
    act = page.get_by_role("button", name="Revoke notebooks")
    expect(act).to_be_disabled()
    page.get_by_label("Type the name of the key").fill("notebooks")
    act.click()
    expect(page.locator(".status.pill")).to_have_text("Revoked")

    def is_refused() -> bool:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = requests.get(f"{stack.base_url}/v1/key", headers=headers, timeout=20)
        return answer.status_code == 401

    until(is_refused, 2.0)
    assert seen.wrongs == []


def test_going_back_does_not_bring_a_secret_back(stack, chromium, owner):
    seen = visit(chromium, stack)
    seen.log_in(owner.email, owner.password)
    make_key(seen, owner.password, "gone")
    seen.go("/keys")
    with pytest.raises(PlaywrightError, match="ERR_CACHE_MISS"):
        seen.page.go_back()


def test_every_page_fits_a_phone(stack, chromium, owner):
    seen = visit(chromium, stack, viewport=PHONE, color_scheme="dark")
    seen.log_in(owner.email, owner.password)
    secret = make_key(seen, owner.password, "phone")
    assert seen.fits()
    public_id = call(stack, secret)
    settled(public_id)
    for address in ("/keys", "/keys/new", "/requests", "/messages", "/keys#nav"):
        seen.go(address)
        assert seen.fits(), address
    for leg in "1234":
        seen.go(f"/requests/{public_id}?leg={leg}&view=raw")
        assert seen.fits(), leg
    assert seen.wrongs == []


def test_without_scripts_everything_goes_as_well(stack, chromium, owner):
    seen = visit(chromium, stack, java_script_enabled=False)
    page = seen.page
    seen.log_in(owner.email, owner.password)
    secret = make_key(seen, owner.password, "plain")
    page.get_by_label("I have stored it").check()
    page.get_by_role("button", name="Done, hide the secret").click()
    assert secret not in page.content()
    public_id = call(stack, secret)
    settled(public_id)
    seen.go("/requests")
    page.locator("summary", has_text="Status").click()
    page.get_by_role("link", name="At estimate").click()
    page.locator(f'a[href="/requests/{public_id}"]').click()
    page.get_by_role("link", name="Vendor → Farthing").click()
    expect(page.locator(".transcript")).to_contain_text("farthing-benchecho-fixed-response")
    page.get_by_role("button", name="Switch to TEST").click()
    expect(page.locator(".band.test")).to_be_visible()


def test_the_csv_is_streamed_by_the_real_server(stack, chromium, owner):
    seen = visit(chromium, stack)
    seen.log_in(owner.email, owner.password)
    public_id = call(stack, make_key(seen, owner.password, "csv"), "farthing-echo")
    settled(public_id)
    seen.go("/requests")
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="CSV of this filter").click()
    lines = download.value.path().read_text().splitlines()
    assert [line.split(",")[1] for line in lines] == ["request_id", public_id]


def test_staff_check_a_vendor_and_the_page_follows(stack, chromium, committed, world):
    """The button, a real worker, a real vendor, and the verdict without a reload by hand."""
    from tests.gateway.qualification.conftest import made_vendor

    dora = world.person("dora", is_staff=True)
    vendor = made_vendor(stack.benchecho_url, "echo", name=f"harbour-{world.prefix}")
    try:
        seen = visit(chromium, stack)
        page = seen.page
        seen.log_in(dora.email, "dora-password")
        seen.go("/staff/vendors")
        page.get_by_role("link", name=vendor.name).click()
        page.wait_for_load_state()
        expect(page.get_by_text("Not checked at this address yet")).to_be_visible()
        page.get_by_role("button", name="Check now").click()
        page.wait_for_load_state()
        if "reauthenticate" in page.url:
            page.get_by_label("Password").fill("dora-password")
            page.get_by_role("button", name="Confirm").click()
            page.wait_for_load_state()
        # benchecho cannot add: that is what the checklist has to show.
        expect(page.get_by_text("The answer does not say that it is 4")).to_be_visible()
        expect(page.get_by_text("Compute 2+2. Answer briefly.").first).to_be_visible()
        expect(page.get_by_text("Came back").first).to_be_visible()
        expect(page.get_by_role("button", name="Check now")).to_be_visible()
        page.set_viewport_size(PHONE)
        assert seen.fits()
        assert seen.wrongs == []
    finally:
        vendor.delete()
