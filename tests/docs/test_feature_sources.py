import json
import re
import shlex
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.servers import ValkeyProcess
from support.services import service_settings, serving
from support.tables import DOCS

import forescore
from shared.scorer import Scorer, open_scorer
from shared.testing.bundles import purchase_bundle
from shared.testing.store import MemoryStore

PAGE = (DOCS / "feature-sources.md").read_text(encoding="utf-8")
KNOWN = {"visits": 1, "returns": 0, "basket": 2}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return open_scorer(purchase_bundle(tmp_path_factory.mktemp("docs") / "bundle"), device="cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, and him in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def settings_of_the_page(start: str) -> str:
    """What the page says that FORESCORE_FEATURES__URL is."""
    (found,) = re.findall(rf"FORESCORE_FEATURES__URL=({start}[^`]*)`", PAGE)
    return str(found)


def test_the_database_of_the_page_is_read(scorer: Scorer) -> None:
    """The script makes it, the setting names it, and its customers are scored."""
    exec(blocks("python")[0], {})  # noqa: S102 - the page's own code
    settings = service_settings(scorer, features=settings_of_the_page("sqlite"))
    with serving(scorer, MemoryStore("purchase"), settings) as client:
        assert client.get("/score/visitor-7").json()["scores"] == {"buys": 0.8581489}
        assert client.get("/score/visitor-8").json()["scores"] == {"buys": 0.3100255}
        assert client.get("/score/visitor-9").status_code == 404


def test_the_source_of_the_page_works(scorer: Scorer, folder: Path) -> None:
    """Saved under its name, it is found and asked; when its file is gone, it fails and the service goes on."""
    code = blocks("python")[1]
    (folder / code.split()[1]).write_text(code, encoding="utf-8")
    (folder / "sessions.json").write_text(json.dumps({"visitor-7": {**KNOWN, "other": "x"}, "half": {"visits": 1}}))
    settings = service_settings(scorer, features=settings_of_the_page("store,"))
    with serving(scorer, MemoryStore("purchase"), settings) as client:
        assert _sources(client) == {"store": "ok", "sessions": "ok"}
        assert client.get("/score/visitor-7").json()["scores"] == {"buys": 0.8581489}
        refused = client.get("/score/half")
        assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "missing", "returns")
        assert client.get("/score/nobody").status_code == 404
        (folder / "sessions.json").unlink()
        assert client.get("/score/visitor-7b").status_code == 503
        assert client.get("/readyz").json()["status"] == "degraded"
        assert _sources(client)["sessions"] == "failing"


def _sources(client: TestClient) -> dict[str, str]:
    checks = client.get("/readyz?verbose").json()["checks"]
    return {name: one["status"] for name, one in checks["features"].items()}


def test_the_requests_of_the_page_are_taken(scorer: Scorer) -> None:
    """PUT with its body, and DELETE."""
    (line,) = re.findall(r"^ +PUT (\S+) +(\{.*\})$", PAGE, re.MULTILINE)
    with serving(scorer, MemoryStore("purchase"), service_settings(scorer)) as client:
        assert client.put(line[0], content=line[1]).status_code == 204
        assert client.get("/score/visitor-7").json()["scores"] == {"buys": 0.8581489}
        (path,) = re.findall(r"^ +DELETE (\S+)$", PAGE, re.MULTILINE)
        assert client.delete(path).status_code == 204
        assert client.get("/score/visitor-7").status_code == 404


def test_the_command_of_the_page_loads_a_table(
    scorer: Scorer, folder: Path, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands there."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", valkey.url)
    (folder / "bundle").symlink_to(scorer.bundle.path)
    (folder / "visitors.csv").write_text("customer_id,visits,returns,basket\nvisitor-7,1,0,2\n")
    (command,) = blocks("sh")

    assert forescore.run(shlex.split(command)[1:]) == 0
