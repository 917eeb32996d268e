"""The page at ``/docs``: served by a real broker, self-contained, and, where there is a browser, driven in it."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from doubles.patience import PATIENCE_S, TooLate

from behaviour.process import broker_process

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
REQUIRED = "GOQUEUE_BROWSER_REQUIRED"
"""Set by ``.ci/run``, which installs a browser: there this must not be skipped."""
CREATE, PUBLISH, READ = "POST /topics", "POST /topics/{topic_name}/messages", "GET /topics/{topic_name}/messages"
DESCRIBE, DELETE = "GET /topics/{topic_name}", "DELETE /topics/{topic_name}"
RESCHEDULE = "PATCH /topics/{topic_name}/delayed/{partition_id}/{offset}"
PUBLISH_FRAMES = "POST /topics/{topic_name}/partitions/{partition_id}/messages"

# The browser reads commands from descriptor 3 and answers on 4, whatever the pipes are called here.
_ON_3_AND_4 = """
import fcntl, os, sys
inward, outward = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(inward, 3)
os.dup2(outward, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-sync", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update"),
)


class Browser:
    """A headless browser, spoken to in the Chrome DevTools Protocol over a pipe."""

    def __init__(self, program: str, profile: str) -> None:
        inward, self._commands = os.pipe()
        self._answers, outward = os.pipe()
        wrapped = [sys.executable, "-c", _ON_3_AND_4, str(inward), str(outward)]
        self._process = subprocess.Popen(
            [*wrapped, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(inward, outward),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": profile},
        )
        os.close(inward)
        os.close(outward)
        self._received = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self.next_message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def next_message(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._received:
            # Not ``select``: it knows no descriptors beyond 1,024, and brokers of other tests hold many.
            with selectors.DefaultSelector() as selector:
                selector.register(self._answers, selectors.EVENT_READ)
                ready = selector.select(max(0, deadline - time.monotonic()))
            if not ready:
                raise TooLate(f"the browser said nothing for {PATIENCE_S} s")
            some = os.read(self._answers, 1 << 16)
            assert some, "the browser has ended"
            self._received += some
        first, self._received = self._received.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def close(self) -> None:
        """Without its pipe the browser ends by itself."""
        os.close(self._commands)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)


class Page:
    """``/docs`` in a tab of its own, with the reference loaded."""

    def __init__(self, browser: Browser, url: str, width: int = 1200) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Page.navigate", url=url)
        while not self.events("Page.loadEventFired"):
            browser.events.append(browser.next_message())
        self.until("document.querySelector('.op')")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def events(self, method: str) -> list[dict[str, Any]]:
        mine = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in mine if event["method"] == method]

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until something in the document makes ``condition`` true."""
        self.value(
            f"new Promise(done => {{ const look = () => {{ if ({condition}) {{ watch.disconnect(); done(true); }} }};"
            "const watch = new MutationObserver(look);"
            "watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});"
            "look(); })"
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def form(self, operation: str) -> str:
        return f"document.querySelector('form[aria-label={json.dumps(operation)}]')"

    def fill(self, operation: str, name: str, text: str) -> None:
        """As if typed into the field whose label begins with ``name``."""
        self.value(
            f"(() => {{ const label = [...{self.form(operation)}.querySelectorAll('label')]"
            f".find(each => each.firstChild.textContent === {json.dumps(name)});"
            f"label.control.value = {json.dumps(text)};"
            "label.control.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )

    def send(self, operation: str) -> str:
        """Press Send; the status and the body as the page shows them."""
        form = self.form(operation)
        self.value(f"{form}.closest('details').open = true; {form}.querySelector('button[type=submit]').click()")
        self.until(f"{form}.querySelector('.status .pill') && {form}.querySelector('.answer .more')")
        shown: str = self.value(f"{form}.querySelector('.answer').innerText")
        return shown

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@pytest.fixture(scope="module")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_process(tmp_path_factory.mktemp("try-page")) as broker:
        yield broker.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        reason = f"no browser on PATH; the page is driven in one of {', '.join(BROWSERS)}"
        assert not os.environ.get(REQUIRED), reason
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def page(browser: Browser, broker_url: str) -> Iterator[Page]:
    """Whatever a test does, no script fails, nothing breaks the page's own rules and nobody else is asked."""
    page = Page(browser, f"{broker_url}/docs")
    yield page
    page.close()
    assert page.events("Runtime.exceptionThrown") == []
    assert [each for each in page.events("Log.entryAdded") if each["entry"]["source"] != "network"] == []
    asked = [each["request"]["url"] for each in page.events("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith((broker_url, "data:"))] == []


class Markup(HTMLParser):
    """The tags of a page, each with its attributes, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.script = text.split("<script>")[1].split("</script>")[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def values(self, attribute: str, *tags: str) -> list[str]:
        found = (attributes.get(attribute) for tag, attributes in self.tags if not tags or tag in tags)
        return [value for value in found if value is not None]


@pytest.fixture(scope="module")
def source(broker_url: str) -> str:
    answer = httpx.get(f"{broker_url}/docs", trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def test_the_page_is_served_as_it_is_in_the_package(source: str) -> None:
    assert source == (Path(__file__).parents[2] / "src/goqueue/api/http/try.html").read_text()


def test_the_page_names_no_address_elsewhere(source: str) -> None:
    markup = Markup(source)
    assert re.findall(r"https?:|\b(?:ws|ftp)s?:|@import|\burl\(|[\"'(]//\w", source) == []
    assert set(markup.values("href") + markup.values("src")) == {"/openapi.json", "data:,"}
    assert "default-src 'none'; connect-src 'self'" in " ".join(markup.values("content", "meta"))


def test_the_page_never_lets_text_become_markup_or_code(source: str) -> None:
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source) == []
    assert "require-trusted-types-for 'script'" in source


def test_every_id_in_the_markup_is_unique_and_every_reference_to_one_leads_somewhere(source: str) -> None:
    markup = Markup(source)
    ids = Counter(markup.values("id"))
    assert [name for name, times in ids.items() if times > 1] == []
    labelled = markup.values("for", "label")
    assert sorted(labelled) == sorted(markup.values("id", "input", "select", "textarea"))
    used = {*labelled, *markup.values("aria-labelledby"), *re.findall(r"byId\('([^']+)'\)", markup.script)}
    assert used - set(ids) == set()


def test_every_operation_of_the_document_is_shown_under_its_tag(page: Page, broker_url: str) -> None:
    paths = httpx.get(f"{broker_url}/openapi.json", trust_env=False).json()["paths"]
    documented = {
        (operation["tags"][0], f"{method.upper()} {path}", operation["summary"])
        for path, item in paths.items()
        for method, operation in item.items()
    }
    shown = page.value(
        "[...document.querySelectorAll('.op')].map(each => [each.closest('section').getAttribute('aria-label'),"
        "each.querySelector('form').getAttribute('aria-label'), each.querySelector('.about').textContent])"
    )
    assert {tuple(each) for each in shown} == documented
    tags = ["Broker", "Topics", "Messages", "Groups", "Queue", "Dead letters", "Delayed messages", "Priority lanes"]
    tags += ["Traces", "Transactions", "Schema registry"]
    assert [each[0] for each in shown] == sorted((each[0] for each in shown), key=tags.index)


def test_a_newcomer_gets_from_nothing_to_a_replay_with_five_clicks(page: Page) -> None:
    told = []
    page.value("byId('step-topic').value = 'newcomer'")
    for number in range(1, 6):
        page.value(f"document.getElementById('step-{number}').click()")
        page.until(f"document.querySelector('#steps > li:nth-child({number}).done')")
        told.append(page.value(f"document.querySelector('#steps > li:nth-child({number}) .status').innerText"))
    statuses = [each.split()[0] for each in told]
    assert statuses == ["201", "200", "200", "200", "200"]
    for said, part in zip(
        told, ("has 3 partitions", "3 messages stored", "3 messages", "2 messages from", "3 messages in"), strict=True
    ):
        assert part in said


def test_a_topic_is_created_published_to_and_read_with_the_forms(page: Page, broker_url: str) -> None:
    page.fill(CREATE, "body", '{"name": "by-form"}')
    assert page.send(CREATE).startswith("201 Created")
    page.fill(PUBLISH, "body", '{"messages": [{"key": "k", "value": "it\'s <b>here</b>"}]}')
    assert page.send(PUBLISH).startswith("200 OK")
    page.fill(READ, "limit", "5")
    shown = page.send(READ)
    assert shown.startswith("200 OK")
    assert re.search(r"\d ms", shown)
    assert '"value": "it\'s <b>here</b>"' in shown
    stored = httpx.get(f"{broker_url}/topics/by-form/messages", trust_env=False).json()["messages"]
    assert [each["value"] for each in stored] == ["it's <b>here</b>"]


def test_bodies_are_filled_in_with_an_example_made_from_their_schema(page: Page) -> None:
    bodies = {
        name: page.value(f"{page.form(name)}.querySelector('textarea').value") for name in (CREATE, PUBLISH, RESCHEDULE)
    }
    assert json.loads(bodies[CREATE]) == {"name": "orders"}
    assert json.loads(bodies[PUBLISH]) == {"messages": [{"key": "k1", "value": "hello"}]}
    assert json.loads(bodies[RESCHEDULE]) == {"delay": "30s"}


def test_a_request_that_deletes_has_no_topic_filled_in(page: Page) -> None:
    assert page.value(f"{page.form(DELETE)}.querySelector('input').value") == ""
    assert page.value(f"{page.form(DELETE)}.checkValidity()") is False


def test_an_error_is_shown_with_its_status_and_its_code(page: Page) -> None:
    page.fill(DESCRIBE, "topic_name", "no such/topic?")
    shown = page.send(DESCRIBE)
    assert shown.startswith(("400", "404"))
    assert '"code":' in shown


def test_what_a_message_holds_is_shown_and_never_run(page: Page, broker_url: str) -> None:
    attack = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
    with httpx.Client(base_url=broker_url, trust_env=False) as client:
        client.post("/topics", json={"name": "attack"}).raise_for_status()
        client.post("/topics/attack/messages", json={"messages": [{"value": attack}]}).raise_for_status()
    page.fill(READ, "topic_name", "attack")
    assert attack in page.send(READ)
    assert page.value("document.querySelectorAll('img, .answer script').length") == 0
    assert page.value("document.title") == "GoQueue API"


def test_large_numbers_keep_all_their_digits(page: Page) -> None:
    shown = page.value("el('pre', {}, prettyJson('{\"a\":[9223372036854775807,{},\"x, y\"]}')).textContent")
    assert shown == '{\n  "a": [\n    9223372036854775807,\n    {},\n    "x, y"\n  ]\n}'


def test_the_curl_line_is_the_request_that_the_form_sends(page: Page, broker_url: str) -> None:
    page.fill(PUBLISH, "topic_name", "a b")
    page.fill(PUBLISH, "body", '{"messages": [{"value": "it\'s $HOME"}]}')
    line = shlex.split(page.value(f"{page.form(PUBLISH)}.querySelector('.curl code').textContent").replace("\\\n", ""))
    assert line[:2] == ["curl", f"{broker_url}/topics/a%20b/messages"]
    assert line[2:4] == ["-H", "Content-Type: application/json"]
    assert json.loads(line[line.index("-d") + 1]) == {"messages": [{"value": "it's $HOME"}]}


def test_a_binary_body_is_left_to_curl(page: Page) -> None:
    form = page.form(PUBLISH_FRAMES)
    assert page.value(f"{form}.querySelector('button[type=submit]')") is None
    assert "--data-binary @" in page.value(f"{form}.querySelector('.curl code').textContent")


def test_the_search_box_leaves_only_what_matches(page: Page) -> None:
    page.value(
        "byId('search').value = 'topic delete and its messages'; byId('search').dispatchEvent(new Event('input'))"
    )
    shown = page.value(
        "[...document.querySelectorAll('.op form')].filter(each => each.closest('.op').checkVisibility())"
        ".map(each => each.getAttribute('aria-label'))"
    )
    assert shown == [DELETE]
    assert page.value("byId('found').textContent").startswith("1 of ")


def test_an_operation_is_found_opened_and_sent_with_the_keyboard_alone(page: Page) -> None:
    page.press("/", 191, "/")
    page.call("Input.insertText", text="get /version")
    page.press("Tab", 9)
    page.press("Enter", 13, "\r")
    page.until("document.activeElement.closest('.op[open]')")
    page.press("Tab", 9)
    assert page.value("document.activeElement.textContent") == "Send"
    page.press("Enter", 13, "\r")
    page.until(f"{page.form('GET /version')}.querySelector('.pill.ok')")


def test_every_field_of_the_running_page_has_a_label_and_every_id_is_used_once(page: Page) -> None:
    assert (
        page.value("[...document.querySelectorAll('input, select, textarea')].filter(e => !e.labels.length).length")
        == 0
    )
    ids = Counter(page.value("[...document.querySelectorAll('[id]')].map(each => each.id)"))
    assert [name for name, times in ids.items() if times > 1] == []
    described = page.value(
        "[...document.querySelectorAll('[aria-describedby]')].map(each => each.getAttribute('aria-describedby'))"
    )
    assert set(described) <= set(ids)


@pytest.mark.parametrize("width", [360, 400, 700, 1200])
def test_nothing_is_wider_than_the_window(browser: Browser, broker_url: str, width: int) -> None:
    page = Page(browser, f"{broker_url}/docs", width)
    page.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.value("document.getElementById('run-all').click()")
    page.until("document.querySelectorAll('#steps > li.done').length === 5")
    wide = page.value(
        "[...document.body.querySelectorAll('*')].filter(each => each.checkVisibility() && each.tagName !== 'OPTION' &&"
        "(each.getBoundingClientRect().right > innerWidth + 1 || each.getBoundingClientRect().left < -1))"
        ".map(each => each.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.close()


def test_the_page_is_light_or_dark_as_the_reader_prefers(page: Page) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colour = page.value("getComputedStyle(document.body).backgroundColor")
        seen[scheme] = sum(map(int, re.findall(r"\d+", colour)))
    assert seen["light"] > 600 > 150 > seen["dark"]
