"""What routes share: there while the server runs, given without a thread."""

from __future__ import annotations

import inspect
from dataclasses import fields

from starlette.requests import Request

from bird_server.state import State, state_of
from bird_world import World


async def test_routes_get_the_servers_own_parts(world: World) -> None:
    request = Request({"type": "http", "app": world.app, "headers": []})
    state = await state_of(request)
    assert state is world.app.state.parts
    assert all(getattr(state, field.name) is not None for field in fields(State))
    assert state.clock is world.clock


def test_it_is_a_coroutine_since_a_plain_function_would_take_a_thread() -> None:
    assert inspect.iscoroutinefunction(state_of)
