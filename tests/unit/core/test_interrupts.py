"""Ctrl-C and SIGTERM as a flag, with the handlers of before afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from millstream.core.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_counted_and_ends_nothing(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        assert not interrupts
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert interrupts.count == 2
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_second_is_not_waited_for_where_that_is_wanted() -> None:
    before = signal.getsignal(signal.SIGINT)

    def twice() -> None:
        with Interrupts(impatient=True) as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_signals_to_the_main_one() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def run() -> None:
        with Interrupts() as interrupts:
            seen.append((signal.getsignal(signal.SIGINT), bool(interrupts)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(before, False)]
