# Written by tools/twin.py from client/aio; change that and run 'make docs'.
"""The client that waits for each answer."""

from .herd import Tabherd as Tabherd
from .locks import Lock as Lock
from .session import Session as Session
from .tab import Tab as Tab
from .tab import TabLock as TabLock
from .task import Task as Task
