"""The engine ``compiled``: one real compilation for all tests of this file, of a graph with every kind of feature."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import thread_time

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.bundles import entries_of, forge_graph
from support.command import Command

from shared import compiled, container
from shared.bundle import GRAPH, Bundle, load_bundle
from shared.certify import ATOL, RTOL
from shared.compiled import code_key
from shared.encode import EncodedRow
from shared.engine import EngineChoice, compile_bundle
from shared.errors import EngineUnavailable, NotCertified, ScoringError
from shared.memory import ALIGNED
from shared.scorer import Scorer, open_scorer, score_each
from shared.testing.bundles import PURCHASE_FEATURES, every_feature_table
from shared.tile import Arrays, Forward

CPU = "cpu"

pytestmark = pytest.mark.timeout(900)  # a compiler on a busy machine takes minutes


@pytest.fixture(scope="module")
def warm(everything: Bundle, tmp_path_factory: pytest.TempPathFactory) -> EngineChoice:
    """A cache that has the bundle's graph, and the wish for what it has."""
    choice = EngineChoice(wanted="auto", cache=tmp_path_factory.mktemp("host") / "engines")
    compile_bundle(everything, CPU, choice)
    return choice


@pytest.fixture(scope="module")
def scorer(everything: Bundle, warm: EngineChoice) -> Scorer:
    return open_scorer(everything, device="cpu", engine=warm)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")


def test_a_warm_cache_gives_the_compiled_engine(scorer: Scorer, everything_scorer: Scorer) -> None:
    """The compiled graph is certified like the exported one, and scores as it does, within rounding."""
    encoded = scorer.encoder.columns(every_feature_table(500, seed=3))
    assert (scorer.engine, everything_scorer.engine) == ("compiled", "export")
    np.testing.assert_allclose(scorer.score(encoded), everything_scorer.score(encoded), rtol=RTOL, atol=ATOL)


def test_compiled_rows_do_not_depend_on_their_company(scorer: Scorer) -> None:
    """A1: alone by the online door, or all together by the batch door: the same bits, with this engine too."""
    table = every_feature_table(300, seed=4)
    together = scorer.score(scorer.encoder.columns(table))
    alone = np.concatenate([scorer.score(scorer.encoder.rows([row])) for row in table.to_pylist()])
    assert alone.tobytes() == together.tobytes()


def test_a_row_that_came_packed_has_the_bits_of_company(purchase: Bundle, tmp_path: Path) -> None:
    """A1: without tensors a row alone goes to the compiled graph as it was packed, and gets the same bits."""
    choice = EngineChoice(wanted="compiled", cache=tmp_path / "engines")
    scorer = open_scorer(purchase, device="cpu", engine=choice)
    rows = [dict(zip(PURCHASE_FEATURES, values, strict=True)) for values in [(3, 0, 41.5), (0, 2, 7.25), (9, 1, 5)]]
    alone = [scorer.encoder.rows([row]) for row in rows]
    assert {type(row) for row in alone} == {EncodedRow}
    together = scorer.score(scorer.encoder.rows(rows))
    assert np.concatenate([scorer.score(row) for row in alone]).tobytes() == together.tobytes()


def test_two_loads_have_one_digest(everything: Bundle, warm: EngineChoice, scorer: Scorer) -> None:
    """The golden digest is that of the engine: the same code gives the same one each time."""
    assert open_scorer(everything, device="cpu", engine=warm).golden_digest == scorer.golden_digest


def test_scoring_leaves_its_rows_alone(scorer: Scorer) -> None:
    """What was encoded is the same after a pass, and the scores of one pass outlive the next."""
    encoded = scorer.encoder.columns(every_feature_table(40))
    inputs = [part.tobytes() for part in encoded.inputs()]
    scored = score_each(scorer, encoded)
    scores = scored.scores.tobytes()
    scorer.score(scorer.encoder.columns(every_feature_table(40, seed=9)))
    assert ([part.tobytes() for part in encoded.inputs()], scored.scores.tobytes()) == (inputs, scores)


def test_a_failing_pass_tells_no_values(scorer: Scorer) -> None:
    """L3: torch's own texts quote values, so only the kind of error is told."""
    encoded = scorer.encoder.columns(every_feature_table(4))
    with pytest.raises(ScoringError, match=r"forward pass of \d+ rows failed \(\w+\)$") as caught:
        scorer.score(replace(encoded, tensors=()))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("kept", [1, container._KEPT_BYTES])
def test_inputs_have_the_same_bits_wherever_they_lie(
    everything: Bundle, warm: EngineChoice, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A pass runs over copies, in memory that is kept or, of much, in new memory: neither where the inputs lie nor
    whether they may be written matters, and they are not changed."""
    monkeypatch.setattr(container, "_KEPT_BYTES", kept)
    scorer = open_scorer(everything, device="cpu", engine=warm)
    inputs = scorer.encoder.columns(every_feature_table(1024, seed=5)).inputs()
    before = [part.tobytes() for part in inputs]
    whole = scorer.forward(inputs).tobytes()
    tile = scorer.tile.rows
    apart = [scorer.forward(tuple(part[start : start + tile] for part in inputs)) for start in range(0, 1024, tile)]
    shifted = tuple(_shifted(part) for part in inputs)
    for part in inputs:
        part.flags.writeable = False
    assert np.concatenate(apart).tobytes() == whole
    assert scorer.forward(inputs).tobytes() == scorer.forward(shifted).tobytes() == whole
    assert [part.tobytes() for part in inputs] == before


def _shifted(part: np.ndarray) -> np.ndarray:
    """The same numbers, not where torch would have them."""
    memory = np.empty(part.nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED + part.itemsize
    copy = np.ndarray(part.shape, part.dtype, memory, start)
    copy[...] = part
    return copy


def test_a_warm_start_needs_torchs_library_alone(everything: Bundle, warm: EngineChoice, scorer: Scorer) -> None:
    """With a warm cache torch's Python package, seconds of imports, stays out of the process, and the bits are those of
    a process that has it."""
    code = (
        "import sys, pathlib\n"
        "from shared.bundle import load_bundle\n"
        "from shared.engine import EngineChoice\n"
        "from shared.scorer import open_scorer\n"
        "choice = EngineChoice(wanted='auto', cache=pathlib.Path(sys.argv[2]))\n"
        "scorer = open_scorer(load_bundle(pathlib.Path(sys.argv[1])), device='auto', threads=1, engine=choice)\n"
        "print(scorer.engine, scorer.golden_digest, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(everything.path), str(warm.cache)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"compiled {scorer.golden_digest} False\n"


def test_the_first_row_is_as_fast_as_the_hundredth(everything: Bundle, warm: EngineChoice) -> None:
    """Opening has run the graph at the sizes that are used, so the first row waits for nothing: within a bound."""
    scorer = open_scorer(everything, device="cpu", engine=warm)
    row = every_feature_table(1).to_pylist()[0]
    seconds = []
    for _ in range(101):
        start = thread_time()  # not the clock's: a busy machine is no fault
        score_each(scorer, scorer.encoder.rows([row]))
        seconds.append(thread_time() - start)
    assert seconds[0] < 20 * float(np.median(seconds[1:]))


def test_a_pass_runs_in_the_thread_that_asks_alone(everything: Bundle, warm: EngineChoice) -> None:
    """A pass of one tile uses one core, in a thread that never heard of torch's number of threads too."""
    scorer = open_scorer(everything, device="cpu", threads=1, engine=warm)
    encoded = scorer.encoder.columns(every_feature_table(1))
    threads: list[int] = []

    def pass_counted() -> None:
        threads.append(len(list(Path("/proc/self/task").iterdir())))
        scorer.score(encoded)
        threads.append(len(list(Path("/proc/self/task").iterdir())))

    asking = Thread(target=pass_counted)
    asking.start()
    asking.join()
    assert threads[1] == threads[0]


def test_auto_compiles_nothing(everything: Bundle, tmp_path: Path) -> None:
    """With a cold cache a process starts with the exported graph at once, and one warning says how to warm it."""
    choice = EngineChoice(wanted="auto", cache=tmp_path / "engines")
    with capture_logs() as logs:
        assert open_scorer(everything, device="cpu", engine=choice).engine == "export"
    told = [log for log in logs if log["event"] == "engine_export"]
    assert (len(told), told[0]["log_level"]) == (1, "warning")
    assert f"run: forescore bundle compile {everything.path}" in told[0]["reason"]
    assert not choice.cache.exists()


def test_a_wish_that_cannot_be_is_refused(everything: Bundle, tmp_path: Path, no_compiler: None) -> None:
    """Where compiled is demanded and there is neither a cache nor a compiler, nothing scores."""
    choice = EngineChoice(wanted="compiled", cache=tmp_path / "engines")
    with pytest.raises(EngineUnavailable, match=r"no C\+\+ compiler, .* install g\+\+, or bring an engine cache"):
        open_scorer(everything, device="cpu", engine=choice)


def test_a_warm_cache_needs_no_compiler(everything: Bundle, warm: EngineChoice, no_compiler: None) -> None:
    """An image without a compiler runs the compiled engine from a cache that was brought along."""
    assert open_scorer(everything, device="cpu", engine=replace(warm, wanted="compiled")).engine == "compiled"


@pytest.mark.parametrize("wanted", ["auto", "compiled"])
def test_a_folder_open_to_others_is_not_run_from(everything: Bundle, warm: EngineChoice, wanted: str) -> None:
    """Code is run only from a private folder: auto goes on without it, compiled refuses."""
    warm.cache.chmod(0o777)
    try:
        if wanted == "auto":
            assert open_scorer(everything, device="cpu", engine=warm).engine == "export"
        else:
            with pytest.raises(EngineUnavailable, match="is not private"):
                open_scorer(everything, device="cpu", engine=replace(warm, wanted="compiled"))
    finally:
        warm.cache.chmod(0o700)


def test_code_that_torch_cannot_load_is_not_used(everything: Bundle, tmp_path: Path) -> None:
    """An entry that is whole, and no code of this host: auto goes on with the exported graph."""
    choice = EngineChoice(wanted="auto", cache=tmp_path / "engines")
    _put(everything, choice, lambda code: code.write_bytes(b"not code"))
    with capture_logs() as logs:
        assert open_scorer(everything, device="cpu", engine=choice).engine == "export"
    assert "cannot be loaded by torch" in str([log.get("reason") for log in logs])


def test_code_that_scores_otherwise_is_not_used(
    everything: Bundle, warm: EngineChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The golden rows decide: compiled code whose scores are not the bundle's is never scored with."""
    really = compiled.open_compiled

    def otherwise(code: Path) -> Forward:
        forward = really(code)

        def off(inputs: Arrays) -> np.ndarray:
            return forward(inputs) + np.float32(0.1)

        return off

    monkeypatch.setattr("shared.scorer.open_compiled", otherwise)
    assert open_scorer(everything, device="cpu", engine=warm).engine == "export"
    with pytest.raises(NotCertified, match="golden rows score otherwise"):
        open_scorer(everything, device="cpu", engine=replace(warm, wanted="compiled"))


def test_a_graph_that_is_refused_is_not_compiled(copied: Bundle, tmp_path: Path) -> None:
    """What may not be loaded may not be compiled either: the archive is checked first, and the cache stays empty."""
    entries = entries_of(copied.read(GRAPH))
    forged = load_bundle(forge_graph(copied, {**entries, "data/sample_inputs/model.pt": b"pickle"}))
    choice = EngineChoice(wanted="compiled", cache=tmp_path / "engines")
    with pytest.raises(EngineUnavailable, match=r"cannot be compiled on this host: .*graph\.pt2 is refused"):
        compile_bundle(forged, CPU, choice)
    assert not list(choice.cache.glob("*.so"))


def test_the_key_names_all_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another bundle, device, torch, processor or way of compiling is another entry."""
    keys = [code_key("a", "cpu"), code_key("b", "cpu"), code_key("a", "cuda:0")]
    for target, value in (
        ("shared.compiled.torch_build", lambda: ("9.9", "a")),
        ("shared.compiled.processor", lambda: "another"),
        ("shared.compiled.OPTIONS", {}),
        ("shared.compiled.FORWARD_ROWS", 1),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, value)
            keys.append(code_key("a", "cpu"))
    assert len(set(keys)) == len(keys)
    assert code_key("a", "cpu") == keys[0]


def test_the_command_compiles_and_check_says_what_runs(
    everything: Bundle, warm: EngineChoice, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bundle compile` warms the cache that `bundle check` and all others then find."""
    monkeypatch.setenv("FORESCORE_ENGINE_CACHE", str(warm.cache))
    monkeypatch.setenv("FORESCORE_ENGINE", "auto")
    monkeypatch.setenv("FORESCORE_DEVICE", "cpu")
    assert command("bundle", "compile", everything.path) == 0
    assert "compiling for this host, which happens once" in command.out
    assert "compiled everything 1 in" in command.out
    assert command("bundle", "check", everything.path) == 0
    assert command.told("  engine") == "compiled"


def test_a_device_without_it_runs_the_exported_graph(everything: Bundle, warm: EngineChoice) -> None:
    """Where the device is no CPU, compiled is refused, and said to be."""
    with pytest.raises(EngineUnavailable, match="on meta the exported graph is run"):
        compile_bundle(everything, "meta", warm)


def _put(bundle: Bundle, choice: EngineChoice, write: Callable[[Path], object]) -> None:
    from shared.engine_cache import EngineCache  # noqa: PLC0415

    EngineCache(choice.cache).make(code_key(bundle.digest, "cpu"), {}, lambda code, _: write(code) and None)
