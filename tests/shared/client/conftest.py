import pytest
from support.clients import KINDS, Kind


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each test that asks for it holds for the blocking and for the asynchronous client."""
    chosen: Kind = request.param
    return chosen
