"""The examples' models, trained and built once for all tests that ask for them."""

import pytest
from support.examples import build_example, built_once

from shared.bundle import Bundle


@pytest.fixture(scope="session")
def churn(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built_once("telco_churn/train.py", tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def purchase(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return build_example("purchase/model.py", tmp_path_factory.mktemp("purchase") / "bundle")
