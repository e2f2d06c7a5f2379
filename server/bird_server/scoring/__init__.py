"""Official scoring: the public evaluator's verdict on a solution, from a fresh process on a private copy.

    pool (asyncio, in the service) ── socket ──► zygote (single thread, stdlib only) ──fork──► child (one scoring)

`job` is what travels; `comparison` and `helpers` are what the benchmark's tests are offered; `official` is the flow of
one scoring; `child`, `sandbox` and `procfs` put it into a process that can harm nobody; `zygote` starts, times and
ends such processes; `pool` is the door for the service. `runner`, `report` and `conformance` score whole files.

Nothing is imported here, so that a scoring child stays small.
"""
