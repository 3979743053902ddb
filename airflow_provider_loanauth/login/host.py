"""Which process and host this is: as text for people, and as an id of the host."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from airflow_provider_loanauth._compat import current_task
from airflow_provider_loanauth.system import system

#: Changes whenever a machine starts.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: What decides how a process of this machine reaches the service. Proxies are also set in lower case.
_NETWORK_SETTINGS = ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def this_process() -> str:
    """Return the current task and this host, as text for people."""
    task, host = current_task(), system.hostname()
    if task is None:
        return host
    index = ""
    if task.map_index is not None and task.map_index >= 0:
        index = f"[{task.map_index}]"
    return f"{task.dag_id}.{task.task_id}{index} on {host}"


def this_host() -> str:
    """Return an id of this host. Two machines with one name have two, and so have two networks of one machine."""
    known: list[str | None] = [system.hostname()]
    with suppress(OSError):
        known.append(_BOOT_ID.read_text())
    for name in _NETWORK_SETTINGS:
        known += [os.environ.get(name), os.environ.get(name.lower())]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
