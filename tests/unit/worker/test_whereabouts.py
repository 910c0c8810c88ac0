"""What is read off the stack of a thread that does not come forward."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workers.worker.whereabouts import look


@contextmanager
def stuck(file: str) -> Iterator[int]:
    """The id of a thread that waits in a function of that file, until the end."""
    entered, freed = threading.Event(), threading.Event()
    scope = {"entered": entered, "freed": freed}
    exec(compile("def wait_here():\n    entered.set()\n    freed.wait()\n", file, "exec"), scope)
    thread = threading.Thread(target=scope["wait_here"])  # type: ignore[arg-type]
    thread.start()
    assert entered.wait(20)
    try:
        yield thread.ident or 0
    finally:
        freed.set()
        thread.join()


def test_the_users_own_line_is_named_behind_the_library_that_it_called() -> None:
    with stuck("/home/me/model.py") as thread:
        doing, place = look(thread)
    assert doing == "computing"
    assert place.startswith("wait_here (/home/me/model.py:")


def test_a_thread_in_a_collective_is_a_waiting_one() -> None:
    with stuck("/x/workers/engine/zero/collectives.py") as thread:
        assert look(thread)[0] == "waiting"


def test_a_thread_that_writes_a_checkpoint_is_no_hung_one() -> None:
    with stuck("/x/workers/checkpoint/writer.py") as thread:
        assert look(thread)[0] == "saving"


def test_a_thread_that_is_gone_is_idle() -> None:
    with stuck("/home/me/model.py") as thread:
        pass
    assert look(thread) == ("idle", "no thread")
