"""Locks that any Python program can take, over threads, tasks, processes and machines; no server is needed.

from tabherd.locks import advisory_lock

with advisory_lock("agent", 42, timeout=15.0):
    ...
"""

from __future__ import annotations

from ..errors import AdvisoryLockError as AdvisoryLockError
from .advisory import HeldLock as HeldLock
from .advisory import advisory_lock as advisory_lock
from .advisory import advisory_lock_or_skip as advisory_lock_or_skip
from .advisory import advisory_locks as advisory_locks
from .advisory import async_advisory_lock as async_advisory_lock
from .advisory import async_advisory_lock_or_skip as async_advisory_lock_or_skip
from .advisory import async_advisory_locks as async_advisory_locks
from .base import LockNamespace as LockNamespace
from .base import LockRow as LockRow
from .base import lock_key_from_string as lock_key_from_string
