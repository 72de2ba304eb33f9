"""The same on every machine: hypothesis draws the same examples, and Ctrl-C works, so no landing depends on luck."""

import signal
import threading

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fixed", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

# A shell that starts a job in the background has it ignore SIGINT, and its children too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
