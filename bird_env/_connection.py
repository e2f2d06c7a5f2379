"""Where the service is and how connections to it are held: what both clients share below their calls.

Address and token come from the arguments, else from BIRD_ENV_URL and BIRD_ENV_TOKEN, else from the defaults. A proxy is
taken from the usual variables (HTTP_PROXY, NO_PROXY, …), but never for this machine itself: a proxy cannot reach it.
Left out: sending (`_lanes`) and repeating (`_retry`).
"""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import httpx

URL_VARIABLE = "BIRD_ENV_URL"
TOKEN_VARIABLE = "BIRD_ENV_TOKEN"
DEFAULT_BASE_URL = "http://127.0.0.1:8000"

#: A server that runs has a socket to accept with; more than this is no server.
CONNECT_TIMEOUT_S = 10.0
#: A step may take its wall-clock backstop (120 s by default) and a scoring its limit, queues aside.
READ_TIMEOUT_S = 200.0
WRITE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a service and the right to use it.

    Attributes:
        base_url: `http://host:port`, perhaps with a path before the service's own.
        token: Bearer token, or None.
        proxy: The proxy's URL, or None.
    """

    base_url: httpx.URL
    token: str | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)

    @classmethod
    def resolve(cls, base_url: str | None, token: str | None, environ: Mapping[str, str]) -> Connection:
        """
        Raises:
            ValueError: base_url is no http(s) address, or the token cannot stand in a header.
        """
        text = base_url or environ.get(URL_VARIABLE) or DEFAULT_BASE_URL
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            raise ValueError(f"base_url must be like {DEFAULT_BASE_URL}, not {text!r}: {error}") from error
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError(f"base_url must be like {DEFAULT_BASE_URL}, not {text!r}")
        token = token or environ.get(TOKEN_VARIABLE) or None
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise ValueError("a token is printable ASCII without blanks; is there a line break at its end?")
        return cls(url, token, _proxy(url))

    def headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"bird-env/{_version()}"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def timeouts(connect_s: float, read_s: float) -> httpx.Timeout:
    """Waiting for a free connection is bounded by the rollouts that hold them, not by a clock of its own."""
    return httpx.Timeout(connect=connect_s, read=read_s, write=WRITE_TIMEOUT_S, pool=None)


def _version() -> str:
    try:
        return version("bird-env")
    except PackageNotFoundError:
        return "unknown"


def _proxy(url: httpx.URL) -> str | None:
    if _is_loopback(url.host) or urllib.request.proxy_bypass(url.netloc.decode("ascii")):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
