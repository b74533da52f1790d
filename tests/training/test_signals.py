import signal
import threading

import pytest

from toeplix.data.workers import put_off
from toeplix.training.signals import Abandoned, requests


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


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, "stopping after this step and saving; Ctrl-C again to quit without saving"),
        (signal.SIGTERM, "stopping after this step and saving; a second SIGTERM to quit without"),
    ],
)
def test_a_request_to_stop_is_acknowledged_at_once(capfd, number, words):
    before = signal.getsignal(number)
    with requests() as asked:
        signal.raise_signal(number)
        assert words in capfd.readouterr().err
        assert asked == [number]
    assert signal.getsignal(number) is before


def test_one_process_of_several_acknowledges(capfd):
    with requests(tell=False) as asked:
        signal.raise_signal(signal.SIGINT)
    assert asked == [signal.SIGINT]
    assert capfd.readouterr().err == ""


def test_a_signal_that_a_wrapper_repeats_is_one_request(monkeypatch, capfd):
    now = [100.0]
    monkeypatch.setattr("toeplix.training.signals.time.monotonic", lambda: now[0])
    with requests() as asked:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            now[0] += 0.2
        assert asked == [signal.SIGINT]
        assert capfd.readouterr().err.count("\n") == 1
        with pytest.raises(Abandoned):
            signal.raise_signal(signal.SIGINT)


def test_standard_error_may_be_closed(monkeypatch):
    monkeypatch.setattr("toeplix.training.signals.STDERR", 10**6)
    with requests() as asked:
        signal.raise_signal(signal.SIGINT)
    assert asked == [signal.SIGINT]
