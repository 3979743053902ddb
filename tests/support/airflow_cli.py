"""
``python airflow_cli.py ...``: the command ``airflow``, whose tasks start sooner.

From 3.0 to 3.2 ``airflow dags test`` builds Airflow's whole API for tasks anew for each task: 3 to 5 seconds of work,
and most of what this suite took. 3.3 builds it once and keeps it; so does this.
"""

from __future__ import annotations

import functools
import sys


def keep_the_task_api():
    """Have Airflow build its API for tasks once a process; on 2.11 there is none."""
    try:
        from airflow.sdk.execution_time import supervisor
    except ImportError:
        return
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)


if __name__ == "__main__":
    from airflow.__main__ import main

    if sys.argv[1:3] == ["dags", "test"]:
        keep_the_task_api()
    sys.exit(main())
