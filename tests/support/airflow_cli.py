"""
``python -m tests.support.airflow_cli ...``: the command ``airflow``, with tasks that start faster.

From 3.0 to 3.2 ``airflow dags test`` builds Airflow's whole API for tasks again for each task. That takes 3 to 5
seconds, and was most of the time of this suite. 3.3 builds it once and caches it, and so does this module.
"""

from __future__ import annotations

import functools
import sys


def cache_task_api():
    """Make Airflow build its API for tasks once per process. Airflow 2.11 has no such API."""
    try:
        from airflow.sdk.execution_time import supervisor
    except ImportError:
        return
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)


if __name__ == "__main__":
    from airflow.__main__ import main

    if sys.argv[1:3] == ["dags", "test"]:
        cache_task_api()
    sys.exit(main())
