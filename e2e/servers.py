"""PostgreSQL and Redis from the distribution's packages, on free ports of the loopback address."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwnam
from typing import TYPE_CHECKING

from e2e.standalone import free_port
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
#: Redis appends each command to a file as plain text. The audit finds also what Redis has deleted.
REDIS_SETTINGS = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "0",
}


def missing_servers() -> str:
    """Return a sentence that names the packages of the servers that are not installed; empty if none is missing."""
    missing = [] if _postgresql_programs() else ["PostgreSQL (package postgresql)"]
    if not shutil.which("redis-server"):
        missing.append("Redis (package redis-server)")
    return f"Not installed, with the package of Debian and Ubuntu: {', '.join(missing)}" if missing else ""


def _postgresql_programs() -> Path | None:
    """Return the directory of ``postgres`` and ``initdb``: on the path, or Debian's newest."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    newest = sorted(DEBIAN_POSTGRESQL.glob("*/bin/postgres"), key=lambda path: float(path.parent.parent.name))
    return newest[-1].parent if newest else None


@dataclass
class Server(ABC):
    """A server that can be started again after it has ended."""

    command: tuple[str, ...]
    environment: dict[str, str]
    user: str | None
    port: int
    password: str
    data: Path
    program: subprocess.Popen[bytes] = field(init=False)

    def start(self, programs: Programs) -> None:
        """Start it, and wait until it accepts connections."""
        name = type(self).__name__.lower()
        log = programs.log(name)
        before = log.stat().st_size if log.exists() else 0
        self.program = programs.start_command(name, *self.command, environment=self.environment, user=self.user)

        def is_ready() -> bool:
            programs.succeeded(name, self.program)
            return self.is_ready(log.read_bytes()[before:])

        programs.wait(f"the start of {type(self).__name__}", is_ready, seconds=START_TIMEOUT)

    @abstractmethod
    def is_ready(self, output: bytes) -> bool:
        """Return whether it accepts connections."""


@dataclass
class PostgreSQL(Server):
    """PostgreSQL with one empty database."""

    @property
    def url(self) -> str:
        """The address for SQLAlchemy."""
        return f"postgresql+psycopg2://airflow:{self.password}@127.0.0.1:{self.port}/postgres"

    def query(self, sql: str) -> bytes:
        """Run a query with ``psql``."""
        done = subprocess.run(  # noqa: S603 - psql
            [Path(self.command[0]).with_name("psql"), "-XAt", "-v", "ON_ERROR_STOP=1", "-c", sql],
            env=os.environ
            | {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.port),
                "PGUSER": "airflow",
                "PGPASSWORD": self.password,
                "PGDATABASE": "postgres",
            },
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
            start_new_session=True,  # Ctrl-C is for this program, which then stops all others
        )
        if done.returncode:
            raise ProgramError(f"a query of PostgreSQL failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def is_ready(self, _: bytes) -> bool:
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


def start_postgresql(programs: Programs, directory: Path) -> PostgreSQL:
    """Start PostgreSQL."""
    binaries = _postgresql_programs()
    if binaries is None:
        raise ProgramError(missing_servers())
    home = directory / "postgresql"
    home.mkdir(mode=0o700)
    user = POSTGRESQL_USER if os.geteuid() == 0 else None
    data, port, password = home / "data", free_port(), secrets.token_hex(16)
    password_file = home / "password"
    password_file.write_text(password)
    if user:
        for path in (home, password_file):
            os.chown(path, getpwnam(user).pw_uid, -1)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(home)}
    authentication = ("--username", "airflow", "--pwfile", str(password_file), "--auth", "scram-sha-256")
    initdb = programs.start_command(
        "initdb",
        *(str(binaries / "initdb"), "--pgdata", str(data), *authentication, "--no-sync"),
        environment=environment,
        user=user,
    )
    programs.wait("initdb", lambda: programs.succeeded("initdb", initdb), seconds=START_TIMEOUT)
    password_file.unlink()
    settings = [part for name, value in POSTGRESQL_SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = (str(binaries / "postgres"), "-D", str(data), "-p", str(port), *settings)
    server = PostgreSQL(command, environment, user, port, password, data)
    server.start(programs)
    return server


@dataclass
class Redis(Server):
    """Redis."""

    def url(self, database: int) -> str:
        """Return the address of one of its databases."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/{database}"

    def is_ready(self, output: bytes) -> bool:
        """Return whether it accepts connections."""
        return b"Ready to accept connections" in output


def start_redis(programs: Programs, directory: Path) -> Redis:
    """Start Redis."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise ProgramError(missing_servers())
    home = directory / "redis"
    data = home / "data"
    data.mkdir(parents=True)
    command = (binary, str(home / "redis.conf"))
    server = Redis(command, {"PATH": os.environ["PATH"]}, None, free_port(), secrets.token_hex(16), data)
    # The password is in a file, because every user of the machine can read command lines.
    settings = REDIS_SETTINGS | {"port": str(server.port), "requirepass": server.password, "dir": str(data)}
    configuration = home / "redis.conf"
    configuration.touch(mode=0o600)
    configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    server.start(programs)
    return server
