"""Bundles that many tests look at and none changes: a test that breaks one copies it first."""

import shutil
from pathlib import Path

import pytest

from shared.bundle import Bundle, load_bundle
from shared.scorer import Scorer, open_scorer
from shared.testing.bundles import every_feature_bundle, purchase_bundle


@pytest.fixture(scope="session")
def purchase(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return purchase_bundle(tmp_path_factory.mktemp("bundles") / "purchase")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return every_feature_bundle(tmp_path_factory.mktemp("bundles") / "everything")


@pytest.fixture(scope="session")
def purchase_scorer(purchase: Bundle) -> Scorer:
    return open_scorer(purchase, device="cpu")


@pytest.fixture(scope="session")
def everything_scorer(everything: Bundle) -> Scorer:
    return open_scorer(everything, device="cpu")


@pytest.fixture
def copied(purchase: Bundle, tmp_path: Path) -> Bundle:
    """A bundle that the test may break."""
    shutil.copytree(purchase.path, tmp_path / "copied")
    return load_bundle(tmp_path / "copied")
