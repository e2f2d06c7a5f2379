"""ASGI applications under a client: requests, lifespans and what goes wrong in them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from bird_env.testing import blocking, in_process, in_process_async
from bird_env.testing.in_process import LifespanFailed, Receive, Send
from env.fake_server import FakeServer


class App:
    """Echoes a request; its lifespan can be told how to go wrong."""

    def __init__(self, startup: str = "complete", shutdown: str = "complete", raises: bool = False) -> None:
        self.answers = {"startup": startup, "shutdown": shutdown}
        self.raises = raises
        self.log: list[str] = []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope["state"]["started"] = "yes"
            for phase, answer in self.answers.items():
                self.log.append((await receive())["type"])
                await send({"type": f"lifespan.{phase}.{answer}", "message": "no disk"})
                if self.raises:
                    raise RuntimeError("inner")
                if answer == "failed":
                    return
            return
        body = (await receive()).get("body", b"")
        if scope["path"] == "/crash":
            raise RuntimeError("a defect")
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"x-state", scope["state"]["started"].encode())],
            }
        )
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": scope["raw_path"] + b"?" + scope["query_string"]})


async def no_lifespan(scope: Any, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def silent_lifespan(scope: Any, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await no_lifespan(scope, receive, send)


def test_requests_and_lifespan() -> None:
    app = App()
    with in_process(app) as transport, httpx.Client(base_url="http://host", transport=transport) as client:
        assert app.log == ["lifespan.startup"]
        response = client.post("/a%2Fb", params={"q": "1"}, content=b"body")
        assert response.content == b"body/a%2Fb?q=1"
        assert response.headers["x-state"] == "yes"
    assert app.log == ["lifespan.startup", "lifespan.shutdown"]


async def test_requests_and_lifespan_on_the_callers_loop() -> None:
    app = App()
    async with in_process_async(app) as transport, httpx.AsyncClient(transport=transport) as client:
        assert (await client.post("http://host/a", content=b"body")).content == b"body/a?"
    assert app.log == ["lifespan.startup", "lifespan.shutdown"]


def test_many_threads() -> None:
    with (
        in_process(App()) as transport,
        httpx.Client(base_url="http://host", transport=transport) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(lambda number: client.post("/", content=str(number)).text, range(64)))
    assert answers == [f"{number}/?" for number in range(64)]


@pytest.mark.parametrize("app", [no_lifespan, silent_lifespan])
def test_an_application_without_a_lifespan(app: Any) -> None:
    with in_process(app) as transport, httpx.Client(transport=transport) as client:
        assert client.get("http://host/").status_code == 204


@pytest.mark.parametrize("raises", [False, True])
def test_an_application_that_does_not_start(raises: bool) -> None:
    with pytest.raises(LifespanFailed, match="no disk") as caught, in_process(App(startup="failed", raises=raises)):
        pass
    assert (caught.value.__cause__ is not None) is raises


async def test_an_application_that_does_not_start_on_the_callers_loop() -> None:
    with pytest.raises(LifespanFailed, match="no disk"):
        async with in_process_async(App(startup="failed")):
            pass


def test_an_application_that_does_not_stop() -> None:
    with pytest.raises(LifespanFailed, match="no disk"), in_process(App(shutdown="failed")):
        pass


def test_an_application_that_breaks_after_its_start() -> None:
    with pytest.raises(LifespanFailed, match="shut down"), in_process(App(raises=True)):
        pass


def test_a_defect_is_a_500_or_itself() -> None:
    with in_process(App()) as transport, httpx.Client(transport=transport) as client:
        assert client.get("http://host/crash").status_code == 500
    with (
        in_process(App(), raise_app_exceptions=True) as transport,
        httpx.Client(transport=transport) as client,
        pytest.raises(RuntimeError, match="a defect"),
    ):
        client.get("http://host/crash")


def test_what_a_block_raises_comes_out_as_it_is() -> None:
    app = App()
    with pytest.raises(KeyError, match="mine"), in_process(app):
        raise KeyError("mine")
    assert app.log[-1] == "lifespan.shutdown"


def test_an_async_client_without_await() -> None:
    with blocking(FakeServer(), retry_for_s=0.0) as client:
        assert client.base_url.startswith("http://in-process")
        assert [task.task_id for task in client.tasks(limit=1)] == ["ship_1", "shop_1", "shop_2"]
        with client.trajectory("shop_1") as trajectory:
            assert trajectory.execute("SELECT 1").observation.values() == [(1,)]
