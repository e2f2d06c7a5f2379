"""What tests of a trainer, of an adapter or of a server need; ships with the package.

* `in_process(app)`, `in_process_async(app)`: any ASGI application under a client, without sockets, lifespan included.
* `blocking(app)`: an `AsyncClient` in the clothes of a `Client`, so that one test suite runs on both.
* `ClientContract` with a `World`: the test suite that every pair of client and server passes.
* `set_testing()`: takes the waits out of retries. `FakeClock`: time that passes only when told.

Nothing here imports a test framework.
"""

from __future__ import annotations

from bird_env._retry import set_testing
from bird_env.testing.clock import FakeClock
from bird_env.testing.contract import ClientContract, World
from bird_env.testing.in_process import blocking, in_process, in_process_async

__all__ = ["ClientContract", "FakeClock", "World", "blocking", "in_process", "in_process_async", "set_testing"]
