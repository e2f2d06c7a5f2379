"""Lanes: the one used last first, idle ones closed, none lost and no more than allowed."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bird_env._connection import Connection
from bird_env._lanes import AsyncLaneTransport, Lanes, LaneTransport
from bird_env.testing import FakeClock


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        yield b"body"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"body"

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


class Lane(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers; fails if it is asked while it is busy, as a pool of one connection would wait."""

    def __init__(self, fails: type[BaseException] | None = None) -> None:
        self.fails = fails
        self.closed = False
        self.served = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.fails is not None:
            raise self.fails("on purpose")
        self.served += 1
        return httpx.Response(200, stream=Body())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Opener:
    def __init__(self, fails: type[BaseException] | None = None) -> None:
        self.fails = fails
        self.opened: list[Lane] = []

    def __call__(self) -> Lane:
        self.opened.append(Lane(self.fails))
        return self.opened[-1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_lanes_are_never_lost_nor_given_twice(moves: list[tuple[bool, int]]) -> None:
    lanes: Lanes[int] = Lanes(keepalive_s=5.0)
    busy: list[int] = []
    free: list[tuple[float, int]] = []
    made, now = 0, 0.0
    for take, pause in moves:
        now += pause
        if take:
            lane = lanes.take()
            expected = free.pop()[1] if free else None
            assert lane == expected
            if lane is None:
                lane, made = made, made + 1
            busy.append(lane)
        elif busy:
            lane = busy.pop(0)
            free.append((now, lane))
            stale = [each for since, each in free if now - since > 5.0]
            free = [each for each in free if each[1] not in stale]
            assert lanes.give(lane, now) == stale
    assert sorted([*lanes.drain(), *busy]) == sorted([each for _, each in free] + busy)
    assert lanes.take() is None


def test_a_lane_is_free_once_its_response_was_read() -> None:
    opener, clock = Opener(), FakeClock()
    with httpx.Client(transport=LaneTransport(opener, keepalive_s=5.0, clock=clock)) as client:
        with client.stream("GET", "http://host/") as first:
            assert client.get("http://host/").content == b"body"
            assert len(opener.opened) == 2
            first.read()
        assert client.get("http://host/").content == b"body"
        assert [lane.served for lane in opener.opened] == [2, 1]
        clock.advance(6.0)
        client.get("http://host/")
        assert [lane.closed for lane in opener.opened] == [False, True]
    assert all(lane.closed for lane in opener.opened)


async def test_an_async_lane_is_free_once_its_response_was_read() -> None:
    opener, clock = Opener(), FakeClock()
    async with httpx.AsyncClient(transport=AsyncLaneTransport(opener, keepalive_s=5.0, clock=clock)) as client:
        async with client.stream("GET", "http://host/") as first:
            assert (await client.get("http://host/")).content == b"body"
            await first.aread()
        assert (await client.get("http://host/")).content == b"body"
        assert [lane.served for lane in opener.opened] == [2, 1]
        clock.advance(6.0)
        await client.get("http://host/")
        assert [lane.closed for lane in opener.opened] == [False, True]
    assert all(lane.closed for lane in opener.opened)


def test_a_lane_that_fails_is_free_again() -> None:
    opener = Opener(fails=httpx.ConnectError)
    with httpx.Client(transport=LaneTransport(opener, max_lanes=1)) as client:
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                client.get("http://host/")
    assert len(opener.opened) == 1


async def test_an_async_lane_that_fails_is_free_again() -> None:
    opener = Opener(fails=httpx.ConnectError)
    async with httpx.AsyncClient(transport=AsyncLaneTransport(opener, max_lanes=1)) as client:
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await client.get("http://host/")
    assert len(opener.opened) == 1


def test_a_lane_that_cannot_be_opened_takes_no_room() -> None:
    def refuse() -> httpx.BaseTransport:
        raise OSError("no descriptors left")

    with httpx.Client(transport=LaneTransport(refuse, max_lanes=1)) as client:
        for _ in range(2):
            with pytest.raises(OSError, match="no descriptors"):
                client.get("http://host/")


def test_no_more_lanes_than_allowed_however_many_threads() -> None:
    opener = Opener()
    with httpx.Client(transport=LaneTransport(opener, max_lanes=3)) as client, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: client.get("http://host/").content, range(200)))
    assert answers == [b"body"] * 200
    assert len(opener.opened) <= 3
    assert sum(lane.served for lane in opener.opened) == 200


async def test_no_more_async_lanes_than_allowed() -> None:
    opener = Opener()
    async with (
        httpx.AsyncClient(transport=AsyncLaneTransport(opener, max_lanes=3)) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(50):
            tasks.start_soon(client.get, "http://host/")
    assert len(opener.opened) <= 3
    assert sum(lane.served for lane in opener.opened) == 50


def test_a_lane_given_back_after_the_end_is_closed() -> None:
    opener = Opener()
    transport = LaneTransport(opener)
    response = transport.handle_request(httpx.Request("GET", "http://host/"))
    transport.close()
    assert not opener.opened[0].closed
    response.close()
    response.close()
    assert opener.opened[0].closed


async def test_an_async_lane_given_back_after_the_end_is_closed() -> None:
    opener = Opener()
    transport = AsyncLaneTransport(opener)
    response = await transport.handle_async_request(httpx.Request("GET", "http://host/"))
    await transport.aclose()
    assert not opener.opened[0].closed
    await response.aclose()
    await response.aclose()
    assert opener.opened[0].closed


def test_lanes_of_a_real_transport_meet_a_real_socket() -> None:
    """One thread serves two connections of one request each: both lanes work, and the second request reuses a lane."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def serve() -> None:
        connection, _ = listener.accept()
        accepted.append(connection)
        with connection:
            for _ in range(2):
                while b"\r\n\r\n" not in connection.recv(65536):
                    pass
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve)
    thread.start()
    connection = Connection.resolve(f"http://127.0.0.1:{listener.getsockname()[1]}", None, {})
    with httpx.Client(base_url=connection.base_url, transport=LaneTransport.to(connection)) as client:
        assert [client.get("/").text for _ in range(2)] == ["ok", "ok"]
    thread.join()
    listener.close()
    assert len(accepted) == 1
