import signal
import threading

import pytest

from toeplix.data.workers import put_off


@pytest.fixture(autouse=True)
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_and(go_on):
    with put_off():
        signal.raise_signal(signal.SIGINT)
        go_on()


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        interrupt_and(lambda: done.append("all of it"))
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fault_inside_is_not_lost():
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupt_and(lambda: 1 / 0)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_other_threads_leave_signals_alone():
    seen = []

    def inside():
        with put_off():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
