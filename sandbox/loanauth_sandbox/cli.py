"""The command ``loanauth-sandbox``, also ``python -m loanauth_sandbox``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loanauth_sandbox import __version__
from loanauth_sandbox.faults import Fault, describe, load_faults
from loanauth_sandbox.server import serve

ABOUT = "A stand-in for the loan pricing service, for examples and tests. Everything in it is made up."


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    result = argparse.ArgumentParser(
        prog="loanauth-sandbox",
        description=ABOUT,
        epilog=f"""\
faults, for --fault and for PUT /fault of the control API, as JSON: {{"kind": "status", "status": 429, "times": 2}}
Each fault except refuse, stall, certificate and lockout also takes "where" (the endpoint: token, secret, price, probe
or any; default: any), "times" (to how many requests it applies; default: all) and "lasts" (for how many seconds from
when it is switched on; default: until it is cleared).
Of several faults, the first one that matches a request applies, in the order given, each for its "times".

{describe()}""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("--port", type=int, default=0, help="port of the service (default: a free one)")
    add("--control-port", type=int, default=0, help="port of the control API (default: a free one)")
    add("--path-prefix", default="", help="path before the authentication paths, such as /tenant1")
    add("--token-lifetime", type=int, default=3600, help="lifetime of access tokens in seconds (default: %(default)s)")
    limit = "a credential prices one loan only, and the token response says so; the error for a second loan is made up"
    add("--one-loan-per-session", action="store_true", help=limit)
    add("--tls", action="store_true", help="use TLS, with an authority of its own")
    add("--ready-file", type=Path, help="JSON file with addresses and Connections, written when the sandbox listens")
    fault = "a fault, or a list, to start with; may be repeated"
    add("--fault", dest="faults", action="extend", type=_faults, default=[], metavar="JSON", help=fault)
    return result


def _faults(text: str) -> list[Fault]:
    try:
        return load_faults(json.loads(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM, and return the exit status."""
    arguments = vars(parser().parse_args(argv))
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("loanauth_sandbox").setLevel(logging.INFO)
    ready_file = arguments["ready_file"]
    try:
        if ready_file:
            # A program that waits for the file must not read the addresses of an earlier sandbox.
            ready_file.unlink(missing_ok=True)
        asyncio.run(_serve(**arguments))
        if ready_file:
            ready_file.unlink(missing_ok=True)
    except (ValueError, OSError) as error:
        parser().exit(2, f"loanauth-sandbox: {error}\n")
    return 0


async def _serve(ready_file: Path | None, **options: Any) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(**options) as sandbox:
        ready = {
            "url": sandbox.url,
            "pricing_url": sandbox.pricing_url,
            "control_url": sandbox.control_url,
            "ca_path": sandbox.ca_path,
            "connections": sandbox.connections(),
        }
        print(_greeting(ready), flush=True)
        if ready_file:
            _write(ready_file, json.dumps(ready, indent=2))
        await stop.wait()
    print("loanauth-sandbox: stopped", flush=True)


def _greeting(ready: dict[str, Any]) -> str:
    """Return the text that is printed at the start, from the content of the ready file."""
    lines = [
        ABOUT,
        "POST /oauth/token and GET /encodeAES128/{apiKey}/{userId} follow the interface of the service.",
        "Not part of the interface: GET / (a probe), POST /sandbox/price (a made-up rate), and the control address.",
        "",
        f"  service:  {ready['url']}",
        f"  pricing:  {ready['pricing_url']}",
        f"  control:  {ready['control_url']}  (GET /counters, PUT /fault, PUT /password, and more)",
    ]
    if ready["ca_path"]:
        lines.append(f"  CA file:  {ready['ca_path']}")
    lines += ["", "Airflow Connections, to paste into a shell:", ""]
    lines += [f"export {name}={shlex.quote(json.dumps(value))}" for name, value in ready["connections"].items()]
    return "\n".join([*lines, "", "Press Ctrl-C to stop."])


def _write(path: Path, text: str) -> None:
    """Write a file atomically, so that no program reads half of it, and readable by its owner only."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(0o600)
    part.write_text(text, encoding="utf-8")
    part.replace(path)
