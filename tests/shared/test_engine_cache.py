"""The cache of compiled graphs, with text in the place of code."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import orjson
import pytest

from shared.engine_cache import EngineCache
from shared.errors import EngineUnavailable

KEY = "k" * 64


class Compiler:
    """Writes text, and counts how often."""

    def __init__(self, text: str = "code") -> None:
        self.text = text
        self.calls = 0

    def __call__(self, code: Path, work: Path) -> None:
        self.calls += 1
        assert work.is_dir()
        code.write_text(self.text)


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "home" / "engines")


def test_code_is_made_once(cache: EngineCache) -> None:
    """What was compiled is found under its key, by who compiles and by who only looks, and under no other key."""
    compiler = Compiler()
    assert cache.find(KEY) is None
    made = cache.make(KEY, {"model": "m"}, compiler)
    assert made.read_text() == "code"
    assert (cache.make(KEY, {}, compiler), cache.find(KEY), cache.find("other"), compiler.calls) == (
        made,
        made,
        None,
        1,
    )
    assert orjson.loads(made.with_suffix(".json").read_bytes())["model"] == "m"


def test_the_folder_and_the_code_are_private(cache: EngineCache) -> None:
    """Nobody else may read or write what is executed, and nothing but it and its note stays behind."""
    made = cache.make(KEY, {}, Compiler())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(file.name for file in cache.folder.iterdir()) == [".lock", f"{KEY}.json", f"{KEY}.so"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o720])
def test_a_folder_that_is_open_to_others_is_refused(cache: EngineCache, mode: int) -> None:
    """Code that others may have put there is never run: finding and making both refuse, and say what to do."""
    cache.make(KEY, {}, Compiler())
    cache.folder.chmod(mode)
    for call in (lambda: cache.find(KEY), lambda: cache.make(KEY, {}, Compiler())):
        with pytest.raises(EngineUnavailable, match=r"is not private: .* chmod 700 it, or name another"):
            call()


def test_a_link_in_the_place_of_the_folder_is_refused(cache: EngineCache, tmp_path: Path) -> None:
    """A link may lead into a folder of somebody else."""
    (tmp_path / "real").mkdir(mode=0o700)
    cache.folder.parent.mkdir()
    cache.folder.symlink_to(tmp_path / "real")
    with pytest.raises(EngineUnavailable, match="is not a folder"):
        cache.find(KEY)


def _cut(code: Path, _: Path) -> None:
    code.write_bytes(code.read_bytes()[:-1])


def _flip(code: Path, _: Path) -> None:
    code.write_bytes(b"X" + code.read_bytes()[1:])


def _empty(code: Path, _: Path) -> None:
    code.write_bytes(b"")


def _gone(code: Path, _: Path) -> None:
    code.unlink()


def _link(code: Path, _: Path) -> None:
    code.rename(code.with_suffix(".moved"))
    code.symlink_to(code.with_suffix(".moved"))


def _no_note(_: Path, note: Path) -> None:
    note.unlink()


def _bad_note(_: Path, note: Path) -> None:
    note.write_bytes(b'["sha256"]')


def _half_note(_: Path, note: Path) -> None:
    note.write_bytes(note.read_bytes()[:20])


@pytest.mark.parametrize("spoil", [_cut, _flip, _empty, _gone, _link, _no_note, _bad_note, _half_note])
def test_a_broken_entry_is_made_anew(cache: EngineCache, spoil: Callable[[Path, Path], None]) -> None:
    """What is not as it was written is not there, and compiling puts it right."""
    made = cache.make(KEY, {}, Compiler())
    spoil(made, made.with_suffix(".json"))
    assert cache.find(KEY) is None
    compiler = Compiler()
    assert cache.make(KEY, {}, compiler).read_text() == "code"
    assert (compiler.calls, cache.find(KEY)) == (1, made)


def test_two_that_compile_at_once_make_one(cache: EngineCache) -> None:
    """Who comes second waits, and takes what the first one made."""
    compiler, start = Compiler(), Barrier(4)

    def make(_: int) -> Path:
        start.wait()
        return cache.make(KEY, {}, compiler)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(4)))) == 1
    assert compiler.calls == 1


def test_a_compiler_that_fails_leaves_nothing(cache: EngineCache) -> None:
    """After a failure there is no entry and no work folder, and the next one can compile."""

    def fail(code: Path, work: Path) -> None:
        code.write_text("half")
        raise EngineUnavailable("no")

    with pytest.raises(EngineUnavailable, match=r"^no$"):
        cache.make(KEY, {}, fail)
    assert [file.name for file in cache.folder.iterdir()] == [".lock"]
    assert cache.make(KEY, {}, Compiler()).read_text() == "code"


def test_what_a_killed_compiler_left_is_swept_away(cache: EngineCache) -> None:
    """The work folder of a process that died is removed by the next one that compiles."""
    cache.make("other", {}, Compiler())
    (cache.folder / ".work-dead" / "inductor").mkdir(parents=True)
    cache.make(KEY, {}, Compiler())
    assert not (cache.folder / ".work-dead").exists()


def test_a_disk_that_cannot_be_written_is_told(cache: EngineCache) -> None:
    """A full or read-only disk is no code and a next step, and not a traceback."""

    def full(code: Path, work: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(EngineUnavailable, match="no space left on device; make room, or name another folder"):
        cache.make(KEY, {}, full)
    cache.folder.parent.joinpath("file").write_text("")
    with pytest.raises(EngineUnavailable, match="cannot be written to: not a directory"):
        EngineCache(cache.folder.parent / "file" / "engines").make(KEY, {}, Compiler())


def test_a_relative_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default home is relative, and a compiler runs in another folder: what it is told holds there too."""
    monkeypatch.chdir(tmp_path)

    def compile_elsewhere(code: Path, work: Path) -> None:
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(work)
            code.write_text("code")

    assert EngineCache(Path("home", "engines")).make(KEY, {}, compile_elsewhere).read_text() == "code"
