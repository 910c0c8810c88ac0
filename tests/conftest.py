"""How the suite is shared out to the processes of pytest-xdist."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Each of these starts a Ray, a service or a browser once for all its tests: its files stay together in one process.
TOGETHER = ("tests/elastic", "tests/e2e", "tests/browser")


class ByWhatTheyShare(LoadScopeScheduling):
    """A folder whose tests share something costly goes to one process whole; everything else goes file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.rpartition("/")[0]
        return folder if folder in TOGETHER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByWhatTheyShare(config, log)
