"""The client for asyncio; the one that waits for each answer is made from it."""

from .herd import AsyncTabherd as AsyncTabherd
from .locks import AsyncLock as AsyncLock
from .session import AsyncSession as AsyncSession
from .tab import AsyncTab as AsyncTab
from .tab import AsyncTabLock as AsyncTabLock
from .task import AsyncTask as AsyncTask
