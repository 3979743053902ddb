"""PostgreSQL and Redis from the distribution's packages, on free ports of the loopback address."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwnam
from typing import TYPE_CHECKING

from e2e.airflow import free_port
from scripts.programs import ProgramError, Programs

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT = 60.0  # seconds until a server accepts connections; it needs about 2
COMMAND_TIMEOUT = 60.0  # seconds of a query
#: Debian's directory for the programs of PostgreSQL, which are not on the path.
DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")
#: PostgreSQL does not run as root. Debian's package creates this user.
POSTGRESQL_USER = "postgres"
#: Nothing must survive a power cut, so PostgreSQL does not wait for the disk.
POSTGRESQL_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}
#: Redis appends each command to a file as plain text, in which the audit finds also what Redis has deleted.
REDIS_SETTINGS = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "0",
}


@dataclass
class PostgreSQL:
    """A running PostgreSQL with one empty database."""

    programs: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """The address for SQLAlchemy."""
        return f"postgresql+psycopg2://airflow:{self.password}@127.0.0.1:{self.port}/postgres"

    def query(self, sql: str) -> bytes:
        """Run a query with ``psql``."""
        settings = {"HOST": "127.0.0.1", "PORT": str(self.port), "USER": "airflow", "DATABASE": "postgres"}
        settings["PASSWORD"] = self.password
        done = subprocess.run(  # noqa: S603 - psql
            [self.programs / "psql", "-XAt", "-v", "ON_ERROR_STOP=1", "-c", sql],
            env=os.environ | {f"PG{name}": value for name, value in settings.items()},
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
            start_new_session=True,  # Ctrl-C is for this program, which then stops all others
        )
        if done.returncode:
            raise ProgramError(f"a query of PostgreSQL failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        try:
            return self.query("SELECT 1") == b"1\n"
        except ProgramError:
            return False

    def rows(self, sql: str) -> list[list[str]]:
        """Return the rows of a query whose values contain neither ``|`` nor line breaks."""
        return [line.split("|") for line in self.query(sql).decode().splitlines()]

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the binary content of each table that has rows."""
        for schema, table in self.rows("SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public'"):
            yield table, self.query(f'COPY {schema}."{table}" TO STDOUT (FORMAT binary)')


def _postgresql_programs() -> Path:
    """Return the directory of ``postgres`` and ``initdb``: on the path, or Debian's newest."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    newest = sorted(DEBIAN_POSTGRESQL.glob("*/bin/postgres"), key=lambda path: float(path.parent.parent.name))
    if not newest:
        raise ProgramError("PostgreSQL is not installed (on Debian and Ubuntu: the package postgresql)")
    return newest[-1].parent


def start_postgresql(programs: Programs, directory: Path) -> PostgreSQL:
    """Start PostgreSQL, and wait until it accepts connections."""
    binaries = _postgresql_programs()
    home = directory / "postgresql"
    home.mkdir(mode=0o700)
    user = POSTGRESQL_USER if os.geteuid() == 0 else None
    data, password_file = home / "data", home / "password"
    server = PostgreSQL(binaries, free_port(), secrets.token_hex(16))
    password_file.write_text(server.password)
    if user:
        for path in (home, password_file):
            os.chown(path, getpwnam(user).pw_uid, -1)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(home)}
    authentication = ("--username", "airflow", "--pwfile", str(password_file), "--auth", "scram-sha-256")
    command = (str(binaries / "initdb"), "--pgdata", str(data), *authentication, "--no-sync")
    initdb = programs.start_command("initdb", *command, environment=environment, user=user)
    programs.wait("initdb", lambda: programs.succeeded("initdb", initdb), seconds=START_TIMEOUT)
    password_file.unlink()
    settings = [part for name, value in POSTGRESQL_SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = (str(binaries / "postgres"), "-D", str(data), "-p", str(server.port), *settings)
    programs.start_command("postgresql", *command, environment=environment, user=user)
    programs.wait("the start of PostgreSQL", server.is_ready, seconds=START_TIMEOUT)
    return server


def start_redis(programs: Programs, directory: Path) -> str:
    """Start Redis, wait until it accepts connections, and return its address."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise ProgramError("Redis is not installed (on Debian and Ubuntu: the package redis-server)")
    home = directory / "redis"
    home.mkdir()
    port, password = free_port(), secrets.token_hex(16)
    # The password is in a file, because every user of the machine can read command lines.
    settings = REDIS_SETTINGS | {"port": str(port), "requirepass": password, "dir": str(home)}
    configuration = home / "redis.conf"
    configuration.touch(mode=0o600)
    configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    programs.start_command("redis", binary, str(configuration), environment={"PATH": os.environ["PATH"]})
    ready = "Ready to accept connections"
    programs.wait("the start of Redis", lambda: ready in programs.log("redis").read_text(), seconds=START_TIMEOUT)
    return f"redis://:{password}@127.0.0.1:{port}"
