"""The command ``python -m loanauth_sandbox``.

What may live here: arguments, what is printed at the start, signals. What may not: what the sandbox does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loanauth_sandbox.accounts import (
    AccountsError,
    connections,
    default_accounts,
    read_accounts,
)
from loanauth_sandbox.core import Core, Options
from loanauth_sandbox.faults import describe, load_faults
from loanauth_sandbox.state import Settings
from loanauth_sandbox.tls import CERTIFICATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loanauth_sandbox.faults import Fault

ABOUT = "A stand-in of the loan pricing service, for examples and tests. Everything in it is made up."


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    result = argparse.ArgumentParser(
        prog="python -m loanauth_sandbox",
        description=ABOUT,
        epilog=f"faults, by --fault or PUT /fault on the control listener:\n{describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--host", default="127.0.0.1", help="loopback address to listen on")
    add("--port", type=int, default=0, help="port of the service; 0 for a free one")
    add("--control-port", type=int, default=0, help="port of the control listener; 0 for a free one")
    add("--path-prefix", default="", help="path before the authentication paths, like /tenant1")
    add("--token-lifetime", type=int, default=3600, help="of access tokens, in seconds")
    add(
        "--secret-lifetime",
        type=int,
        default=86_400,
        help="of API secrets at the pricing endpoint, in seconds",
    )
    add("--lockout-after", type=int, default=0, help="wrong passwords that lock a user; 0 for never")
    add("--tls", nargs="?", const="good", choices=CERTIFICATES, help="speak TLS, with this certificate")
    add("--tls-dir", type=Path, help="directory for the certificates; default a temporary one")
    add("--accounts", type=Path, metavar="FILE.json", help="accounts instead of the made-up ones")
    add("--ready-file", type=Path, help="file to write, once listening: JSON with addresses and connections")
    add("--fault", type=_faults, default=[], metavar="JSON", help="a fault, or a list, to start with")
    return result


def _faults(text: str) -> list[Fault]:
    try:
        return load_faults(json.loads(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; return the exit status."""
    arguments = parser().parse_args(argv)
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("loanauth_sandbox").setLevel(logging.INFO)
    try:
        options = Options(
            accounts=read_accounts(arguments.accounts) if arguments.accounts else default_accounts(),
            settings=Settings().changed(
                {
                    "token_lifetime": arguments.token_lifetime,
                    "secret_lifetime": arguments.secret_lifetime,
                    "lockout_after": arguments.lockout_after,
                }
            ),
            host=arguments.host,
            port=arguments.port,
            control_port=arguments.control_port,
            tls=arguments.tls,
            tls_dir=arguments.tls_dir,
            path_prefix=arguments.path_prefix,
            faults=tuple(arguments.fault),
        )
        # Who waits for the file must not find the addresses of a sandbox that is gone.
        _remove(arguments.ready_file)
        asyncio.run(_serve(options, arguments.ready_file))
    except (AccountsError, ValueError, OSError) as error:
        parser().exit(2, f"sandbox: {error}\n")
    return 0


async def _serve(options: Options, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    core = Core(options)
    await core.start()
    try:
        ready = _ready(core)
        _say(greeting(ready))
        if ready_file:
            _write_whole(ready_file, json.dumps(ready, indent=2))
        await stop.wait()
    finally:
        _remove(ready_file)
        await core.stop()
    _say("sandbox: stopped\n")


def _ready(core: Core) -> dict[str, Any]:
    ca_path = str(core.ca_path) if core.ca_path else None
    return {
        "url": core.url,
        "control_url": core.control_url,
        "ca_path": ca_path,
        "pid": os.getpid(),
        "connections": connections(core.state.accounts[0], core.url, ca_path) if core.state.accounts else {},
    }


def greeting(ready: dict[str, Any]) -> str:
    """Return what a person reads at the start.

    :param ready: what the ready file holds.
    """
    lines = [
        ABOUT,
        "POST /oauth/token and GET /encodeAES128/{apiKey}/{userId} follow the service's interface.",
        "Its own inventions: GET / (is it there?), POST /sandbox/price (a made-up rate), the control address.",
        "",
        f"  service:  {ready['url']}",
        f"  control:  {ready['control_url']}  (GET /counters, /requests, /kinds; PUT, DELETE /fault)",
    ]
    if ready["ca_path"]:
        lines.append(f"  CA file:  {ready['ca_path']}")
    lines += ["", "Airflow Connections to paste into a shell:", ""]
    for name, value in ready["connections"].items():
        quoted = json.dumps(value).replace("'", "'\\''")
        lines.append(f"export {name}='{quoted}'")
    return "\n".join([*lines, "", "Ctrl-C ends it.", ""])


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _remove(path: Path | None) -> None:
    if path:
        path.unlink(missing_ok=True)


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is there with all its text or not at all, and that only its owner reads."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
